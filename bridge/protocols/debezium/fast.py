"""Tells what is the same in all messages of a kind, in the JSON of TiCDC and Debezium's connectors."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, Final

import numpy as np
import orjson
import pyarrow as pa

from bridge.events import Event, TransactionPart
from bridge.protocols.batch_decode import EVENT_FIELDS, event_columns
from bridge.protocols.debezium.avro.front import AvroFront
from bridge.protocols.debezium.avro.lots import AvroLots
from bridge.protocols.debezium.decoder import TICDC, UNAVAILABLE, DebeziumDecoder
from bridge.protocols.debezium.transactions import (
    IN_FILE,
    head_of_place,
    id_of,
    text_before_file_number,
    time_and_text,
)
from bridge.protocols.decoder import FAILURES, BatchResult, Contents, DecodeError, DecodeOptions, RowEvents
from bridge.protocols.fast.decoder import FastJsonDecoder, KindMarks, the_row
from bridge.protocols.fast.lessons import Hole, Lesson, Mixed, PlaceHole, WithKey, parts_of_place, value_holes
from bridge.protocols.fast.texts import Texts
from bridge.protocols.values.event_time import NUMBER_DIGITS, base_of_file, text_before_number

_IMAGES: Final = ("before", "after")
_KINDS: Final = KindMarks(b'{"versi', (b'"db":', b',"'), (b'table":', b',"'), (b'"op":"', b'"'))
"""The table is named in `source`, which begins with the connector's version."""
_FREE: Final = {str: Hole.TEXT, int: Hole.NUMBER}
_FREE_IN_SOURCE: Final = ("sequence", "ts_us", "ts_ns", "row", "thread", "query")
_FREE_IN_PAYLOAD: Final = ("ts_ms", "ts_us", "ts_ns")
_FREE_IN_TRANSACTION: Final = ("id", "total_order", "data_collection_order")
_WRAPPED: Final = {"schema", "payload"}
_MARK: Final = b'{"status":'
"""How a BEGIN or an END begins."""
_PAYLOAD: Final = b'"payload":'


