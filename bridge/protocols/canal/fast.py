"""Tells what is the same in all messages of a kind, in Canal-JSON: TiCDC's and that of Canal's own server."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final

from bridge.events import Kind
from bridge.protocols.canal.decoder import CanalJsonDecoder, canal_message, is_of_canal
from bridge.protocols.decoder import Contents, DecodeError, DecodeOptions
from bridge.protocols.fast.decoder import FastJsonDecoder, KindMarks, the_row
from bridge.protocols.fast.lessons import Hole, Lesson, Members, Mixed, OldRow, PlaceHole, parts_of_place, value_holes
from bridge.protocols.fast.texts import Texts
from bridge.protocols.values.event_time import parts_of_set

_TICDC: Final = b'{"id":0,'
"""How TiCDC's messages begin."""
_KIND_END: Final = b',"es":'
"""What comes before it holds schema, table and type, and nothing that differs between rows."""
_OFFICIAL: Final = KindMarks(b'}],"dat', (b'abase":', b',"'), (b'},"tabl', b',"'), (b'"type":', b'"}'))
"""Canal's own server writes the members in the order of their names."""


class FastCanalDecoder(FastJsonDecoder):
    """Decodes Canal-JSON; rows are read by their templates."""

    def __init__(self, options: DecodeOptions) -> None:
        self._canal = CanalJsonDecoder(options)
        super().__init__(self._canal)

    def _kinds_of(self, values: Contents, texts: Texts) -> list[Hashable | None]:
        kinds: list[Hashable | None] = [
            value[: value.find(_KIND_END)] if value and value.startswith(_TICDC) else None for value in values
        ]
        if None not in kinds:
            return kinds
        return [kind or official for kind, official in zip(kinds, _OFFICIAL.kinds_of(texts), strict=True)]

    def _lesson(self, key: bytes | None, value: bytes) -> Lesson:  # noqa: ARG002
        message = canal_message(value)
        event = the_row(self._canal.events_of(message))
        layout = self._canal.layout
        image = "before" if event.kind is Kind.DELETE else "after"
        rows = {image: message["data"][0]}
        tree = {
            **message,
            "database": Hole.SCHEMA,
            "table": Hole.TABLE,
            "es": Hole.NUMBER if "_tidb" in message else Hole.EVENT_MS,
            "ts": Hole.NUMBER,
            "data": [value_holes(image, rows[image])],
        }
        old = message.get("old") if event.kind is Kind.UPDATE else None
        if is_of_canal(message):
            tree |= _place_holes(message, event.place)
            if old:
                tree["old"] = [OldRow(layout.names)]
            return Lesson(value, event, layout, rows, tree, place=parts_of_place(event.place))
        # mysqlType is the same in all, in random order; the codes in sqlType depend on the values, and are not read
        # (golden)
        tree |= {"sqlType": Hole.SCALARS, "mysqlType": Members(layout.types)}
        if "_tidb" in message:
            tree["_tidb"] = {"commitTs": Hole.COMMIT_TS}
        if old:
            rows["before"] = old[0]
            tree["old"] = [value_holes("before", rows["before"])]
        return Lesson(value, event, layout, rows, tree)


def _place_holes(message: Mapping[str, Any], place: str | None) -> dict[str, Any]:
    """Puts holes for the last number of each GTID; the names of coordinates are in order in a place.  Without GTIDs for
    the numbers of the sending."""
    if not message.get("gtid"):
        if place is None:
            raise DecodeError("a message that does not tell when it was sent")
        return {"ts": PlaceHole(Hole.SENT_MS, 0), "id": PlaceHole(Hole.BATCH, 0)}
    if place is None:
        return {"id": Hole.NUMBER}
    parts = parts_of_set(message["gtid"])
    if parts is None:
        raise DecodeError("a set of GTIDs with gaps")
    names = sorted(name for _, name in parts)
    gtids = Mixed(piece for text, name in parts for piece in (text, PlaceHole(Hole.COORDINATE, names.index(name))))
    return {"id": Hole.NUMBER, "gtid": gtids}
