"""Decodes many messages to Arrow tables of events, by the same function on executors and on the driver.

Applies the rules for row changes to decoded events, table by table.

Lays events into the columns of EVENT_SCHEMA, and reads them back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bridge.errors import BridgeError
from bridge.events import CLASH, COLUMNS, EVENT_SCHEMA, Event, Kind, LeftOut, Position, RowChange
from bridge.filters.routes import Routes, RowRules
from bridge.model import TableName
from bridge.protocols.decode import decode_message, highest_ts, numbers_above
from bridge.protocols.decoder import MAX_COMMIT_TS, Decoder, RowEvents
from bridge.protocols.fast.texts import Numbers

EVENT_FIELDS: Final = pa.schema(list(EVENT_SCHEMA)[len(Position._fields) :])
"""The columns of an event alone."""
_NAMES: Final = EVENT_FIELDS.names
_EMPTY: Final = (None, 0, 0, "", "", None, None, None, None, None, False, None)
_PLACES = {
    record: itemgetter(*((*fields, *_NAMES).index(name) for name in _NAMES)) for record, fields in COLUMNS.items()
}
"""Where the columns of EVENT_FIELDS are in an event with _EMPTY behind it."""
_RECORDS: Final = {record._field_defaults.get("kind"): record for record in COLUMNS}


def event_columns(event: Event) -> tuple[Any, ...]:
    """Gives an event as the columns of EVENT_FIELDS."""
    columns: tuple[Any, ...] = _PLACES[type(event)](event + _EMPTY)
    return columns


def record_batch(events: Iterable[Event]) -> pa.RecordBatch:
    """Makes columns of events (EVENT_FIELDS); those of a row change are its fields."""
    rows = [event if type(event) is RowChange else event_columns(event) for event in events]
    return pa.RecordBatch.from_arrays(_arrays(rows, EVENT_FIELDS), schema=EVENT_FIELDS)


def events_table(placed: Iterable[tuple[Position, Event]]) -> pa.Table:
    """Makes a table of events with the positions of their messages (EVENT_SCHEMA)."""
    rows = [(*position, *event_columns(event)) for position, event in placed]
    return pa.Table.from_arrays(_arrays(rows, EVENT_SCHEMA), schema=EVENT_SCHEMA)


def _arrays(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> list[pa.Array]:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]


def events_of(columns: pa.Table | pa.RecordBatch) -> Iterator[Event]:
    """Reads events (EVENT_FIELDS, and maybe more)."""
    kinds, *columns_of_fields = (columns[name].to_pylist() for name in _NAMES)
    for kind, *fields in zip(map(Kind, kinds), *columns_of_fields, strict=True):
        record = _RECORDS.get(kind, RowChange)
        row = dict(zip(_NAMES, (kind, *fields), strict=True))
        yield record(*(row[name] for name in COLUMNS[record]))


def placed_events(events: pa.Table) -> Iterator[tuple[Position, Event]]:
    """Reads events with the positions of their messages (EVENT_SCHEMA)."""
    return zip(map(Position, *(events[name].to_pylist() for name in Position._fields)), events_of(events), strict=True)


def ruled(events: pa.Table, rules: RowRules) -> pa.Table:
    """Applies the rules to events (EVENT_SCHEMA, in any order)."""
    return routed(without_ignored(events, rules.ignored_kinds, keeps_count=rules.keeps_count), rules.routes)


def without_ignored(
    events: pa.Table, ignored_kinds: Callable[[str, str], Collection[Kind]], *, keeps_count: bool = False
) -> pa.Table:
    """Leaves out row changes of events (EVENT_SCHEMA, in any order).  ignored_kinds: gives the kinds that are left out
    of a table.  keeps_count: they become rows that are not replicated."""
    names, numbers = _tables(events)
    ignored = [ignored_kinds(*name) for name in names]
    if not any(ignored):
        return events
    kinds = events["kind"].to_numpy()
    stays = np.ones(len(kinds), np.bool_)
    for number, kinds_of_table in enumerate(ignored):
        stays &= ~((numbers == number) & np.isin(kinds, [int(kind) for kind in kinds_of_table]))
    if keeps_count:
        at = EVENT_SCHEMA.get_field_index("kind")
        new_kinds = pa.array(np.where(stays, kinds, int(Kind.TRANSACTION)), pa.int8())
        return events.set_column(at, EVENT_SCHEMA.field(at), new_kinds)
    return events.filter(pa.array(stays))


def routed(events: pa.Table, routes: Routes) -> pa.Table:
    """Gives rows (EVENT_SCHEMA) the names of their tables on the target; those of merged tables name their shard.

    Of a table that shares its target with another one, adds an event that stops the bridge before it writes any of
    these events.
    """
    names, numbers = _tables(events) if routes else ([], np.empty(0))
    targets = list(map(routes.target, names))
    alike = _spelled_alike(names, targets, routes)
    reasons = [routes.conflict(name) or alike.get(name, "") for name in names]
    clashes = [_clash(events, numbers == n, names[n], why) for n, why in enumerate(reasons) if why]
    if targets == names and not clashes and not any(map(routes.merges, names)):
        return events
    is_row, of_row = pa.array(numbers >= 0), pa.array(np.maximum(numbers, 0))
    for field, parts in (("schema", [name.schema for name in targets]), ("table", [name.table for name in targets])):
        at = EVENT_SCHEMA.get_field_index(field)
        names_of_rows = pc.if_else(is_row, pa.array(parts).take(of_row), events[field])
        events = events.set_column(at, EVENT_SCHEMA.field(at), names_of_rows)
    events = _with_shards(events, [str(n) if routes.merges(n) else None for n in names], is_row, of_row)
    return pa.concat_tables([events, *clashes])


def _spelled_alike(names: Sequence[TableName], targets: Sequence[TableName], routes: Routes) -> dict[TableName, str]:
    """Tells of tables with one target why they clash: routes do not look at case, so that their names may differ in it.
    Only what comes together is seen."""
    firsts: dict[TableName, TableName] = {}
    pairs = [(name, firsts.setdefault(target, name), target) for name, target in zip(names, targets, strict=True)]
    return {
        name: f"{first} and {name} would both be written to {target}: a route does not tell names apart by case"
        for name, first, target in pairs
        if first != name and not routes.merges(name)
    }


def _with_shards(events: pa.Table, shards: list[str | None], is_row: pa.Array, of_row: pa.Array) -> pa.Table:
    """Names the shard in each row of a merged table; one that says already why its images are cut keeps that."""
    if not any(shards):
        return events
    at = EVENT_SCHEMA.get_field_index("text")
    of_shard = pa.array(shards, pa.string()).take(of_row)
    shard_names = pc.coalesce(events["text"], pc.if_else(is_row, of_shard, pa.scalar(None, pa.string())))
    return events.set_column(at, EVENT_SCHEMA.field(at), shard_names)


def _clash(events: pa.Table, mask: npt.NDArray[np.bool_], name: TableName, why: str) -> pa.Table:
    [(position, _)] = placed_events(events.slice(int(np.argmax(mask)), 1))
    return events_table([(position, LeftOut(*name, why, mark=CLASH))])


def ruled_row(row: RowChange, rules: RowRules) -> RowChange | None:
    """Applies the rules to one row change; None when it is left out."""
    if row.kind in rules.ignored_kinds(row.schema, row.table):
        return None
    target = rules.routes.target(TableName(row.schema, row.table))
    return row._replace(schema=target.schema, table=target.table)


def _tables(events: pa.Table) -> tuple[list[TableName], npt.NDArray[np.int64]]:
    """Gives the tables that events name, and for each event the number of its table.  Events that are no row changes
    are of no table, number -1."""
    schemas, tables = (events[name].combine_chunks().dictionary_encode() for name in ("schema", "table"))
    width = max(1, len(tables.dictionary))
    codes = schemas.indices.to_numpy().astype(np.int64) * width + tables.indices.to_numpy()
    codes[events["kind"].to_numpy() > int(Kind.DELETE)] = -1
    distinct_codes, numbers = np.unique(codes, return_inverse=True)
    start = int(len(distinct_codes) > 0 and distinct_codes[0] < 0)
    names = [
        TableName(schemas.dictionary[code // width].as_py(), tables.dictionary[code % width].as_py())
        for code in distinct_codes[start:].tolist()
    ]
    return names, numbers.astype(np.int64) - start


_LARGE: Final = 32 << 10
"""In bytes.  Messages with a larger average size count as large."""
_TOGETHER_BYTES: Final = 32 << 20
"""How many bytes of keys and values are decoded together; that takes several times as much memory."""


class Messages(NamedTuple):
    """Messages as columns.

    latest_ms: for each message, the latest moment (milliseconds since 1970) that it can be of: when it was read, or a
        timestamp of Kafka if that is later.  Without, the times that messages tell are not checked.
    """

    topic: list[str]
    partition: list[int]
    offset: list[int]
    key: list[bytes | None]
    value: list[bytes | None]
    latest_ms: list[int] = []  # noqa: RUF012  # the default of a tuple's field, which nobody changes

    def part(self, span: slice) -> Messages:
        """Gives the messages of a slice."""
        return Messages(*(column[span] for column in self))  # type: ignore[arg-type]  # each of its type


def do_nothing() -> None:
    """Does nothing, for callers that have nothing to do."""


EventDecoder = Callable[[Iterable[Messages]], Iterator[pa.Table]]
"""Takes messages and gives tables of their events (EVENT_SCHEMA, in any order)."""


def packed(events: pa.Table) -> bytes:
    """Writes events as an Arrow IPC stream: Spark then moves one value instead of 14 columns of every event."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, EVENT_SCHEMA) as stream:
        stream.write_table(events)
    value: bytes = sink.getvalue().to_pybytes()
    return value


