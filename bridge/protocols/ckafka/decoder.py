"""Tencent CKafka's "official format 1" for MySQL: rows with strings for values and no types, schema changes in Canal's
form; source: "Canal Format of MySQL Subscription Message".

A row's place in the binlog (BINLOG_NAME, BINLOG_POS) ascends within a partition, so the partition's order is that of
the binlog, whatever its files are called.  There is no commit_ts: rows go by TIME, which is local, schema changes by
`es`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from bridge.events import Event, Kind
from bridge.protocols.canal.decoder import CanalJsonDecoder, canal_message
from bridge.protocols.ckafka.raw import ckafka_form
from bridge.protocols.decoder import MAX_CACHED, DecodeError, DecodeOptions, shown
from bridge.protocols.fast.learner import JsonDecoder
from bridge.protocols.fast.message_shape import Hole, Lesson, cells
from bridge.protocols.values import literals
from bridge.protocols.values.event_time import local_event_ts
from bridge.protocols.values.row_image import Layout, image_before, image_of, make_layout
from bridge.protocols.values.untyped import with_forms

_KINDS: Final = {"I": Kind.INSERT, "U": Kind.UPDATE, "D": Kind.DELETE}
_IMAGES: Final = {"before": "OLD_VALUES", "after": "NEW_VALUES"}
_IN_BINLOG: Final = ("BINLOG_NAME", "BINLOG_POS", "EVENT_SERVER_ID", "GLOBAL_ID", "GROUP_ID")
_PLACES: Final = {str: Hole.TEXT, int: Hole.NUMBER}
_TYPE: Final = slice(-3, -2)
"""Of a message that ends with its type, as in `"TYPE":"I"}`."""
_LABEL: Final = "a value without a type"

_new_event = tuple.__new__
"""Half the time of Event(...)."""


class _Slot:
    """What is known of one table."""

    __slots__ = ("columns", "layout", "schema", "table", "wanted")

    def __init__(self, schema: str, table: str, wanted: bool) -> None:
        self.schema, self.table, self.wanted = schema, table, wanted
        self.layout: Layout | None = None
        self.columns = ""


class CkafkaDecoder(JsonDecoder):
    """Decodes official format 1; messages in Canal's form are left to Canal's decoder."""

    protocols: ClassVar[tuple[str, ...]] = ("ckafka", "canal-json")

    def __init__(self, options: DecodeOptions) -> None:
        super().__init__(options)
        self._canal = CanalJsonDecoder(options)
        self._forms = [ckafka_form(options.timezone, options.ckafka_binary)]
        self._event_ts = local_event_ts(options.timezone)
        self._slots: dict[tuple[str, str], _Slot] = {}

    def usual_events(self, key: bytes | None, value: bytes | None) -> Sequence[Event] | None:  # noqa: ARG002
        """One row; see `GuardedDecoder.usual_events`."""
        if not value or not self._is_plain:
            return None
        event = self._templates.event(self._kind_of(value), value.decode())
        return None if event is None else (event,)

    def _events(self, key: bytes | None, value: bytes | None) -> list[Event]:  # noqa: ARG002
        message = canal_message(value)
        if "TYPE" not in message:
            return self._canal.events_of(message)
        slot = self._slots.get((message["DATABASE"], message["TABLE"]))
        if slot is None:
            slot = self._new_slot(message["DATABASE"], message["TABLE"])
        if not slot.wanted:
            return self._left_out(slot.schema, slot.table)
        event = self._row(message, slot)
        if value and slot.layout is not None:
            lesson = partial(_lesson, value, message, event, slot.layout, self._event_ts)
            self._templates.missed(self._kind_of(value), slot.layout, lesson)
        return [event]

    def _kind_of(self, value: bytes) -> bytes:
        """What tells table and type, where a message looks as ckafka writes it."""
        table = value.rfind(b',"TABLE":')
        schema = value[value.find(b'"DATABASE":') : value.find(b',"EVENT_SERVER_ID":')]
        return schema + value[table : value.find(b',"TIME":', table)] + value[_TYPE]

    def _new_slot(self, schema: str, table: str) -> _Slot:
        if len(self._slots) >= MAX_CACHED:
            self._slots.clear()
        slot = self._slots[schema, table] = _Slot(schema, table, self._wanted(schema, table))
        return slot

    def _row(self, message: dict[str, Any], slot: _Slot) -> Event:
        kind = _KINDS.get(message["TYPE"])
        if kind is None:
            raise DecodeError(f"TYPE is {shown(message['TYPE'])}, not I, U or D")
        new, old = message["NEW_VALUES"], message["OLD_VALUES"]
        if (new is None) != (kind is Kind.DELETE) or (old is None) != (kind is Kind.INSERT):
            raise DecodeError(f"a change of TYPE {shown(message['TYPE'])} has the rows of another")
        row, layout = old if new is None else new, slot.layout
        if layout is None or type(row) is not dict or layout.names != tuple(row):
            layout = slot.layout = _layout(row)
            slot.columns = with_forms(layout.columns, self._forms)
        after: str | None = image_of(layout, row)
        before: str | None = None
        if new is None:
            before, after = after, None
        elif old is not None:
            before = image_before(layout, old, new)
        commit_ts = self._event_ts(message["TIME"])
        fields = (kind, commit_ts, 0, slot.schema, slot.table, slot.columns, "", before, after, None, True)
        return _new_event(Event, fields)


def _lesson(
    value: bytes, message: dict[str, Any], event: Event, layout: Layout, moment: Callable[[str], int]
) -> Lesson:
    """What templates learn from a row."""
    rows = {image: row for image, name in _IMAGES.items() if (row := message[name]) is not None}
    places = {name: _PLACES[type(message[name])] for name in _IN_BINLOG if type(message[name]) in _PLACES}
    images = {_IMAGES[image]: cells(image, row) for image, row in rows.items()}
    names = {"DATABASE": Hole.SCHEMA, "TABLE": Hole.TABLE}
    tree = {**message, **names, **places, "TIME": Hole.MOMENT, **images}
    return Lesson(value, event, layout, rows, tree, moment=moment)


def _layout(row: object) -> Layout:
    if not isinstance(row, dict):
        raise DecodeError(f"a row is {shown(row)}, not an object")
    if not row:
        raise DecodeError("a row without columns")
    return make_layout(None, None, [(name, _LABEL, literals.text) for name in row])
