"""Row changes, schema changes and boundaries as each protocol and variant writes them, byte for byte.

By the rules of the encoders seen in genuine captures, and of the descriptions of official Canal, Debezium and CKafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count, groupby
from random import Random
from typing import Any, ClassVar, Final, NamedTuple

from bridge.tso import tso_ms
from tests.generated.kinds import KINDS, Kind, Value, unscaled
from tests.generated.tables import Column, Row, Table
from tests.generated.upstream import Change
from tests.support.debezium_wire import NATIVE_SOURCE, TICDC_SOURCE
from tests.support.wire import as_ckafka, compact, frame, open_key, open_value

ROWS, STATEMENTS = "cdc", "ddl"
"""Topics; the native connector has one of its own for schema changes."""
ABSENT: Final = "__debezium_unavailable_value"


class Message(NamedTuple):
    """A message before it has an offset.

    row: what tells rows apart in the dispatcher, None for what is sent to all partitions or to one of its own.
    table: the name of its table.  is_reserved: a row change that is left out.
    """

    key: bytes | None
    value: bytes | None
    table: str = ""
    row: str | None = None
    topic: str = ROWS
    is_reserved: bool = False


@dataclass(frozen=True)
class Wire:
    """A protocol and variant.

    random: for what a sender is free to do.  splits: updates of unique columns are a delete and an insert (TiCDC).
    written: numbers what the upstream's log gets.
    """

    random: Random
    splits: bool
    written: Iterator[int] = field(default_factory=count)
    protocol: ClassVar[str] = ""
    variant: ClassVar[str] = ""
    is_tidb: ClassVar[bool] = True
    has_boundaries: ClassVar[bool] = True
    has_commit_ts: ClassVar[bool] = True
    unit: ClassVar[int] = 1
    """How much the upstream's time moves at least between what has different times."""
    is_partial: ClassVar[bool] = False
    """Images lack columns whose value nobody told."""
    moves_at_once: ClassVar[bool] = True
    """An update of a key is one row change, unless it is split."""
    broadcasts: ClassVar[bool] = True
    """Schema changes go to every partition."""
    has_places: ClassVar[bool] = False
    """Messages tell their place in the upstream's log, so that schema changes may have the time of row changes."""

    def transaction(self, changes: Sequence[Change], ts: int) -> list[Message]:
        """The messages of a transaction, in the order in which they are sent."""
        return [message for change in self.told(changes) for message in self.row(change, ts)]

    def told(self, changes: Sequence[Change]) -> list[Change]:
        """The row changes as messages tell them."""
        return self._as_sent(changes) if self.is_tidb else list(changes)

    def row(self, change: Change, ts: int) -> Iterator[Message]:
        """The messages of one row change."""
        raise NotImplementedError

    def ddl(self, schema_change: tuple[Table, Table, str], ts: int) -> Message:
        """A schema change."""
        raise NotImplementedError

    def boundary(self, ts: int) -> Message:
        """Everything below ts has been sent."""
        raise NotImplementedError

    def _as_sent(self, changes: Sequence[Change]) -> list[Change]:
        """By table deletes, updates, inserts; the inserts of split updates come last."""
        sent: list[Change] = []
        last: list[Change] = []
        for _, group in groupby(changes, key=lambda change: change.table.name):
            deletes, updates, inserts = [], [], []
            for change in group:
                table, before, after = change
                if before is None:
                    inserts.append(change)
                elif after is None:
                    deletes.append(change)
                elif self._is_split(table, before, after):
                    deletes.append(Change(table, before, None))
                    last.append(Change(table, None, after))
                else:
                    updates.append(change)
            for some in (deletes, updates, inserts):
                self.random.shuffle(some)
                sent += some
        return sent + last

    def _is_split(self, table: Table, before: Row, after: Row) -> bool:
        columns = table.unique_columns | {column.name for column in table.columns if column.of}
        return self.splits and any(before[name] != after[name] for name in columns)


