"""Tells what is the same in all messages of a kind, in TiCDC's Debezium JSON."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from bridge.protocols.debezium.decoder import TICDC, DebeziumDecoder
from bridge.protocols.debezium.keys import HandleKeys
from bridge.protocols.decoder import FAILURES, DecodeError, DecodeOptions, RowEvents
from bridge.protocols.fast.decoder import FastJsonDecoder, the_row
from bridge.protocols.fast.message_shape import Hole, Lesson, value_holes
from bridge.protocols.fast.texts import BEHIND, Texts

if TYPE_CHECKING:
    from bridge.protocols.fast.forms import Rows

_IMAGES: Final = ("before", "after")
_MARKS: Final = (b'"db":', b',"serve', b'"op":"')
"""The table is between the first two, and the operation behind the last one."""
_WORDS: Final = np.array([int.from_bytes(mark, "little") for mark in _MARKS])
_MANY: Final = 32
"""Fewer keys are looked at one by one."""
_SIZES: Final = np.array([len(mark) for mark in _MARKS])


class FastDebeziumDecoder(FastJsonDecoder):
    """Decodes Debezium's JSON; TiCDC's rows are read by their forms."""

    def __init__(self, options: DecodeOptions) -> None:
        self._debezium = DebeziumDecoder(options)
        super().__init__(self._debezium)

    def _kinds_of(self, values: Sequence[bytes | None], texts: Texts) -> list[Hashable | None]:
        """Gives sums; where those of two tables are the same, the messages of one of them are not read."""
        from bridge.protocols.fast.compiled.functions import sum_kinds

        sums = np.empty(len(values), np.int64)
        sum_kinds(texts.numbers(), texts.starts, texts.ends, len(values), _WORDS, _SIZES, sums)
        return [kind or None for kind in sums.tolist()]

    def _guarded(self, keys: Sequence[bytes | None], forms: Rows, rows: RowEvents) -> RowEvents:
        """Keeps the rows whose messages' keys name the same columns as the lesson's key; the value does not name
        them."""
        is_named = np.zeros(len(forms), np.bool_)
        places_by_form = np.argsort(forms, kind="stable")
        ends = np.cumsum(np.bincount(forms))
        for form in set(forms.tolist()):
            places = places_by_form[ends[form - 1] if form else 0 : ends[form]]
            names, wanted = self._reader.guard(form)
            is_named[places] = _are_named(names, wanted, [keys[number] for number in rows.numbers[places].tolist()])
        return rows.only(is_named)

    def _lesson(self, key: bytes | None, value: bytes) -> Lesson:
        """Makes the lesson.  Its guard tells how to read a key, and the columns that it must name."""
        event = the_row(self._debezium.parse(key, value))
        payload, schema = self._debezium.envelopes.parsed(value, "the message")
        if payload["source"]["connector"] != TICDC:
            raise DecodeError("a message of another sender")
        layout = self._debezium.layout_of(event.schema, event.table, payload["op"])
        if layout is None:
            raise DecodeError("a table without a layout")
        if layout.handle is None:
            raise DecodeError("a key that names no columns")
        rows = {image: row for image in _IMAGES if (row := payload.get(image)) is not None}
        names = {"db": Hole.SCHEMA, "table": Hole.TABLE}
        source = {**payload["source"], **names, "ts_ms": Hole.NUMBER, "commit_ts": Hole.COMMIT_TS}
        images = {image: value_holes(image, row) for image, row in rows.items()}
        tree = {"payload": {**payload, "source": source, "ts_ms": Hole.NUMBER, **images}}
        if schema is not None:
            tree["schema"] = _of_any_table(schema)
        return Lesson(value, event, layout, rows, tree, guard=(HandleKeys(self._debezium.envelopes), layout.handle))


def _are_named(names: HandleKeys, wanted: list[str], keys: Sequence[bytes | None]) -> npt.NDArray[np.bool_]:
    """Tells which keys name the wanted columns."""
    from bridge.protocols.fast.compiled.functions import match_numbers

    found = np.zeros(len(keys), np.uint8)
    around = names.around_number(wanted) if len(keys) >= _MANY else None
    if around is not None:
        texts, (head, tail) = Texts.of(keys), (np.frombuffer(text + bytes(BEHIND), np.uint8) for text in around)
        sizes = map(len, around)
        match_numbers(texts.numbers(), texts.starts, texts.ends, len(keys), head, next(sizes), tail, next(sizes), found)
    for place in np.flatnonzero(found == 0).tolist():
        found[place] = _names(names, keys[place]) == wanted
    return found.astype(np.bool_)


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
