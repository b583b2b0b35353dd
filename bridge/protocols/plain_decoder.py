"""The base of the plain path, where failures become `DecodeError`."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from bridge.events import Code, Event, LeftOut
from bridge.protocols.decoder import (
    FAILURES,
    MAX_CACHED,
    DecodeError,
    DecodeOptions,
    Remembered,
    check_name,
    explain,
)
from bridge.protocols.values.row_image import Layout

_CUT_ROW: Final = (
    "the message does not hold the whole row: it was too large for the topic, and large-message-handle has cut it to"
    " its key or stored it elsewhere; give the upstream with --upstream, so that the row can be read back"
)


class PlainDecoder:
    """The plain path of a protocol.  `parse` may raise any of FAILURES; `decode` turns every failure into a
    `DecodeError`.

    layouts: of the last row of each kind of change of each table, by what the protocol tells these by; None before it.
    layout: of the last row.
    """

    protocols: ClassVar[tuple[str, ...]] = ()
    layout: Layout

    def __init__(self, options: DecodeOptions) -> None:
        self._accepts, self._takes_cut_rows = options.accepts, options.cut_rows
        self._reserved, self._tells_unwanted = options.reserved, options.tells_unwanted
        self.row_rules, self.ms_ahead = options.row_rules, options.ms_ahead
        self.layouts = Remembered[tuple[Any, ...], Layout | None](lambda _: None)
        self._wanted = Remembered[tuple[str, str], bool](lambda name: self.is_wanted(*name))
        self._reports: set[tuple[str, str]] = set()
        """Unwanted tables that were reported already."""

    def decode(self, key: bytes | None, value: bytes | None) -> list[Event]:
        """Gives the events of one message, all or none; raises nothing but `DecodeError`."""
        try:
            events = self.parse(key, value)
        except FAILURES as failure:
            raise DecodeError(f"malformed message: {explain(failure)}") from failure
        for event in events:
            if type(event) is LeftOut and event.reason is None:
                self._reports.add((event.schema, event.table))
        return events

    def parse(self, key: bytes | None, value: bytes | None) -> list[Event]:
        """Gives the events of one message, all or none; raises DecodeError, or any of FAILURES."""
        raise NotImplementedError

    def _check_cut(self, cut: Code | None) -> None:
        """Raises DecodeError for a row that is cut to its key, unless such rows are wanted."""
        if cut and not self._takes_cut_rows:
            raise DecodeError(_CUT_ROW, cut)

    def is_wanted(self, schema: str, table: str) -> bool:
        """Tells whether rows of a table are wanted.  Raises DecodeError for names that no table can have; no later step
        checks names again."""
        check_name(schema, "schema")
        check_name(table, "table")
        return self._is_accepted(schema, table) and not self._reserved.why(schema)

    def _is_accepted(self, schema: str, table: str) -> bool:
        return self._accepts is None or self._accepts(schema, table)

    def _left_out(self, schema: str, table: str, index: int = 0) -> list[Event]:
        """Gives the event for a row of an unwanted table.

        Every row of a reserved schema has one.  Of another table only the first row that `decode` gives has one, if
        `tells_unwanted`.
        """
        if (schema, table) in self._reports:
            return []
        why = self._reserved.why(schema)
        if not (why and self._is_accepted(schema, table)):
            why = ""
            if len(self._reports) >= MAX_CACHED:
                self._reports.clear()
            if not self._tells_unwanted:
                self._reports.add((schema, table))
                return []
        return [LeftOut(schema, table, why or None, index)]