def row_text(table: Table, row: Row) -> str:
    """What TiCDC's index-value dispatcher hashes: the handle key's values; the table alone where there is none."""
    return "\0".join([table.name, *(str(row[name]) for name in table.handle)])


def _message(change: Change, key: bytes | None, value: bytes | None) -> Message:
    row = change.before if change.after is None else change.after
    assert row is not None
    return Message(key, value, change.table.name, row_text(change.table, row))


def kind_of(table: Table, name: str) -> Kind:
    """The type of a column."""
    return KINDS[table.column(name).type]


def texts_of(table: Table, row: Row, names: Sequence[str]) -> dict[str, str | None]:
    """Values as text."""
    return {name: None if row[name] is None else kind_of(table, name).text(row[name]) for name in names}


# --- Canal-JSON


class CanalExt(Wire):
    """TiCDC's, with the TiDB extension."""

    protocol, variant, broadcasts = "canal-json", "canal-json ext", False
    updated_only: ClassVar[bool] = False
    deletes_by_key: ClassVar[bool] = False

    def row(self, change: Change, ts: int) -> Iterator[Message]:
        table, before, after = change
        kind = "DELETE" if after is None else "INSERT" if before is None else "UPDATE"
        row = before if after is None else after
        assert row is not None
        names = table.handle if kind == "DELETE" and self.deletes_by_key else table.names
        old: list[dict[str, Any]] | None = None
        if kind == "UPDATE":
            assert before is not None
            changed = [name for name in table.names if before[name] != row[name]]
            old = [texts_of(table, before, changed if self.updated_only else names)]
        value = self._value(table, kind, names, [texts_of(table, row, names)], old, ts)
        yield _message(
            change, b"", compact(value).replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
        )

    def _value(
        self, table: Table, kind: str, names: Sequence[str], data: list[Any], old: list[Any] | None, ts: int
    ) -> dict[str, Any]:
        shuffled = self.random.sample(list(names), len(names))
        return {
            "id": 0, "database": table.schema, "table": table.name, "pkNames": list(table.primary), "isDdl": False,
            "type": kind, "es": tso_ms(ts), "ts": tso_ms(ts) + 9, "sql": "",
            "sqlType": {name: kind_of(table, name).sql_type for name in names},
            "mysqlType": {name: kind_of(table, name).word for name in shuffled}, "old": old, "data": data,
        } | self._moment(ts)  # fmt: skip

    def _moment(self, ts: int) -> dict[str, Any]:
        return {"_tidb": {"commitTs": ts}}

    def ddl(self, schema_change: tuple[Table, Table, str], ts: int) -> Message:
        _, table, text = schema_change
        value = _without_row(table.name, text, tso_ms(ts), isDdl=True, type=_canal_type(text), database=table.schema)
        return Message(None, compact(value | self._moment(ts)), table.name)

    def boundary(self, ts: int) -> Message:
        value = _without_row("", "", tso_ms(ts), isDdl=False, type="TIDB_WATERMARK")
        return Message(None, compact(value | {"_tidb": {"watermarkTs": ts}}))


class CanalExtUpdated(CanalExt):
    """Old rows of changed columns only (only-output-updated-columns)."""

    variant, updated_only = "canal-json ext updated-only", True


class CanalExtDeletesByKey(CanalExt):
    """Deletes of the handle key only (delete-only-output-handle-key-columns)."""

    variant, deletes_by_key = "canal-json ext delete-key", True


class CanalPlain(CanalExt):
    """TiCDC's without the extension: neither commit ts nor watermarks."""

    variant, has_boundaries, has_commit_ts, unit = "canal-json plain", False, False, 1 << 18

    def _moment(self, ts: int) -> dict[str, Any]:
        del ts
        return {}


