"""Follows the schema changes of all shards of one merged table, and rules on the next one.

What ran for one shard is expected of the others, in the same order: an equal statement is confirmed without running.
What the operator decides about a statement that was not expected counts as the end of the difference.  All of it
follows from the journal, so that it is the same after a restart.  Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from bridge.ddl.by_table.shard_statements import ShardStatement
from bridge.ddl.classes import ChangeClass
from bridge.model import TableName

_LAST: Final = frozenset({ChangeClass.DROP_COLUMN})
_FIX: Final = "skip it, approve it, or replace it by what the merged table needs"
_IN_LINE: Final = "skip it where the merged table needs nothing, or replace it by what it needs"


class Fate(Enum):
    """What became of a schema change."""

    RAN = auto()
    CONFIRMED = auto()
    SKIPPED = auto()


class ShardVerdict(Enum):
    """What is done with a schema change.  COMPARE: it makes a shard, and is confirmed when the merged table is what it
    makes, or run when there is none."""

    RUN = auto()
    CONFIRM = auto()
    COMPARE = auto()
    HOLD = auto()


class Ruling(NamedTuple):
    """A verdict, and why."""

    verdict: ShardVerdict
    why: str = ""


class _Run(NamedTuple):
    shard: TableName
    text: str


def compared(change: ShardStatement, *, is_equal: bool) -> Ruling:
    """Rules on a statement that makes a shard, after the merged table was compared with what it makes."""
    if is_equal:
        return Ruling(ShardVerdict.CONFIRM, f"confirmed: {change.target} is what it makes")
    return Ruling(
        ShardVerdict.HOLD,
        f"{change.shard} is merged into {change.target}, which has other columns, keys or options; approve it if rows"
        " of the shard fit that table all the same, or alter the table and approve it then",
    )


def misread(change: ShardStatement, what: str) -> str:
    """Says why a statement is held that is not to be approved.  what: as of `misread_values`."""
    return (
        f"{change.shard} is merged with other shards, and {what}, in silence; where no such row comes before all shards"
        " are alike, replace it by what the merged table needs, maybe by itself"
    )


def kept_rows(change: ShardStatement, skipped: str) -> str:
    """Says why a statement is held whose column the merged table has, with what rows of its own shard held before.
    skipped: the id of what the operator skipped."""
    return (
        f"rows of {change.shard} hold in {change.target} what they held before, as {skipped} was skipped; give them,"
        " and the table, by hand what this statement gave them upstream, and say `bridge ddl done`"
    )


@dataclass
class _Shard:
    """What is expected of a shard.

    due: what ran for others, in order.  waived: what need not come any more; where it only adds something, it may run
        again, since the server says when that is there.
    ahead: what the operator skipped here before it ran for another shard.
    """

    due: list[_Run] = field(default_factory=list)
    waived: list[_Run] = field(default_factory=list)
    ahead: Counter[str] = field(default_factory=Counter)

    def meet(self, text: str) -> bool:
        """Takes what was expected off its list; tells whether it was expected."""
        for listed in (self.due, self.waived):
            found = next((run for run in listed if run.text == text), None)
            if found is not None:
                listed.remove(found)
                return True
        return False

    def waive(self) -> None:
        """Expects nothing any more."""
        self.waived += self.due
        self.due = []


class Track:
    """The schema changes of the shards of one table.  past: those before, in order, each with what became of it."""

    def __init__(self, past: Iterable[tuple[ShardStatement, Fate]] = ()) -> None:
        self._shards: dict[TableName, _Shard] = {}
        self._runs: list[_Run] = []
        self._others: list[_Run] = []
        self._made: dict[str, tuple[TableName, int]] = {}
        for change, fate in past:
            self.note(change, fate)

    def ruling(self, change: ShardStatement) -> Ruling:
        """Rules on the next schema change."""
        if change.never:
            return Ruling(ShardVerdict.HOLD, f"{change.never}; skip it, or replace it by what the merged table needs")
        return self._on_making(change) if change.makes else self._on_altering(change)

    def _on_making(self, change: ShardStatement) -> Ruling:
        if change.like is not None and change.like in self._shards:
            return Ruling(ShardVerdict.CONFIRM, f"confirmed, as {change.like} was merged")
        if change.text in self._made:
            return Ruling(ShardVerdict.CONFIRM, f"confirmed, as run for {self._made[change.text][0]}")
        return Ruling(ShardVerdict.COMPARE)

    def _on_altering(self, change: ShardStatement) -> Ruling:
        shard = self._of(change.shard)
        if not shard.due or (change.runs_first and change.text in {run.text for run in shard.waived}):
            return self._on_new(change)
        expected = shard.due[0]
        if change.text != expected.text:
            return Ruling(
                ShardVerdict.HOLD,
                f"{change.shard} is merged with {expected.shard}, for which another schema change ran that comes before"
                f" this one: {expected.text}; {_IN_LINE}",
            )
        if not change.is_confirmed:
            return Ruling(
                ShardVerdict.HOLD,
                f"it ran for {expected.shard}, and the bridge cannot tell that nothing is left to do for"
                f" {change.shard}; {_IN_LINE}",
            )
        return Ruling(ShardVerdict.CONFIRM, f"confirmed, as run for {expected.shard}")

    def _on_new(self, change: ShardStatement) -> Ruling:
        if change.runs_first:
            return Ruling(ShardVerdict.RUN)
        names = ", ".join(one.value for one in change.classes)
        if _LAST & set(change.classes):
            return Ruling(
                ShardVerdict.HOLD,
                f"{change.shard} is merged with other shards, whose rows may still need what it takes away ({names});"
                " skip it for each shard but the last, and approve it for the last",
            )
        return Ruling(
            ShardVerdict.HOLD,
            f"{change.shard} is merged with other shards, whose rows may not fit what it makes of the table ({names});"
            f" {_FIX}: what runs for the first shard is confirmed for the others",
        )

    def _of(self, name: TableName) -> _Shard:
        """Gives a shard.  One that was there before all of these changes has all of them before it."""
        return self._shards.setdefault(name, _Shard([*self._runs], [*self._others]))

    def note(self, change: ShardStatement, fate: Fate) -> None:
        """Notes what became of the next schema change."""
        (self._note_made if change.makes else self._note_altered)(change, fate)

    def _note_altered(self, change: ShardStatement, fate: Fate) -> None:
        shard = self._of(change.shard)
        if change.never or shard.meet(change.text) or fate is Fate.CONFIRMED:
            return
        is_in_line = not shard.due
        shard.waive()
        if fate is Fate.SKIPPED:
            shard.ahead[change.text] += is_in_line
            return
        run = _Run(change.shard, change.text)
        (self._runs if is_in_line else self._others).append(run)
        for name, other in self._shards.items():
            if name == change.shard:
                continue
            if other.ahead[change.text]:
                other.ahead[change.text] -= 1
            else:
                (other.due if is_in_line else other.waived).append(run)

    def _note_made(self, change: ShardStatement, fate: Fate) -> None:
        if fate is Fate.RAN:
            self._made[change.text] = change.shard, len(self._runs)
            self._shards[change.shard] = _Shard(waived=[*self._runs, *self._others])
        elif change.like is not None and change.like in self._shards:
            like = self._shards[change.like]
            self._shards[change.shard] = _Shard([*like.due], [*like.waived], Counter(like.ahead))
        elif change.text in self._made:
            at = self._made[change.text][1]
            self._shards[change.shard] = _Shard(self._runs[at:], [*self._others])
        else:
            self._shards[change.shard] = _Shard(waived=[*self._runs, *self._others])
