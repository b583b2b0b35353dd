"""Formats the records of `bridge inspect` as a table: a line for each, and the bytes at which decoding failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from bridge.commands.inspect import Around, Record, printable
from bridge.events import Event, Kind
from bridge.foreign_text import visible

_WIDTHS: Final = (18, 13, 18, 24, 20)
_HEADINGS: Final = ("position", "kind", "commit ts", "time (UTC)", "table", "content")
_PLAIN_KINDS: Final = ("boundary", "schema-change")
_SHOWN: Final = 60
_UNTYPED: Final = "~"
_BYTES_A_LINE: Final = 16


def table_lines(records: Iterable[Record]) -> Iterator[str]:
    """Yields the lines of the table, as the records come.

    Values of more than 60 characters are cut off (--json prints them whole).  A line with protocol and variant stands
    above the first message that has them.  Boundaries and schema changes show less of the variant than rows do, so they
    start a new line of it only when the protocol changes.  So does a line that explains the mark of untyped values.
    """
    yield _line(_HEADINGS)
    shown, is_explained = ("", ""), False
    for record in records:
        sender = (record.protocol, record.variant)
        if sender != shown and (record.kind not in _PLAIN_KINDS or sender[0] != shown[0]):
            shown = sender
            yield f"-- {', '.join(sender)}"
        if record.untyped and not is_explained:
            is_explained = True
            yield f"-- {_UNTYPED} marks a value as the message has it; the type of the target's column makes it exact"
        yield _line(_cells(record))
        if record.around:
            yield from _dump(record.around)
    if not any(shown):
        yield "-- nothing to show: no message was read, or each is of a table that --filter leaves out"


def _line(cells: Iterable[str]) -> str:
    *first, last = cells
    padded = (f"{cell:<{width}}" for cell, width in zip(first, _WIDTHS, strict=True))
    return "  ".join((*padded, last)).rstrip()


def _cells(record: Record) -> tuple[str, ...]:
    event = record.event
    table = ".".join(name for name in (event.schema, event.table) if name) if event else ""
    content = "; ".join(part for part in (_content(record), _origin(record)) if part)
    first = (str(record.position), record.kind, _commit_ts(event), record.time or "")
    return tuple(map(visible, (*first, table, content)))


def _commit_ts(event: Event | None) -> str:
    if event is None or event.kind >= Kind.BAD:
        return ""
    return "event time" if event.by_time else str(event.commit_ts)


def _content(record: Record) -> str:
    event = record.event
    match event and event.kind:
        case None:
            return "the message holds no event"
        case Kind.BAD if event:
            return f"{event.columns}: {event.text}"
        case Kind.SCHEMA_CHANGE | Kind.LEFT_OUT if event:
            return event.text or ""
        case Kind.BOUNDARY:
            return ""
    return _row(record, event) if event else ""


def _origin(record: Record) -> str:
    return ", ".join(value if name == "note" else f"{name} {value}" for name, value in record.origin.items())


def _row(record: Record, event: Event) -> str:
    """Returns the key, then the other columns; of an update only those that changed, from old to new."""
    key, before, after = (
        {name: _marked(name, literal, record) for name, literal in (row or {}).items()}
        for row in (record.key, record.row(event.before), record.row(event.after))
    )
    named = f"key ({_assigned(key)})" if key else "no key named"
    if event.kind is Kind.UPDATE and before and after:
        changed = (
            f"{name}={_cut(before[name])} -> {_cut(after[name])}" for name in after if before[name] != after[name]
        )
        rest = ", ".join(changed) or "nothing changed"
    else:
        rest = _assigned({name: literal for name, literal in (before or after).items() if name not in key})
    return ", ".join(part for part in (named, event.text, rest) if part)


def _assigned(row: dict[str, str]) -> str:
    return ", ".join(f"{name}={_cut(literal)}" for name, literal in row.items())


def _marked(name: str, literal: str, record: Record) -> str:
    return f"{_UNTYPED}{literal}" if name in record.untyped and literal != "NULL" else literal


def _cut(literal: str) -> str:
    return literal if len(literal) <= _SHOWN else f"{literal[:_SHOWN]}... ({len(literal)} characters)"


def _dump(around: Around) -> Iterator[str]:
    """Yields offset, hex and text of the bytes, with a mark below the byte at which decoding failed."""
    for start in range(0, len(around.content), _BYTES_A_LINE):
        line = around.content[start : start + _BYTES_A_LINE]
        first = around.first + start
        yield f"    {first:08x}  {line.hex(' '):<{3 * _BYTES_A_LINE - 1}}  |{printable(line)}|"
        if around.at is not None and first <= around.at < first + _BYTES_A_LINE:
            yield f"    {'':8}  {'':{3 * (around.at - first)}}^^ byte {around.at}"