class CanalOfficial(Wire):
    """Alibaba's Canal, flat messages, binlog_row_image=FULL: `old` holds the changed columns."""

    protocol, variant, is_tidb = "canal-json", "official canal FULL", False
    has_boundaries, has_commit_ts, unit, broadcasts = False, False, 1000 << 18, False

    def transaction(self, changes: Sequence[Change], ts: int) -> list[Message]:
        """Rows of one kind and of the same columns that follow each other may be one message, as those of one statement
        are, which changes a row once."""
        messages: list[Message] = []
        held: dict[str, Any] = {}
        keys: set[str] = set()
        for change in changes:
            message = self._of(change, ts)
            mine = {row_text(change.table, row) for row in change[1:] if row is not None}
            may_join = bool(held) and self._may_join(held, message) and keys.isdisjoint(mine)
            keys = keys | mine if may_join else mine
            if may_join and self.random.random() < 0.4:
                held["data"] += message["data"]
                held["old"] = held["old"] + message["old"] if held["old"] is not None else None
                messages[-1] = messages[-1]._replace(value=compact(held))
            else:
                held = message
                messages.append(_message(change, None, compact(message)))
        return messages

    def _may_join(self, held: dict[str, Any], message: dict[str, Any]) -> bool:
        alike = all(held[name] == message[name] for name in ("table", "type", "mysqlType"))
        return alike and list(held["data"][0]) == list(message["data"][0])

    def _of(self, change: Change, ts: int) -> dict[str, Any]:
        table, before, after = change
        kind = "DELETE" if after is None else "INSERT" if before is None else "UPDATE"
        row = before if after is None else after
        assert row is not None
        names = self._sent(table, before, after)
        old = None
        if before is not None and after is not None:
            was = self._known_before(table)
            old = [self._texts(table, before, [name for name in was if before[name] != after[name]])]
        return {
            "data": [self._texts(table, row, names)], "database": table.schema, "es": tso_ms(ts), "id": 7,
            "isDdl": False, "mysqlType": {name: kind_of(table, name).declared for name in names}, "old": old,
            "pkNames": list(table.primary) or None, "sql": "",
            "sqlType": {name: kind_of(table, name).sql_type_of_canal for name in names}, "table": table.name,
            "ts": tso_ms(ts) + 5, "type": kind,
        }  # fmt: skip

    def _sent(self, table: Table, before: Row | None, after: Row | None) -> Sequence[str]:
        del before, after
        return table.names

    def _known_before(self, table: Table) -> Sequence[str]:
        return table.names

    def _texts(self, table: Table, row: Row, names: Sequence[str]) -> dict[str, str | None]:
        """MySQL's log has no zero bytes at the end of a BINARY."""
        found = {name: None if row[name] is None else kind_of(table, name).by_official(row[name]) for name in names}
        trimmed = {
            name: text.rstrip("\0") for name, text in found.items() if text and kind_of(table, name).word == "binary"
        }
        return {**found, **trimmed}

    def ddl(self, schema_change: tuple[Table, Table, str], ts: int) -> Message:
        _, table, text = schema_change
        value = _without_row(table.name, text, tso_ms(ts), isDdl=True, type=_canal_type(text), database=table.schema)
        return Message(None, compact(value), table.name)


_LOBS: Final = {"mediumtext", "blob", "json"}


class CanalNoBlob(CanalOfficial):
    """binlog_row_image=NOBLOB: TEXT and BLOB columns that did not change are in no image, old ones never, but for
    tables without a key."""

    variant, is_partial = "official canal NOBLOB", True

    def _sent(self, table: Table, before: Row | None, after: Row | None) -> Sequence[str]:
        if before is None or not table.handle:
            return table.names
        known = self._known_before(table)
        if after is None:
            return known
        return [name for name in table.names if name in known or before[name] != after[name]]

    def _known_before(self, table: Table) -> Sequence[str]:
        if not table.handle:
            return table.names
        return [c.name for c in table.columns if c.type not in _LOBS or c.name in table.handle]