def unpacked(batches: Iterable[bytes]) -> pa.Table:
    """Reads packed events into one table (EVENT_SCHEMA)."""
    return pa.Table.from_batches([events for batch in batches for events in pa.ipc.open_stream(batch)], EVENT_SCHEMA)


def decode_messages(decoder: Decoder, messages: Messages, when_large: Callable[[], None] = do_nothing) -> pa.Table:
    """Decodes messages to events (EVENT_SCHEMA, in any order): by the fast path, and the rest by the plain one.

    when_large: is called after messages with a large average size were decoded.
    """
    size = sum(map(len, filter(None, messages.key))) + sum(map(len, filter(None, messages.value)))
    if size > _TOGETHER_BYTES and len(messages.value) > 1:
        half = len(messages.value) // 2
        halves = (messages.part(slice(half)), messages.part(slice(half, None)))
        events = pa.concat_tables([decode_messages(decoder, part, when_large) for part in halves])
    else:
        events = _decoded_together(decoder, messages)
    if size > _LARGE * len(messages.value):
        when_large()
    return events


def _decoded_together(decoder: Decoder, messages: Messages) -> pa.Table:
    batches = []
    for numbers, events in _decoded(decoder, messages):
        where = [_of(messages[field], EVENT_SCHEMA.field(field).type, numbers) for field in range(3)]
        batches.append(pa.RecordBatch.from_arrays([*where, *events.columns], schema=EVENT_SCHEMA))
    events = pa.Table.from_batches(batches, EVENT_SCHEMA)
    return ruled(events, decoder.row_rules) if decoder.row_rules else events


