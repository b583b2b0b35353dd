"""Finds the row changes that the target refuses, so that they are quarantined and the rest of a transaction is applied.

The target refuses a statement of many rows.  To find the row, parts of the transaction are tried in transactions that
are rolled back.  All changes of a key, in any spelling, stay together, since only its last image is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from bridge.errors import RefusedRowsError
from bridge.events import EVENT_SCHEMA, SEP, Event, Kind, Position
from bridge.model import Advance, Entry, Table, TableName
from bridge.mysql.apply.writer import Writer
from bridge.protocols.values.untyped import split_forms
from bridge.rows.arrow_images import TEXT
from bridge.rows.grouping import linked
from bridge.rows.keys.key_spellings import SameKeys, asks_nobody, spellings
from bridge.rows.net_changes import choose_key
from bridge.rows.order_and_slices import ROW_ORDER, DriverRows, RowStatements, WindowRows
from bridge.rows.types.resolve_types import typed
from bridge.rows.types.type_check import CheckedTypes
from bridge.tso import tso_ms

Group = Sequence[int]
"""The numbers of the steps of one key, in order."""
Trial = Callable[[Sequence[int]], RefusedRowsError | None]
"""Returns why the target refuses these steps together; None when it accepts them."""

_KEY_CHARACTERS: Final = 100
MOST_SEARCHED: Final = 500_000
"""The most row changes of a transaction that are brought to the driver to find the refused one."""


def apply_or_quarantine(
    writer: Writer, step: Advance, rows: WindowRows, catalog: Mapping[TableName, Table], protocol: str
) -> Advance:
    """Commits a transaction, and quarantines the rows of it that the target refuses; returns the step as committed.

    Raises what `Writer.apply` raises, RefusedRowsError only when no single row is the cause.
    """
    while True:
        try:
            writer.apply(step, RowStatements(rows, catalog))
        except RefusedRowsError as refusal:
            name = TableName(*refusal.table)
            kept, refused = separate_refused(
                catalog[name], rows.changes(name), partial(_refusal, writer, catalog), writer.same_keys
            )
            if not refused:
                raise
            entries = [replace(entry, protocol=protocol) for entry in refused]
            step = replace(step, quarantined=(*step.quarantined, *entries))
            rows = rows.with_changes(name, kept)
        else:
            return step


def with_position(
    writer: Writer, rows: WindowRows, catalog: Mapping[TableName, Table], refusal: RefusedRowsError
) -> RefusedRowsError:
    """Adds position and commit_ts of a refused row change to the refusal; returns it unchanged when none is found."""
    if refusal.is_exact or rows.count > MOST_SEARCHED:
        return refusal
    name = TableName(*refusal.table)
    changes = rows.changes(name)
    number, found = _first_refused(changes.num_rows, lambda n: _refusal(writer, catalog, changes.slice(0, n)))
    if found is None:
        return refusal
    if not found.is_exact:
        change = changes.slice(number, 1).to_pylist()[0]
        position = Position(change["topic"], change["partition"], change["offset"])
        moment = f"commit ts {change['commit_ts']} ({tso_ms(change['commit_ts'])} ms)"
        found.where = f"{position}, {moment}, {_key_words(catalog[name], change)}{found.where}"
    return found


def _key_words(table: Table, change: Mapping[str, Any]) -> str:
    """Says which row a change is of, "" where the table has no key."""
    names, _ = split_forms(change["columns"])
    image = change["after"] if change["after"] is not None else change["before"]
    literals = dict(zip(names.lower().split(SEP), image.split(SEP), strict=True))
    key = choose_key(table, names, change["key"])
    return f"key ({', '.join(f'{part}={literals[part][:_KEY_CHARACTERS]}' for part in key)}), " if key else ""


def _first_refused(
    count: int, refusal_of: Callable[[int], RefusedRowsError | None]
) -> tuple[int, RefusedRowsError | None]:
    """Finds a row change that the target refuses together with those before it, which it accepts without that one.

    Returns its number and the refusal, which is None when all are accepted.
    """
    taken, refused, why = 0, count, refusal_of(count)
    while why is not None and refused - taken > 1:
        middle = (taken + refused) // 2
        earlier = refusal_of(middle)
        if earlier is None:
            taken = middle
        else:
            refused, why = middle, earlier
    return refused - 1, why


def _refusal(writer: Writer, catalog: Mapping[TableName, Table], changes: pa.Table) -> RefusedRowsError | None:
    return writer.refusal(partial(DriverRows.of([changes]).statements, catalog))


def separate_refused(
    table: Table,
    changes: pa.Table,
    refusal_of: Callable[[pa.Table], RefusedRowsError | None],
    same_keys: SameKeys = asks_nobody,
) -> tuple[pa.Table, list[Entry]]:
    """Separates the row changes of one table (EVENT_SCHEMA, in order) into those that the target accepts together, and
    entries of the others."""
    steps = [step for change in changes.to_pylist() for step in _steps_of(table, change)]
    held = pa.Table.from_pylist([step.change for step in steps], schema=EVENT_SCHEMA)
    spelled = list(_spellings(table, steps, same_keys).items())
    units = linked([*((step.old, step.key) for step in steps), *spelled])
    rows = linked([*((key, key) for step in steps for key in (step.old, step.key)), *spelled])
    groups: dict[str, list[int]] = {}
    for number, step in enumerate(steps):
        groups.setdefault(units[step.key], []).append(number)
    is_keyed = all(step.by for step in steps)
    touched = [frozenset({rows[step.old], rows[step.key]}) for step in steps]
    bisection = _Bisection(lambda numbers: refusal_of(held.take(sorted(numbers))), is_keyed, touched, {})
    bisection.run(list(groups.values()))
    kept = [number for number in range(len(steps)) if number not in bisection.refused]
    return held.take(pa.array(kept, pa.int64())), _entries(table, changes, steps, bisection.refused)


class _Step(NamedTuple):
    """A row change, or one half (delete or insert) of an update that moves its row to another key.

    old: the key before the change.
    by: the columns of the key.
    """

    key: str
    old: str
    change: dict[str, Any]
    by: tuple[str, ...]

    @property
    def goes(self) -> bool:
        """Whether the row of its key was deleted, or may have been stored under another spelling before."""
        return self.change["after"] is None or (self.change["before"] is None and self.change["kind"] == Kind.UPDATE)

    @property
    def place(self) -> tuple[Any, ...]:
        """Identifies the row change that it belongs to."""
        return tuple(self.change[name] for name in ROW_ORDER)


def _steps_of(table: Table, change: dict[str, Any]) -> list[_Step]:
    """Makes the steps of a row change.  Values without types are compared as they are: equal ones become equal
    literals."""
    names, _ = split_forms(change["columns"])
    key = choose_key(table, names, change["key"])
    old, new = (_key_of(names, change[image], key) for image in ("before", "after"))
    if old is None or new is None or old == new or not _is_whole_row(table, names):
        return [_Step(new or old or "", old or new or "", change, key)]
    return [
        _Step(old, old, change | {"kind": int(Kind.DELETE), "after": None}, key),
        _Step(new, new, change | {"kind": int(Kind.INSERT), "before": None}, key),
    ]


def _spellings(table: Table, steps: Sequence[_Step], same_keys: SameKeys) -> dict[str, str]:
    """Maps keys to other spellings that the target compares as equal."""
    found: dict[str, str] = {}
    for by in {step.by for step in steps if step.by}:
        mine = [step for step in steps if step.by == by]
        keys = [*((step.key, step.goes) for step in mine), *((step.old, True) for step in mine if step.old != step.key)]
        literals = pa.array([key for key, _ in keys], TEXT)
        found |= spellings(table, by, literals, np.array([goes for _, goes in keys]), same_keys)
    return found


def _is_whole_row(table: Table, names: str) -> bool:
    """Tells whether the message holds the whole row.  Otherwise an update is not divided: if only its insert were
    quarantined, the rest of the row would be lost with the delete."""
    present = names.lower().split(SEP)
    return all(name in present for name, column in table.columns.items() if not column.generated)


def _key_of(names: str, image: str | None, key: tuple[str, ...]) -> str | None:
    """Returns the literals of the key; for a table without a key, those of the whole row."""
    if image is None or not key:
        return image if image is None else names + SEP + SEP + image
    named = dict(zip(names.lower().split(SEP), image.split(SEP), strict=True))
    return SEP.join(named[part] for part in key)


@dataclass
class _Bisection:
    """Finds the refused changes of a transaction by halving it.

    touched: the rows that each step is about, by their keys.
    """

    trial: Trial
    is_keyed: bool
    touched: Sequence[frozenset[str]]
    refused: dict[int, RefusedRowsError]

    def run(self, groups: list[Group]) -> None:
        """Finds keys that are refused by themselves, then keys that are refused together with others (unique
        values)."""
        self._bisect(groups, None)
        rest = [[number for number in group if number not in self.refused] for group in groups]
        self._bisect([group for group in rest if group], [])

    def _bisect(self, groups: list[Group], beside: list[int] | None) -> None:
        """Halves the groups until each refused one is alone.

        beside: the steps that were accepted so far, to which this adds; None to try each group by itself.
        """
        numbers = list(chain.from_iterable(groups))
        if not numbers:
            return
        if self._refusal(numbers, beside) is None:
            if beside is not None:
                beside += numbers
        elif len(groups) == 1:
            self._trim(groups[0], beside)
        else:
            half = len(groups) // 2
            self._bisect(groups[:half], beside)
            self._bisect(groups[half:], beside)

    def _trim(self, group: Group, beside: list[int] | None) -> None:
        """Marks changes of one key, or of keys between which a row moves, as refused until the target accepts the rest.

        Only the last image of a key is written, so the last changes are tried first; what comes behind a refused one
        and is about another row is tried again.  Without a key, each change is tried by itself.
        """
        kept = self._trim_last(list(group), beside) if self.is_keyed else self._trim_each(group, beside)
        if beside is not None:
            beside += kept

    def _trim_last(self, kept: list[int], beside: list[int] | None) -> list[int]:
        behind: list[tuple[int, RefusedRowsError]] = []
        while kept and (refusal := self._refusal(kept, beside)):
            behind.insert(0, (kept.pop(), refusal))
        refused_rows, free = set[str](), list[int]()
        for number, refusal in behind:
            if refused_rows and refused_rows.isdisjoint(self.touched[number]):
                free.append(number)
            else:
                refused_rows |= self.touched[number]
                self.refused[number] = refusal
        return kept + self._trim_last(free, [*(beside or ()), *kept]) if free else kept

    def _trim_each(self, group: Group, beside: list[int] | None) -> list[int]:
        kept: list[int] = []
        for number in group:
            refusal = self._refusal([*kept, number], beside)
            if refusal is None:
                kept.append(number)
            else:
                self.refused[number] = refusal
        return kept

    def _refusal(self, numbers: Sequence[int], beside: list[int] | None) -> RefusedRowsError | None:
        return self.trial([*(beside or ()), *numbers])


def _entries(
    table: Table, changes: pa.Table, steps: Sequence[_Step], refused: Mapping[int, RefusedRowsError]
) -> list[Entry]:
    """Makes one entry for each refused row change: all of it, or the half that was refused."""
    whole = {tuple(change[name] for name in ROW_ORDER): change for change in changes.to_pylist()}
    halves: dict[tuple[Any, ...], list[int]] = {}
    for number, step in enumerate(steps):
        halves.setdefault(step.place, []).append(number)
    entries = []
    for place, numbers in halves.items():
        bad = [number for number in numbers if number in refused]
        if bad:
            change = whole[place] if len(bad) == len(numbers) else steps[bad[0]].change
            entries.append(_entry(_with_exact_literals(table, change), refused[bad[-1]]))
    return entries


def _with_exact_literals(table: Table, change: dict[str, Any]) -> dict[str, Any]:
    """Returns the change with exact literals; unchanged when the target cannot hold the values that they stand for."""
    checked = CheckedTypes()
    checked.add(table, change["columns"])  # its types were checked before the row was refused
    try:
        ready = typed(table, pa.Table.from_pylist([change], schema=EVENT_SCHEMA), checked)
    except RefusedRowsError:
        return change
    return change | dict(ready.to_pylist()[0])


def _entry(change: dict[str, Any], refusal: RefusedRowsError) -> Entry:
    position = Position(change["topic"], change["partition"], change["offset"])
    event = Event(Kind(change["kind"]), *(change[name] for name in Event._fields[1:]))
    return Entry(position, refusal.code, refusal.what, event.commit_ts, change=event)