class Ckafka(CanalOfficial):
    """CKafka's official format 1: values without types, times in whole seconds."""

    protocol, variant = "ckafka", "ckafka"

    def transaction(self, changes: Sequence[Change], ts: int) -> list[Message]:
        messages = []
        for change in changes:
            value = self._of(change, ts)
            if value["old"] is not None:
                assert change.before is not None
                value["old"] = [self._texts(change.table, change.before, change.table.names)]
            messages.append(_message(change, None, as_ckafka(compact(value))))
        return messages

    def _texts(self, table: Table, row: Row, names: Sequence[str]) -> dict[str, str | None]:
        return {name: None if row[name] is None else kind_of(table, name).by_name(row[name]) for name in names}


def _canal_type(text: str) -> str:
    word = text.split()[0]
    if word != "ALTER":
        return {"DROP": "ERASE"}.get(word, word)
    return "CINDEX" if " ADD UNIQUE " in text else "DINDEX" if " DROP INDEX " in text else "ALTER"


def _without_row(table: str, sql: str, ms: int, **fields: Any) -> dict[str, Any]:
    return {
        "id": 0, "database": "", "table": table, "pkNames": None, "isDdl": True, "type": "", "es": ms, "ts": ms + 9,
        "sql": sql, "sqlType": None, "mysqlType": None, "data": None, "old": None,
    } | fields  # fmt: skip


# --- Open Protocol


class Open(Wire):
    """TiCDC's Open Protocol: framed batches, schema changes and resolved events everywhere."""

    protocol, variant = "open-protocol", "open-protocol"
    deletes_by_key: ClassVar[bool] = False

    def row(self, change: Change, ts: int) -> Iterator[Message]:
        table, before, after = change
        if after is None:
            assert before is not None
            value = {"d": _open_image(table, before, table.handle if self.deletes_by_key else table.names)}
        else:
            value = {"u": _open_image(table, after, table.names)}
            if before is not None:
                value["p"] = self._old(table, before, after)
        yield _message(change, open_key(_head(table, ts, 1)), open_value(value))

    def _old(self, table: Table, before: Row, after: Row) -> dict[str, Any]:
        del after
        return _open_image(table, before, table.names)

    def ddl(self, schema_change: tuple[Table, Table, str], ts: int) -> Message:
        _, table, text = schema_change
        return Message(open_key(_head(table, ts, 2)), open_value({"q": text, "t": 5}), table.name)

    def boundary(self, ts: int) -> Message:
        return Message(open_key({"ts": ts, "t": 3}), frame(b""))


class OpenUpdated(Open):
    """Old rows of changed columns only; values that became NULL aside, whose names TiCDC forgets (golden captures)."""

    variant = "open-protocol updated-only"

    def _old(self, table: Table, before: Row, after: Row) -> dict[str, Any]:
        old = _open_image(table, before, [name for name in table.names if before[name] != after[name]])
        if table.handle and all(before[name] == after[name] for name in table.handle):
            for name in [name for name in old if after[name] is None]:
                old.update(old.pop(name))
        return old


class OpenDeletesByKey(Open):
    """Deletes of the handle key only."""

    variant, deletes_by_key = "open-protocol delete-key", True


def _head(table: Table, ts: int, kind: int) -> dict[str, Any]:
    return {"ts": ts, "scm": table.schema, "tbl": table.name, "t": kind}


def _open_image(table: Table, row: Row, names: Sequence[str]) -> dict[str, Any]:
    return {
        name: _open_column(table, table.column(name)) | {"v": _open_value(table.column(name), row[name])}
        for name in names
    }


def _open_column(table: Table, column: Column) -> dict[str, Any]:
    is_handle, kind = column.name in table.handle, KINDS[column.type]
    flags = kind.flags | is_handle << 1 | bool(column.of) << 2 | (column.name in table.primary) << 3
    flags |= any(unique.columns == (column.name,) for unique in table.uniques) << 4 | column.nullable << 6
    return {"t": kind.code, **({"h": True} if is_handle else {}), "f": flags}


