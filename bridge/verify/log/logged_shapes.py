"""Finds the shapes of row changes: which columns their messages have, and what became of these.  Pure, over Arrow."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP, Kind
from bridge.protocols.values.untyped import split_forms
from bridge.verify.log.row_groups import LogPlan, in_target, row_groups
from bridge.verify.log.told_columns import looks_of, numbered_columns, worded_columns

_NEVER: Final = (1 << 63) - 1
DROPPED: Final = " "
"""Stands for the present name of a column that was dropped; no column has that name."""


class LoggedShape(NamedTuple):
    """The columns of row changes.  Names are joined by SEP.

    schema, table: the table that holds the rows now.
    columns: the names of the columns there, in message order.
    handle: the names of the handle key's columns; `DROPPED` for those that are gone.
    retyped: columns whose type was changed since.
    numbered: those of them of which some value is a bare number (`numbered_columns`).
    converted: whether the texts of all columns got another character set or collation since.
    overwrites: whether some change of an existing row does not tell the row before, which may have been the row of
    another spelling of its key.  Only known where a type or a key was changed since, or texts were converted.
    first: the lowest commit_ts of any change.
    in_place: the highest commit_ts among changes that go by event time and change an existing row, so that the columns
    which they lack kept their values; -1 when there is none.
    altered, converted_ever: as of the span.
    hides_updates: whether inserts may be updates that do not tell the row before: the format has no other sign of an
    update, and no message of the group has the row before.
    undefaulted: as of the span.
    updates: whether some change is an update; only_deletes: whether all of them are deletes.
    worded: columns that were changed since, and of which some value is a text (`worded_columns`).
    looks: columns whose type was changed since, with the looks of their values (`looks_of`).
    may_be_gone: as of the span.
    """

    schema: str
    table: str
    columns: str
    handle: str
    retyped: str
    numbered: str
    converted: bool
    overwrites: bool
    first: int
    in_place: int
    altered: int = 0
    converted_ever: int = 0
    hides_updates: bool = False
    undefaulted: str = ""
    updates: bool = False
    worded: str = ""
    only_deletes: bool = False
    looks: tuple[tuple[str, str], ...] = ()
    may_be_gone: bool = False


def shapes(plan: LogPlan, events: pa.Table) -> set[LoggedShape]:
    """Gives the shapes of the row changes that the target should hold.  Events need their images only if
    `plan.has_retyped`."""
    changes = in_target(plan, events)
    groups, group_of = row_groups(plan, changes)
    times = changes["commit_ts"].to_numpy()
    is_in_place = pc.and_(changes["by_time"], pc.not_equal(changes["kind"], int(Kind.INSERT)))
    firsts, in_place = np.full(len(groups), _NEVER), np.full(len(groups), -1)
    np.minimum.at(firsts, group_of, times)
    np.maximum.at(in_place, group_of, np.where(is_in_place.to_numpy(), times, -1))
    is_update = pc.equal(changes["kind"], int(Kind.UPDATE)).to_numpy()
    updates = np.bincount(group_of[is_update], minlength=len(groups))
    others = np.bincount(group_of[pc.not_equal(changes["kind"], int(Kind.DELETE)).to_numpy()], minlength=len(groups))
    found: set[LoggedShape] = set()
    for number, (group, first, last) in enumerate(zip(groups, firsts.tolist(), in_place.tolist(), strict=True)):
        span = group.span
        if span.table is None:
            continue
        texts, forms = split_forms(group.columns)
        names = [span.now(name) for name in texts.split(SEP)]
        handle = [span.now(name) or DROPPED for name in group.key.split(SEP) if name]
        by_value = (
            changes.filter(pa.array(group_of == number)) if span.retyped or span.converted or span.altered else None
        )
        told = () if by_value is None else numbered_columns(span, by_value, names)
        some_names = names, handle, sorted(span.retyped), sorted(told)
        columns, key, retyped, by_number = (SEP.join(name for name in some if name) for some in some_names)
        since = bool(span.converted), by_value is not None and _overwrites(by_value)
        hides_updates = plan.hides_updates and by_value is not None and not _tells_rows_before(by_value)
        of_names, changed = (columns, key, retyped, by_number), (span.altered, span.converted_ever)
        undefaulted = SEP.join(sorted(span.undefaulted))
        worded = "" if by_value is None else SEP.join(sorted(worded_columns(span, by_value, names)))
        looks = () if by_value is None else tuple(sorted(looks_of(span, by_value, names, forms)))
        more = undefaulted, bool(updates[number]), worded, not others[number]
        shape = LoggedShape(*span.table, *of_names, *since, first, last, *changed, hides_updates, *more, looks=looks)
        found.add(shape._replace(may_be_gone=span.may_be_gone))
    return found


def _overwrites(changes: pa.Table) -> bool:
    is_update = pc.equal(changes["kind"], int(Kind.UPDATE))
    return bool(pc.any(pc.and_(is_update, pc.is_null(changes["before"]))).as_py())


def _tells_rows_before(changes: pa.Table) -> bool:
    return bool(pc.any(pc.and_(pc.is_valid(changes["before"]), pc.is_valid(changes["after"]))).as_py())