class FastDebeziumDecoder(FastJsonDecoder):
    """Decodes Debezium's JSON; rows are read by their templates."""

    _reads_keys: ClassVar[bool] = True

    def __init__(self, options: DecodeOptions) -> None:
        self._debezium = DebeziumDecoder(options)
        super().__init__(self._debezium)
        self._tells_transactions = options.transactions
        self._front = AvroFront(options.schemas, self._debezium.envelopes) if options.schemas else None
        self._lots = AvroLots(self._front) if self._front else None

    def schemas_of(self, key: bytes | None, value: bytes | None) -> str | None:
        """Gives the texts of a message's schemas as JSON, as far as they can be had; None where there are none."""
        texts = self._front.texts(key, value) if self._front else {}
        return orjson.dumps(texts).decode() if texts else None

    def decode(self, key: bytes | None, value: bytes | None) -> list[Event]:
        """Does as the base says, with messages in Avro as well."""
        return super().decode(*(self._front.in_json(key, value) if self._front else (key, value)))

    def decode_batch(self, keys: Contents, values: Contents) -> BatchResult:
        """Does as the base says; and reads BEGINs and ENDs together where there is nothing else, as in their topic:
        one by one they took twice as long (measured)."""
        if self._tells_transactions and values and _MARK in (values[0] or b""):
            with suppress(*FAILURES, DecodeError):
                return BatchResult([_marks(values)], np.empty(0, np.int64))
        return super().decode_batch(keys, values)

    def _prepared(self, keys: Contents, values: Contents) -> tuple[Contents, Contents]:
        return self._lots.in_json(keys, values) if self._lots else (keys, values)

    def _kinds_of(self, values: Contents, texts: Texts) -> list[Hashable | None]:  # noqa: ARG002
        return _KINDS.kinds_of(texts)

    def _lesson(self, key: bytes | None, value: bytes) -> Lesson:
        event = the_row(self._debezium.parse(key, value))
        document = orjson.loads(value)
        is_wrapped = document.keys() <= _WRAPPED
        payload = document["payload"] if is_wrapped else document
        source = payload["source"]
        layout = self._debezium.layout
        if layout.handle is None:
            raise DecodeError("a key that names no columns")
        rows = {image: row for image in _IMAGES if (row := payload.get(image)) is not None}
        names, place = {"db": Hole.SCHEMA, "table": Hole.TABLE}, list[tuple[str, int]]()
        if source.get("connector") == TICDC:
            holes: dict[str, Any] = {"ts_ms": Hole.NUMBER, "commit_ts": Hole.COMMIT_TS}
            free: dict[str, Any] = {"ts_ms": Hole.NUMBER}
        else:
            _check_is_sure(value, source)
            parts = _place_among_transactions if self._tells_transactions else _place_in_binlog
            place, in_source, in_transaction = parts(event.place, source, payload.get("transaction"))
            is_whole_second = source.get("snapshot") == "incremental"
            holes = {
                **_free(source, _FREE_IN_SOURCE),
                "ts_ms": Hole.EVENT_SECOND if is_whole_second else Hole.EVENT_MS,
                **in_source,
            }
            if event.index:
                holes["row"] = PlaceHole(Hole.ROW_OF_EVENT, event.index - 2 * source["row"])
            free = dict[str, Any](_free(payload, _FREE_IN_PAYLOAD))
            if type(transaction := payload.get("transaction")) is dict:
                free["transaction"] = {**transaction, **_free(transaction, _FREE_IN_TRANSACTION), **in_transaction}
        images = {image: value_holes(image, row) for image, row in rows.items()}
        tree = {**payload, "source": {**source, **names, **holes}, **free, **images}
        if is_wrapped:
            tree = {**document, "payload": tree}
            if "fields" in (document.get("schema") or {}):  # not where it is only named (`avro.front`)
                tree["schema"] = _of_any_table(document["schema"])
        return Lesson(value, event, layout, rows, WithKey(_key_tree(key), tree), place=place, key=key)


def _marks(values: Contents) -> RowEvents:
    """Gives the events of BEGINs and ENDs with the first one's schema, or none; raises DecodeError or FAILURES."""
    first = values[0] or b""
    head = first[: first.index(_MARK)]
    if head and not (head.endswith(_PAYLOAD) and orjson.loads(first).keys() == _WRAPPED):
        raise DecodeError("no payload")
    marks, end = list[tuple[int, str]](), -1 if head else None
    for value in values:
        if value is None or not value.startswith(head) or (head and not value.endswith(b"}")):
            raise DecodeError("another schema")
        marks.append(time_and_text(orjson.loads(value[len(head) : end])))
    times, texts = zip(*marks, strict=True)
    fields_of_marks = zip(event_columns(TransactionPart(0, None)), EVENT_FIELDS, strict=True)
    columns = [pa.repeat(pa.scalar(content, field.type), len(values)) for content, field in fields_of_marks]
    for name, column in (("commit_ts", times), ("text", texts)):
        at = EVENT_FIELDS.get_field_index(name)
        columns[at] = pa.array(column, EVENT_FIELDS.field(at).type)
    return RowEvents(np.arange(len(values)), pa.RecordBatch.from_arrays(columns, schema=EVENT_FIELDS))


def _check_is_sure(value: bytes, source: Mapping[str, Any]) -> None:
    """Raises DecodeError for a message of the connector whose time or values plain decoding takes from elsewhere."""
    if any(placeholder.encode() in value for placeholder in UNAVAILABLE):
        raise DecodeError("a message with the placeholder of a value that is not available")
    if "commit_ts" in source or type(source.get("ts_ms")) is not int:
        raise DecodeError("a message without an event time of its own")


def _free(members: Mapping[str, Any], names: Iterable[str]) -> dict[str, Hole]:
    """Puts holes for what no event needs, where it is a string or an integer."""
    return {name: _FREE[type(members[name])] for name in names if type(members.get(name)) in _FREE}