def _open_value(column: Column, value: Value) -> Any:
    return None if value is None else KINDS[column.type].opened(value)


# --- Debezium


class DebeziumExt(Wire):
    """TiCDC's Debezium with schemas and watermarks."""

    protocol, variant = "debezium", "debezium TiCDC ext"
    has_schemas: ClassVar[bool] = True
    is_native: ClassVar[bool] = False

    def row(self, change: Change, ts: int) -> Iterator[Message]:
        table, before, after = change
        op = "d" if after is None else "c" if before is None else "u"
        yield self._row(change, op, before, after, table, ts)

    def _row(self, change: Change, op: str, before: Row | None, after: Row | None, table: Table, ts: int) -> Message:
        images = [None if row is None else self._image(table, row) for row in (before, after)]
        content = {
            "source": self._source(table.schema, table.name, ts), "ts_ms": tso_ms(ts) + 5, "transaction": None,
            "op": op, "before": images[0], "after": images[1],
        }  # fmt: skip
        fields = [self._field(column) for column in table.columns]
        return _message(change, self._key(change), self._wrapped(content, _envelope(table, fields)))

    def _image(self, table: Table, row: Row) -> dict[str, Any]:
        return {column.name: self._value(column, row[column.name]) for column in table.columns}

    def _key(self, change: Change) -> bytes:
        table = change.table
        row = change.before if change.after is None else change.after
        assert row is not None
        content = {name: self._value(table.column(name), row[name]) for name in table.handle}
        fields = [self._field(table.column(name)) for name in table.handle]
        schema = {"type": "struct", "name": f"c.{table.schema}.{table.name}.Key", "optional": False, "fields": fields}
        return self._wrapped(content, schema)

    def _wrapped(self, content: dict[str, Any], schema: dict[str, Any]) -> bytes:
        return compact({"payload": content, "schema": schema} if self.has_schemas else {"payload": content})

    def _source(self, schema: str, table: str, ts: int) -> dict[str, Any]:
        return TICDC_SOURCE | {"db": schema, "table": table, "ts_ms": tso_ms(ts), "commit_ts": ts}

    def _field(self, column: Column) -> dict[str, Any]:
        kind = KINDS[column.type]
        semantic = {"name": kind.semantic, "version": 1} if kind.semantic else {}
        parameters = {"parameters": dict(kind.parameters)} if kind.parameters else {}
        known = {"type": kind.schema, "optional": column.nullable, "field": column.name, "tidb_type": kind.word}
        return known | semantic | parameters

    def _value(self, column: Column, value: Value) -> Any:
        return None if value is None else KINDS[column.type].told(value)

    def ddl(self, schema_change: tuple[Table, Table, str], ts: int) -> Message:
        _, table, text = schema_change
        content = {
            "source": self._source(table.schema, table.name, ts), "ts_ms": tso_ms(ts) + 5, "databaseName": table.schema,
            "schemaName": None, "ddl": text, "tableChanges": [],
        }  # fmt: skip
        empty = {"type": "struct", "name": "Key", "optional": False, "fields": []}
        topic = STATEMENTS if self.is_native else ROWS
        return Message(
            self._wrapped({"databaseName": table.schema}, empty), self._wrapped(content, empty), table.name, None, topic
        )

    def boundary(self, ts: int) -> Message:
        content = {"source": self._source("", "", ts), "ts_ms": tso_ms(ts) + 5, "transaction": None, "op": "m"}
        empty = {"type": "struct", "name": "Key", "optional": False, "fields": []}
        return Message(self._wrapped({}, empty), self._wrapped(content, empty))


class DebeziumNoSchemaExt(DebeziumExt):
    """Without schemas."""

    variant, has_schemas = "debezium TiCDC noschema ext", False


