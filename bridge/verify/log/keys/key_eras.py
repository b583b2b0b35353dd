"""Follows rows through changes of their table's key.  Pure, over Arrow.

What identifies a row is the key that its table had at the time: of two rows with one value of the present key, one may
have gone before.  So the steps of an era are folded by its own key, and only the rows that are left at its end are
spelled by the key of the next era.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP
from bridge.rows.arrow_images import TEXT, joined, parts_of
from bridge.verify.log.folded_steps import balance, completed, fold_steps, parted
from bridge.verify.log.logged_shapes import LoggedShape
from bridge.verify.log.row_groups import LogPlan
from bridge.verify.log.row_steps import STEP_SCHEMA, with_units

_NAMES: Final = ("table_number", "names")
_UNNAMED: Final = frozenset[str]()


class KeyEras(NamedTuple):
    """The eras of a table, as `ReplicatedTable` has them."""

    earlier_keys: tuple[tuple[str, ...], ...] = ()
    key_numbers: dict[int, int] = {}  # noqa: RUF012  # never changed


def key_eras(
    key: Sequence[str],
    shapes: Collection[LoggedShape],
    known: Callable[[LoggedShape], Collection[str]],
    *,
    may_be_gone: bool,
) -> KeyEras | None:
    """Finds the eras of a table's keys by the handle keys of its messages.

    key: the present one.
    known: gives the columns of a shape that the target has as they were.
    may_be_gone: whether rows may have been deleted with their table partition.

    Gives None where the messages do not tell which rows those of an earlier era are.
    """
    found = _eras(key, shapes)
    if found is None or not found.earlier_keys:
        return found
    keys = [tuple(key), *found.earlier_keys]
    is_partly_known = len({frozenset(known(shape)) for shape in shapes}) > 1
    if is_partly_known and (() in keys or any(shape.in_place >= 0 for shape in shapes)):
        return None
    if () in found.earlier_keys and may_be_gone:
        return None
    for number, one in enumerate(found.earlier_keys, 1):
        mine = [shape for shape in shapes if found.key_numbers.get(shape.altered) == number]
        held = [known(shape) for shape in mine if set(key).issubset(known(shape))]
        if not one and any(shape.overwrites for shape in mine):
            return None
        if not all(set(other).issubset(columns) for other in keys[1:number] for columns in held):
            return None
        is_seen = all(set(one).issubset(known(shape)) for shape in mine)
        if not is_seen and (number < len(keys) - 1 or len({shape.converted_ever for shape in mine}) > 1):
            return None
    return found


def _eras(key: Sequence[str], shapes: Collection[LoggedShape]) -> KeyEras | None:
    handles = _handles(shapes)
    if len(handles.get(0, ())) > 1 and _UNNAMED in handles[0]:
        return None  # the key was dropped upstream by a statement that the target has not run
    unnamed = (altered for altered, mine in handles.items() if mine == {_UNNAMED})
    by_deletes = {altered: {told} for altered in unnamed if (told := _by_deletes(altered, shapes))}
    handles |= by_deletes
    earlier: list[tuple[str, ...]] = []
    numbers: dict[int, int] = {}
    later, last = handles.get(0), frozenset(key)
    for altered in sorted(handles.keys() - {0}):
        mine = handles[altered]
        if by_deletes and mine == {_UNNAMED}:  # nothing of it was deleted, so that each key tells its rows apart
            mine = {last} if later in (None, {_UNNAMED}) else later
        is_present = later is None and _tell_only(last, [shape for shape in shapes if shape.altered == altered])
        if mine not in (later, {last}) and not is_present:
            if len(mine) > 1:
                return None
            [last] = mine
            earlier.append(tuple(sorted(last)))
        numbers[altered], later = len(earlier), mine
    return KeyEras(tuple(earlier), numbers)


def _handles(shapes: Collection[LoggedShape]) -> dict[int, set[frozenset[str]]]:
    """Gives the handle keys that messages name, by era."""
    handles: dict[int, set[frozenset[str]]] = {}
    for shape in shapes:
        handles.setdefault(shape.altered, set()).add(frozenset(filter(None, shape.handle.split(SEP))))
    return handles


def _by_deletes(altered: int, shapes: Collection[LoggedShape]) -> frozenset[str]:
    """Gives the key that the deletes of an era tell, of whose messages none names a key: they hold it alone where other
    messages hold whole rows (Canal-JSON, with `delete-only-output-handle-key-columns`).  Empty where they do not."""
    mine = [shape for shape in shapes if shape.altered == altered]
    told = {frozenset(filter(None, shape.columns.split(SEP))) for shape in mine if shape.only_deletes}
    rows = [frozenset(shape.columns.split(SEP)) for shape in mine if not shape.only_deletes]
    if len(told) != 1 or not rows:
        return _UNNAMED
    [key] = told
    return key if all(key < row for row in rows) else _UNNAMED


def _tell_only(key: Collection[str], shapes: Collection[LoggedShape]) -> bool:
    """Tells whether messages that name no key hold this one alone where others hold whole rows: their deletes are
    by this key.  Canal-JSON names no key but a primary one."""
    told = {frozenset(shape.columns.split(SEP)) for shape in shapes}
    return not any(shape.handle for shape in shapes) and bool(key) and told > {frozenset(key)}


def eras_of(plan: LogPlan) -> int:
    """Tells how many earlier keys any table had."""
    return max((len(replicated.earlier_keys) for replicated in plan.tables), default=0)


def spelled_by_next_key(plan: LogPlan, found: pa.Table, number: int) -> pa.Table:
    """Ends the era of the key with a number: folds its steps, and gives the rows that are left the key of the next era.
    Rows without that key are left out.  All steps of these keys are there."""
    mine, others = parted(found, pc.equal(found["key_number"], number))
    if mine.num_rows == 0:
        return found
    folded = completed(fold_steps(mine))
    keyed, counted = parted(folded, pc.equal(folded["copies"], 0))
    left = pa.concat_tables([keyed.filter(pc.is_valid(keyed["image"])), balance(counted)])
    spelled = pa.concat_tables([STEP_SCHEMA.empty_table(), *_spelled(plan, left, number - 1)])
    return pa.concat_tables([others, with_units(plan, spelled)])


def _spelled(plan: LogPlan, rows: pa.Table, number: int) -> Iterator[pa.Table]:
    for kind in rows.select(_NAMES).group_by(_NAMES).aggregate([]).to_pylist():
        key, names = plan.tables[kind["table_number"]].keys[number], kind["names"].split(SEP)
        if not set(key) <= set(names):
            continue
        alike = (pc.equal(rows[name], kind[name]) for name in _NAMES)
        mine = rows.filter(pc.and_(*alike)).combine_chunks()
        images = mine["image"].combine_chunks()
        told = {
            "key": joined(parts_of(images, [names.index(part) for part in key])) if key else images,
            "copies": pa.repeat(0, len(images)) if key else pc.max_element_wise(mine["copies"].combine_chunks(), 1),
            "resent": pa.repeat(0, len(images)),
            "unit": pa.nulls(len(images), TEXT),
            "key_number": pa.repeat(number, len(images)),
        }
        columns = [told.get(field.name, mine[field.name]) for field in STEP_SCHEMA]
        yield pa.table(
            [column.cast(field.type) for column, field in zip(columns, STEP_SCHEMA, strict=True)], STEP_SCHEMA
        )
