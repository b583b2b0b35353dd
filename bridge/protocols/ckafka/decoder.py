"""Decodes Tencent CKafka's "official format 1" for MySQL: rows whose values are strings without types, schema changes
in Canal's form; source: "Canal Format of MySQL Subscription Message".

The description says that rows are "in JSON format", which its samples show as objects of strings.  A row may also be
the text of such an object, numbers may be JSON numbers, and a row that is null may be missing.

The position of rows in the binlog (BINLOG_NAME, BINLOG_POS) ascends within a partition, so a partition has the order of
the binlog, whatever the binlog's files are called.  There is no commit_ts: the event time of rows is TIME, a local
time, and that of schema changes is `es`.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar, Final

import orjson

from bridge.events import Event, Kind, RowChange
from bridge.protocols.canal.decoder import CanalJsonDecoder, canal_message
from bridge.protocols.ckafka.raw import ckafka_form
from bridge.protocols.decoder import DecodeError, DecodeOptions, excerpt
from bridge.protocols.plain_decoder import PlainDecoder
from bridge.protocols.values import literals
from bridge.protocols.values.column_types import Column
from bridge.protocols.values.event_time import local_event_ts
from bridge.protocols.values.json_message import decompressed
from bridge.protocols.values.row_image import Layout, image_before, image_of, make_layout, new_event

_ROWS: Final = ("NEW_VALUES", "OLD_VALUES")
_KINDS: Final = {"I": Kind.INSERT, "U": Kind.UPDATE, "D": Kind.DELETE}


class CkafkaDecoder(PlainDecoder):
    """Decodes official format 1.  Canal's decoder reads the messages in Canal's form."""

    protocols: ClassVar[tuple[str, ...]] = ("ckafka", "canal-json")

    def __init__(self, options: DecodeOptions) -> None:
        super().__init__(options)
        self._canal = CanalJsonDecoder(options)
        self._column = Column(
            "a value without a type", literals.text, ckafka_form(options.timezone, options.ckafka_binary)
        )
        self.event_ts = local_event_ts(options.timezone)

    def parse(self, key: bytes | None, value: bytes | None) -> list[Event]:  # noqa: ARG002
        """Gives the events of one message."""
        message = canal_message(value)
        try:
            return self.events_of(message)
        except DecodeError:
            if value is None or not any(_has_other_form(message.get(name)) for name in _ROWS):
                raise
            return self.events_of(_in_usual_form(value))

    def events_of(self, message: dict[str, Any]) -> list[Event]:
        """Gives the events of a message that is parsed as JSON already."""
        if "TYPE" not in message:  # of its `id` and `ts`, rows have nothing to compare with
            return self._canal.events_of(message | dict.fromkeys(message.keys() & {"gtid", "ts"}))
        name = message["DATABASE"], message["TABLE"]
        return [self._row(message, *name)] if self._wanted[name] else self._left_out(*name)

    def _row(self, message: dict[str, Any], schema: str, table: str) -> RowChange:
        kind = _KINDS.get(message["TYPE"])
        if kind is None:
            raise DecodeError(f"TYPE is {excerpt(message['TYPE'])}, not I, U or D")
        new: Any = message.get("NEW_VALUES")
        old: Any = message.get("OLD_VALUES")
        is_wrong = old is None if kind is Kind.DELETE else kind is Kind.INSERT and old is not None
        if (new is None) != (kind is Kind.DELETE) or is_wrong:
            raise DecodeError(f"a change of TYPE {excerpt(message['TYPE'])} has the rows of another TYPE")
        row, layout = old if new is None else new, self.layouts[schema, table]
        if layout is None or type(row) is not dict or layout.names != tuple(row):
            layout = self.layouts[schema, table] = self._layout(row)
        self.layout = layout
        after: str | None = image_of(layout, row)
        before: str | None = None
        if new is None:
            before, after = after, None
        elif old is not None:
            before = image_before(layout, old, new)
        commit_ts = self.event_ts(message["TIME"])
        fields = (kind, commit_ts, 0, schema, table, layout.columns, "", before, after, None, True, None)
        return new_event(RowChange, fields)

    def _layout(self, row: object) -> Layout:
        if not isinstance(row, dict):
            raise DecodeError(f"a row is {excerpt(row)}, not an object")
        if not row:
            raise DecodeError("a row without columns")
        return make_layout(None, None, dict.fromkeys(row, self._column))


def _has_other_form(row: object) -> bool:
    """Tells whether a row is a text, or holds numbers or booleans."""
    return type(row) is str or (type(row) is dict and any(type(value) in {bool, int, float} for value in row.values()))


def _in_usual_form(value: bytes) -> dict[str, Any]:
    """Gives a message whose rows hold strings and nulls: numbers with all their digits, booleans as 1 and 0."""
    message: dict[str, Any] = _exact(decompressed(value))
    for name in _ROWS:
        row = message.get(name)
        if type(row) is str:
            row = _exact(row) if row else None
        if type(row) is dict:
            row = {column: "01"[value] if type(value) is bool else value for column, value in row.items()}
        message[name] = row
    return message


def _exact(text: str | bytes) -> Any:
    """Parses JSON; numbers become their texts."""
    try:
        orjson.loads(text)  # which is stricter
        return json.loads(text, parse_float=str, parse_int=str)
    except ValueError as failure:
        raise DecodeError(f"a row is a text that is not JSON: {failure}") from failure
