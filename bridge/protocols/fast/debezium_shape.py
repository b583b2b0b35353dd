"""Tells what is the same in all messages of a kind, in TiCDC's Debezium JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bridge.protocols.debezium.decoder import TICDC, DebeziumDecoder
from bridge.protocols.debezium.keys import HandleKeys
from bridge.protocols.decoder import FAILURES, DecodeError, DecodeOptions, RowEvents
from bridge.protocols.fast.decoder import FastJsonDecoder, the_row
from bridge.protocols.fast.message_shape import Hole, Lesson, value_holes

if TYPE_CHECKING:
    from bridge.protocols.fast.forms import Rows

_IMAGES: Final = ("before", "after")
_TABLE: Final = b'"db":'
_TABLE_END: Final = b',"server_id":'
_OPERATION: Final = b'"op":"'


class FastDebeziumDecoder(FastJsonDecoder):
    """Decodes Debezium's JSON; TiCDC's rows are read by their forms."""

    def __init__(self, options: DecodeOptions) -> None:
        self._debezium = DebeziumDecoder(options)
        super().__init__(self._debezium)

    def _kind_of(self, value: bytes) -> bytes:
        table, operation = value.find(_TABLE), value.find(_OPERATION)
        return value[table : value.find(_TABLE_END, table)] + value[operation : operation + len(_OPERATION) + 1]

    def _guarded(self, keys: Sequence[bytes | None], forms: Rows, rows: RowEvents) -> RowEvents:
        """Keeps the rows whose messages' keys name the same columns as the lesson's key; the value does not name
        them."""
        guards = {form: self._reader.guard(form) for form in set(forms.tolist())}
        named = (
            _names(guards[form][0], keys[number]) == guards[form][1]
            for number, form in zip(rows.numbers.tolist(), forms.tolist(), strict=True)
        )
        return rows.only(np.fromiter(named, np.bool_, len(rows.numbers)))

    def _lesson(self, key: bytes | None, value: bytes) -> Lesson:
        """Makes the lesson.  Its guard tells how to read a key, and the columns that it must name."""
        event = the_row(self._debezium.parse(key, value))
        payload, schema = self._debezium.envelopes.parsed(value, "the message")
        if payload["source"]["connector"] != TICDC:
            raise DecodeError("a message of another sender")
        layout = self._debezium.layout_of(event.schema, event.table, payload["op"])
        if layout is None:
            raise DecodeError("a table without a layout")
        rows = {image: row for image in _IMAGES if (row := payload.get(image)) is not None}
        names = {"db": Hole.SCHEMA, "table": Hole.TABLE}
        source = {**payload["source"], **names, "ts_ms": Hole.NUMBER, "commit_ts": Hole.COMMIT_TS}
        images = {image: value_holes(image, row) for image, row in rows.items()}
        tree = {"payload": {**payload, "source": source, "ts_ms": Hole.NUMBER, **images}}
        if schema is not None:
            tree["schema"] = _of_any_table(schema)
        return Lesson(value, event, layout, rows, tree, guard=(HandleKeys(self._debezium.envelopes), layout.handle))


def _names(keys: HandleKeys, key: bytes | None) -> list[str] | None:
    """Gives the columns that a key names, None when it cannot be read."""
    try:
        return keys.names(key)
    except (*FAILURES, DecodeError):
        return None


def _of_any_table(schema: dict[str, Any]) -> dict[str, Any]:
    """Puts holes where a schema names the message and the row: these names hold only the table's name."""
    fields = [_unnamed(field) if field["field"] in _IMAGES else field for field in schema["fields"]]
    return _unnamed({**schema, "fields": fields})


def _unnamed(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "name": Hole.TEXT} if type(schema.get("name")) is str else schema