class DebeziumPlain(DebeziumExt):
    """Without watermarks: a commit ts, and no boundary."""

    variant, has_boundaries = "debezium TiCDC plain", False


class DebeziumNative(DebeziumExt):
    """The native connector, with schemas: a changed key is a delete, a tombstone and a create."""

    variant, is_tidb, is_native, moves_at_once = "debezium native", False, True, False
    has_boundaries, has_commit_ts, unit, broadcasts, has_places = False, False, 1000 << 18, False, True

    def told(self, changes: Sequence[Change]) -> list[Change]:
        return [one for change in changes for one in self._halves(change)]

    def _halves(self, change: Change) -> tuple[Change, ...]:
        table, before, after = change
        if before is not None and after is not None and any(before[name] != after[name] for name in table.handle):
            return Change(table, before, None), Change(table, None, after)
        return (change,)

    def row(self, change: Change, ts: int) -> Iterator[Message]:
        yield from super().row(change, ts)
        if change.after is None:
            yield _message(change, self._key(change), None)

    def _wrapped(self, content: dict[str, Any], schema: dict[str, Any]) -> bytes:
        return compact({"schema": schema, "payload": content} if self.has_schemas else content)

    def _source(self, schema: str, table: str, ts: int) -> dict[str, Any]:
        file, event = divmod(next(self.written), 9)
        place = {"file": f"mysql-bin.{file:06}", "pos": 4 + event * 321}
        return NATIVE_SOURCE | place | {"db": schema, "table": table, "ts_ms": tso_ms(ts)}

    def ddl(self, schema_change: tuple[Table, Table, str], ts: int) -> Message:
        """The binlog dates a statement by its beginning: before the rows that were written until it had its lock."""
        return super().ddl(schema_change, ts - self.random.choice((0, 0, 1, 3)) * self.unit)

    def _field(self, column: Column) -> dict[str, Any]:
        field = super()._field(column)
        del field["tidb_type"]
        if column.type == "decimal":
            parameters = {"scale": "2", "connect.decimal.precision": "10"}
            field |= {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}
        return field | ({"type": KINDS[column.type].native} if KINDS[column.type].native else {})

    def _value(self, column: Column, value: Value) -> Any:
        return unscaled(value) if isinstance(value, Decimal) else super()._value(column, value)


class DebeziumNativeNoSchema(DebeziumNative):
    """Without schemas."""

    variant, has_schemas = "debezium native noschema", False


class DebeziumUnavailable(DebeziumNative):
    """Large values that did not change are Debezium's placeholder."""

    variant, is_partial = "debezium native unavailable", True

    def _row(self, change: Change, op: str, before: Row | None, after: Row | None, table: Table, ts: int) -> Message:
        if op != "u":
            return super()._row(change, op, before, after, table, ts)
        assert before is not None
        assert after is not None
        hidden: Row = {
            c.name: ABSENT for c in table.columns if c.type == "mediumtext" and before[c.name] == after[c.name]
        }
        return super()._row(change, op, before | hidden, after | hidden, table, ts)


def _envelope(table: Table, fields: list[dict[str, Any]]) -> dict[str, Any]:
    images = [{"type": "struct", "optional": True, "field": image, "fields": fields} for image in ("before", "after")]
    return {"type": "struct", "optional": False, "name": f"c.{table.schema}.{table.name}.Envelope", "fields": images}


WIRES: Final[dict[str, type[Wire]]] = {
    wire.variant: wire
    for wire in (
        *(CanalExt, CanalExtUpdated, CanalExtDeletesByKey, CanalPlain, CanalOfficial, CanalNoBlob),
        *(Open, OpenUpdated, OpenDeletesByKey),
        *(DebeziumExt, DebeziumNoSchemaExt, DebeziumPlain, DebeziumNative, DebeziumNativeNoSchema, DebeziumUnavailable),
        Ckafka,
    )
}
