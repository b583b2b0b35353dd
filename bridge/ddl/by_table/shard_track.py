"""Rules on the next schema change of a shard by those of all shards of its merged table.

What only adds something runs at the first shard.  A statement that ran for another shard more often than this one has
had it is confirmed without running.  Everything else is held.  All of it follows from the journal, so that it is the
same after a restart.  Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum, auto
from typing import Final, NamedTuple

from bridge.ddl.by_table.shard_statements import ShardStatement
from bridge.ddl.classes import ChangeClass
from bridge.model import TableName

_LAST: Final = frozenset({ChangeClass.DROP_COLUMN})
_FIX: Final = "skip it, approve it, or replace it by what the merged table needs"


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


class Track:
    """The schema changes of the shards of one table.  past: those before, in order, each with what became of it."""

    def __init__(self, past: Iterable[tuple[ShardStatement, Fate]] = ()) -> None:
        self._made: dict[str, TableName] = {}
        self._ran: dict[str, list[TableName]] = {}
        self._met = Counter[tuple[TableName, str]]()
        for change, fate in past:
            self.note(change, fate)

    def note(self, change: ShardStatement, fate: Fate) -> None:
        """Notes what became of the next schema change.  A table that is made anew has had none of those before."""
        if change.makes and fate is Fate.RAN:
            self._made[change.text] = change.shard
            self._ran.clear()
            self._met.clear()
        elif not (change.makes or change.never):
            self._met[change.shard, change.text] += 1
            if fate is Fate.RAN:
                self._ran.setdefault(change.text, []).append(change.shard)

    def ruling(self, change: ShardStatement) -> Ruling:
        """Rules on the next schema change."""
        if change.never:
            return Ruling(ShardVerdict.HOLD, f"{change.never}; skip it, or replace it by what the merged table needs")
        if change.makes:
            return self._on_making(change)
        ran = self._ran.get(change.text, [])
        if change.is_confirmed and len(ran) > self._met[change.shard, change.text]:
            return Ruling(ShardVerdict.CONFIRM, f"confirmed, as run for {ran[-1]}")
        return Ruling(ShardVerdict.RUN) if change.runs_first else Ruling(ShardVerdict.HOLD, _why_held(change))

    def _on_making(self, change: ShardStatement) -> Ruling:
        if change.like is not None:
            return Ruling(ShardVerdict.CONFIRM, f"confirmed, as {change.like} was merged")
        if change.text in self._made:
            return Ruling(ShardVerdict.CONFIRM, f"confirmed, as run for {self._made[change.text]}")
        return Ruling(ShardVerdict.COMPARE)


def _why_held(change: ShardStatement) -> str:
    names = ", ".join(one.value for one in change.classes)
    if _LAST & set(change.classes):
        return (
            f"{change.shard} is merged with other shards, whose rows may still need what it takes away ({names});"
            " skip it for each shard but the last, and approve it for the last"
        )
    return (
        f"{change.shard} is merged with other shards, whose rows may not fit what it makes of the table ({names});"
        f" {_FIX}: what runs for the first shard is confirmed for the others, where a second run would do nothing"
    )