Place = tuple[list[tuple[str, int]], dict[str, Any], dict[str, Any]]
"""The parts of a place (`Lesson.place`), and the holes for its numbers in `source` and in `transaction`."""


def _place_in_binlog(place: str | None, source: Mapping[str, Any], transaction: object) -> Place:
    """Gives the place that `place_in_binlog` makes; the number of the GTID comes first."""
    del transaction
    parts = parts_of_place(place)
    return parts, _place_holes(source, len(parts)), {}


def _place_among_transactions(place: str | None, source: Mapping[str, Any], transaction: object) -> Place:
    """Gives the place that `debezium.transactions` makes.  Raises DecodeError for an id that ends with no number."""
    base, block = base_of_file(source["file"]), transaction if type(transaction) is dict else None
    if place is None or base is None:
        raise DecodeError("a row without a place in the binlog")
    in_source = {
        **_free(source, ("gtid",)),
        "file": Mixed([base, PlaceHole(Hole.FILE_NUMBER, 0)]),
        "pos": PlaceHole(Hole.FILE_POSITION, 0),
        **({"row": PlaceHole(Hole.FILE_POSITION, 1)} if type(source.get("row")) is int else {}),
    }
    head = head_of_place(f"{source['db']}.{source['table']}", source, base[:-1])
    holes, id_head = dict[str, Any](), ""
    if block is not None:
        id_, id_head = block["id"], id_of(block["id"])[:-NUMBER_DIGITS]
        parts: list[str | PlaceHole] = [id_head, PlaceHole(Hole.COORDINATE, 3)]
        if (by_file := text_before_file_number(id_)) is not None:
            parts = [by_file, PlaceHole(Hole.FILE_NUMBER, 3), IN_FILE, PlaceHole(Hole.FILE_POSITION, 3)]
        elif text_before_number(id_) != id_head:
            raise DecodeError("the id of a transaction ends with no number")
        holes = {"id": Mixed(parts), "total_order": PlaceHole(Hole.FILE_POSITION, 2)}
    return [(head, 0), ("\n", 1), ("\n", 2), (f"\n{id_head}", 3)], in_source, holes


def _place_holes(source: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Puts holes for the numbers of a place of so many parts: that of the GTID comes first (`place_in_binlog`)."""
    file, gtid = source.get("file"), source.get("gtid")
    base = base_of_file(file) if type(file) is str else None
    if count == 0:
        return {} if base else _free(source, ("pos",))
    holes: dict[str, Any] = {}
    head = text_before_number(gtid) if type(gtid) is str else None
    if head is not None:
        holes["gtid"] = Mixed([head, PlaceHole(Hole.COORDINATE, 0)])
    if base is not None and source["pos"] >= 0:
        holes["file"] = Mixed([base, PlaceHole(Hole.FILE_NUMBER, len(holes))])
        holes["pos"] = PlaceHole(Hole.FILE_POSITION, len(holes) - 1)
    return holes


def _key_tree(key: bytes | None) -> Any:
    """Puts holes for the values of a key; its names tell the table's key."""
    if not key:
        return None
    document = orjson.loads(key)
    if document.keys() <= _WRAPPED and "payload" in document:
        tree = {**document, "payload": _scalars(document["payload"])}
        if type(document.get("schema")) is dict:
            tree["schema"] = _unnamed(document["schema"])
        return tree
    return _scalars(document)


def _scalars(row: Any) -> Any:
    return dict.fromkeys(row, Hole.SCALAR) if type(row) is dict else row


def _of_any_table(schema: dict[str, Any]) -> dict[str, Any]:
    """Puts holes where a schema names the message and the row: these names hold only the table's name."""
    fields = [_unnamed(field) if field["field"] in _IMAGES else field for field in schema["fields"]]
    return _unnamed({**schema, "fields": fields})


def _unnamed(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "name": Hole.TEXT} if type(schema.get("name")) is str else schema
