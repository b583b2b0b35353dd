"""Reads the old image of an update, which may be whole, hold only the changed columns, or be damaged.

With only-output-updated-columns TiCDC (August 2026) forgets the *name* of a changed column whose new value is NULL: its
fields are in `p` itself, ``"p":{"t":3,"f":81,"v":1}``, and a second such column overwrites the first (seen in
golden/open-updated-only).  The name is restored where it is certain.  Otherwise the old row counts as not sent, or the
message is bad where even the key may have changed.
"""

from __future__ import annotations

from typing import Any, Final

from bridge.events import Code, key_names
from bridge.protocols.decoder import DecodeError
from bridge.protocols.values.row_image import Layout

Columns = dict[str, dict[str, Any]]

_FIELDS: Final = frozenset({"t", "h", "f", "v"})
_LOST: Final = (
    "the old row has lost the names of columns that became NULL, a defect of TiCDC with only-output-updated-columns; "
    "run the changefeed without that option"
)


def old_row(old: Columns, new: Columns, row: dict[str, Any], layout: Layout) -> dict[str, Any] | None:
    """Gives the values of the old image, or None when they are lost.  row: the values of the new image, which were
    removed from `new`."""
    if type(old.get("t", old)) is not dict:
        return _restored(old, new, row, layout)
    values = {name: column.pop("v") for name, column in old.items()}
    if old != new and not old.items() <= new.items():
        raise DecodeError("the columns of the old row are not those of the new one")
    return values


def _restored(old: dict[str, Any], new: Columns, row: dict[str, Any], layout: Layout) -> dict[str, Any] | None:
    nameless = {name: old.pop(name) for name in _FIELDS & old.keys() if type(old[name]) is not dict}
    values = old_row(old, new, row, layout) if old else {}
    became_null = [name for name, value in row.items() if value is None and name not in old]
    if values is not None and len(became_null) == 1 and _is_sure(became_null[0], nameless, new, layout):
        return values | {became_null[0]: nameless["v"]}
    handle = set(key_names(layout.key)) or _FIELDS
    if handle & (old.keys() | _FIELDS):
        raise DecodeError(_LOST, Code.LOST_VALUE)
    return None


def _is_sure(name: str, nameless: dict[str, Any], new: Columns, layout: Layout) -> bool:
    """Tells whether the nameless fields are the column's: they are complete, its own, and hide no column named like a
    field."""
    before = layout.names[: layout.names.index(name)]
    fields = {field: found for field, found in nameless.items() if field != "v"}
    return "v" in nameless and fields == new[name] and _FIELDS.isdisjoint(before)
