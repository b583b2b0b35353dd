"""Tells what is the same in all messages of a kind, in TiCDC's Canal-JSON with the TiDB extension."""

from __future__ import annotations

from typing import Final

from bridge.events import Kind
from bridge.protocols.canal.decoder import CanalJsonDecoder, canal_message
from bridge.protocols.decoder import DecodeError, DecodeOptions
from bridge.protocols.fast.decoder import FastJsonDecoder, the_row
from bridge.protocols.fast.message_shape import Hole, Lesson, Part, value_holes

_TICDC: Final = b'{"id":0,'
"""How TiCDC's messages begin."""
_KIND_END: Final = b',"es":'
"""What comes before it holds schema, table and type, and nothing that differs between rows."""


class FastCanalDecoder(FastJsonDecoder):
    """Decodes Canal-JSON; TiCDC's rows are read by their forms."""

    def __init__(self, options: DecodeOptions) -> None:
        self._canal = CanalJsonDecoder(options)
        super().__init__(self._canal)

    def _kind_of(self, value: bytes) -> bytes | None:
        return value[: value.find(_KIND_END)] if value.startswith(_TICDC) else None

    def _lesson(self, key: bytes | None, value: bytes) -> Lesson:  # noqa: ARG002
        """Makes the lesson.  mysqlType is the same in all, in random order; the codes in sqlType depend on the values,
        and are not read (golden)."""
        message = canal_message(value)
        event = the_row(self._canal.events_of(message))
        layout = self._canal.layout_of(message["database"], message["table"], message["type"])
        if layout is None or "commitTs" not in message["_tidb"]:
            raise DecodeError("a message without the TiDB extension")
        image = "before" if event.kind is Kind.DELETE else "after"
        rows = {image: message["data"][0]}
        tree = {
            **message,
            "database": Hole.SCHEMA,
            "table": Hole.TABLE,
            "es": Hole.NUMBER,
            "ts": Hole.NUMBER,
            "sqlType": Part(message["sqlType"], is_same=False),
            "mysqlType": Part(layout.shape, is_same=True),
            "data": [value_holes(image, rows[image])],
            "_tidb": {"commitTs": Hole.COMMIT_TS},
        }
        if event.kind is Kind.UPDATE and message.get("old"):
            rows["before"] = message["old"][0]
            tree["old"] = [value_holes("before", rows["before"])]
        return Lesson(value, event, layout, rows, tree)
