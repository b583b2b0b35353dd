"""Net changes: of all changes of a key only the last image counts (design, decision 4).

Pure rules: row changes in commit order and the target's table go in, what the rows must be afterwards comes out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from bridge.errors import ApplyError
from bridge.events import SEP, Kind, tso_ms
from bridge.target.catalog import Table, TableName


class RowChange(NamedTuple):
    """One row change, as `events.Event` with its position folded away."""

    commit_ts: int
    kind: int
    columns: str
    key: str
    before: str | None
    after: str | None


class Image(NamedTuple):
    """A row: names and literals joined by SEP, as in `events`."""

    columns: str
    literals: str


@dataclass(slots=True)
class KeyState:
    """What is known of one key.

    last: the row as it must be afterwards, None when it must be absent.
    first: the row as the target holds it now, None when the messages do not tell.
    """

    commit_ts: int
    last: Image | None
    first: Image | None


@dataclass
class KeyedChanges:
    """Net changes of a table with a key; `key` are lower-case column names, states are by the key's literals."""

    table: Table
    key: tuple[str, ...]
    states: dict[str, KeyState] = field(default_factory=dict)


@dataclass
class KeylessChanges:
    """Net changes of a table without a key: how many copies of each image come (> 0) or go (< 0)."""

    table: Table
    copies: dict[Image, int] = field(default_factory=dict)


NetChanges = KeyedChanges | KeylessChanges


def choose_key(table: Table, columns: str, key: str) -> tuple[str, ...]:
    """The key that identifies rows of `table`: the message's handle key where the target has it, else the target's
    primary key, else its first unique key of NOT NULL columns, each only when the message holds all its columns.
    ``()`` when there is none.
    """
    present = set(columns.lower().split(SEP))
    named = frozenset(key.lower().split(SEP)) if key else frozenset()
    usable = [candidate for candidate in table.keys if present.issuperset(candidate)]
    for candidate in usable:
        if frozenset(candidate) == named:
            return candidate
    return usable[0] if usable else ()


def fold(table: Table, changes: Iterable[RowChange]) -> NetChanges:
    """The net changes of `changes`, which are in the order (commit_ts, topic, partition, offset, index).

    Raises ApplyError for a change that does not identify its row.
    """
    changes = list(changes)
    keys = {choose_key(table, columns, key) for columns, key in {(c.columns, c.key) for c in changes}}
    if len(keys) != 1:
        raise ApplyError(
            "changes of one table name different keys between two schema changes",
            where=f"{table.name}, commit ts {changes[0].commit_ts}",
            mend="the target's keys differ from the upstream's; make them equal",
        )
    key = keys.pop()
    return _fold_keyed(KeyedChanges(table, key), changes) if key else _fold_keyless(KeylessChanges(table), changes)


def _fold_keyed(net: KeyedChanges, changes: list[RowChange]) -> KeyedChanges:
    positions: dict[str, tuple[int, ...]] = {}
    for change in changes:
        where = positions.get(change.columns)
        if where is None:
            names = change.columns.lower().split(SEP)
            where = positions[change.columns] = tuple(names.index(part) for part in net.key)
        _fold_change(net.states, change, where)
    return net


def _fold_change(states: dict[str, KeyState], change: RowChange, where: tuple[int, ...]) -> None:
    before, after = change.before, change.after
    old_key = None if before is None else _pick(before, where)
    new_key = None if after is None else _pick(after, where)
    first = None if before is None else Image(change.columns, before)
    if old_key is not None and old_key != new_key:
        _put_delete(states, old_key, change.commit_ts, first)
    if new_key is not None and after is not None:
        image = Image(change.columns, after)
        _put_image(states, new_key, change.commit_ts, image, first if old_key == new_key else None)


def _pick(literals: str, where: tuple[int, ...]) -> str:
    parts = literals.split(SEP)
    return parts[where[0]] if len(where) == 1 else SEP.join([parts[i] for i in where])


def _put_delete(states: dict[str, KeyState], key: str, commit_ts: int, first: Image | None) -> None:
    state = states.get(key)
    if state is None:
        states[key] = KeyState(commit_ts, None, first)
    elif state.last is None or state.commit_ts != commit_ts:  # else: an after-image of the same commit_ts wins
        state.commit_ts, state.last = commit_ts, None


def _put_image(states: dict[str, KeyState], key: str, commit_ts: int, last: Image, first: Image | None) -> None:
    state = states.get(key)
    if state is None:
        states[key] = KeyState(commit_ts, last, first)
    else:
        state.commit_ts, state.last = commit_ts, last


def _fold_keyless(net: KeylessChanges, changes: list[RowChange]) -> KeylessChanges:
    copies = net.copies
    for change in changes:
        if change.before is None and change.kind != Kind.INSERT:
            raise ApplyError(
                "a change of a table without a key lacks the old row, so that its row cannot be found",
                where=f"{net.table.name}, commit ts {change.commit_ts}",
                mend="give the table a primary key upstream and on the target, or let the changefeed send old values",
            )
        for literals, step in ((change.before, -1), (change.after, 1)):
            if literals is not None:
                image = Image(change.columns, literals)
                copies[image] = copies.get(image, 0) + step
    return net


def missing_table(name: TableName, commit_ts: int) -> ApplyError:
    """The error for rows of a table that the target does not have."""
    return ApplyError(
        f"the target has no table {name}",
        where=f"commit ts {commit_ts} ({tso_ms(commit_ts)} ms)",
        mend="create it as it is upstream, leave it out with --filter, or begin where it was created (--from)",
    )