def _of(column: list[Any], kind: pa.DataType, numbers: Numbers) -> pa.Array:
    """Gives a column's values for the messages of these numbers.  Mostly all messages are from one partition."""
    if column.count(column[0]) == len(column):
        return pa.repeat(pa.scalar(column[0], kind), len(numbers))
    return pa.array(column, kind).take(pa.array(numbers))


def _decoded(decoder: Decoder, messages: Messages) -> Iterator[RowEvents]:
    """Gives events (EVENT_FIELDS), each with the number of its message."""
    highest = highest_ts(messages.latest_ms, decoder.ms_ahead) if messages.latest_ms else MAX_COMMIT_TS
    lots, leftover = decoder.decode_batch(messages.key, messages.value)
    if len(above := numbers_above(lots, highest)):
        lots = [lot.only(np.isin(lot.numbers, above, invert=True)) for lot in lots]
        leftover = np.union1d(leftover, above)
    yield from lots
    if len(leftover):
        yield _parsed(decoder, messages, leftover, highest)


def _parsed(decoder: Decoder, messages: Messages, numbers: Numbers, highest: int) -> RowEvents:
    """Decodes the messages of these numbers one by one."""
    keys, values = messages.key, messages.value
    events_of_messages = list[list[Event]]()
    for number in numbers.tolist():
        try:
            events_of_messages.append(decode_message(decoder, keys[number], values[number], highest))
        except BridgeError as error:  # what reading it needs cannot be had
            error.where = f"{messages.topic[number]}/{messages.partition[number]}/{messages.offset[number]}"
            raise
    places = np.repeat(numbers, [len(events_of_message) for events_of_message in events_of_messages])
    return RowEvents(places, record_batch(chain.from_iterable(events_of_messages)))
