"""Tells what is the same in all messages of a kind, in CKafka's official format 1."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from bridge.protocols.canal.decoder import canal_message
from bridge.protocols.ckafka.decoder import CkafkaDecoder
from bridge.protocols.decoder import Contents, DecodeError, DecodeOptions
from bridge.protocols.fast.decoder import FastJsonDecoder, the_row
from bridge.protocols.fast.lessons import Hole, Lesson, value_holes
from bridge.protocols.fast.texts import Texts

_IMAGES: Final = {"before": "OLD_VALUES", "after": "NEW_VALUES"}
_IN_BINLOG: Final = ("BINLOG_NAME", "BINLOG_POS", "EVENT_SERVER_ID", "GLOBAL_ID", "GROUP_ID")
_PLACES: Final = {str: Hole.TEXT, int: Hole.NUMBER}
_TYPE: Final = slice(-3, -2)
"""The type in a message that ends with it, as in `"TYPE":"I"}`."""


class FastCkafkaDecoder(FastJsonDecoder):
    """Decodes official format 1; its rows are read by their templates."""

    def __init__(self, options: DecodeOptions) -> None:
        self._ckafka = CkafkaDecoder(options)
        super().__init__(self._ckafka)

    def _kinds_of(self, values: Contents, texts: Texts) -> list[Hashable | None]:  # noqa: ARG002
        return [_kind_of(value) if value else None for value in values]

    def _lesson(self, key: bytes | None, value: bytes) -> Lesson:  # noqa: ARG002
        message = canal_message(value)
        if "TYPE" not in message:
            raise DecodeError("a message in Canal's form")
        event = the_row(self._ckafka.events_of(message))
        rows = {image: row for image, name in _IMAGES.items() if (row := message.get(name)) is not None}
        are_objects = all(type(row) is dict for row in rows.values()) and message.keys() >= set(_IMAGES.values())
        if not (are_objects and all(type(text) in {str, type(None)} for row in rows.values() for text in row.values())):
            raise DecodeError("a row that is no object of texts")
        places = {name: _PLACES[type(message[name])] for name in _IN_BINLOG if type(message[name]) in _PLACES}
        images = {_IMAGES[image]: value_holes(image, row) for image, row in rows.items()}
        names = {"DATABASE": Hole.SCHEMA, "TABLE": Hole.TABLE}
        tree = {**message, **names, **places, "TIME": Hole.MOMENT, **images}
        return Lesson(value, event, self._ckafka.layout, rows, tree, moment=self._ckafka.event_ts)


def _kind_of(value: bytes) -> bytes:
    table = value.rfind(b',"TABLE":')
    schema = value[value.find(b'"DATABASE":') : value.find(b',"EVENT_SERVER_ID":')]
    return schema + value[table : value.find(b',"TIME":', table)] + value[_TYPE]
