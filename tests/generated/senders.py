"""Models of the programs that write messages without boundaries: which message goes where, and what it tells.

Written after what they do: Canal 1.1.7 (MQMessageUtils, CanalKafkaProducer, LogEventConvert), Debezium's connectors for
MySQL and MariaDB 3.x, Kafka's producer (BuiltInPartitioner), TiCDC's Canal-JSON and Debezium without their extension.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random
from typing import Any, ClassVar, Final, NamedTuple
from zlib import crc32

from bridge.tso import ms_tso
from tests.support.debezium_wire import NATIVE_SOURCE, TICDC_SOURCE
from tests.support.wire import compact

DATABASE: Final = "m"
TAKING: Final = ("TRUNCATE", "DROP", "RENAME")
"""How statements begin that take rows from a table."""
BEGIN_MS: Final = 1_790_000_000_137
Row = dict[str, int | str | None]


@dataclass(frozen=True)
class Happened:
    """What the upstream did, by itself a transaction.

    number: of it, from 1.  ms: when it began, by the upstream's clock.  text: of a schema change, else empty.
    table, types, key: of a row change, as they were then.  server: the number of the server that did it.
    session: the database of the session, which the text may take for granted.
    is_cut: whether its message is cut off, so that nobody can read it.
    """

    number: int
    ms: int
    text: str = ""
    table: str = ""
    types: dict[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    before: Row | None = None
    after: Row | None = None
    server: int = 1
    session: str = DATABASE
    is_cut: bool = False


class Message(NamedTuple):
    """A message on its way to a partition.  number: of what it tells."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes
    number: int


@dataclass
class Sender:
    """A sender with its settings.

    name: how the names of its topics begin.  partitions: of each topic of rows.  by_table: whether a partition is
    chosen by table; otherwise by the row's key.  has_topics: whether each table has a topic of its own.
    has_gtids: whether the upstream has GTIDs.  restarts: how often it is restarted.
    tells_truncates: whether a TRUNCATE is a message among the rows too (Debezium, skipped.operations=none).
    stays_away: whether a killed one may stay away, for longer than a schema change waits.
    away: how many messages it had sent when it did.
    """

    random: Random
    name: str = "up"
    partitions: int = 1
    by_table: bool = False
    has_topics: bool = False
    has_gtids: bool = False
    restarts: int = 0
    repeats: int = 8
    stays_away: bool = False
    tells_truncates: bool = False
    away: list[int] = field(default_factory=list)
    protocol: ClassVar[str] = ""
    source: ClassVar[str] = "mysql-8"
    compares_bytes: ClassVar[bool] = False
    """The upstream's collations do, whatever their names say."""
    dates_by_start: ClassVar[bool] = True
    """The upstream's log dates a schema change by its start, which a lock may delay."""
    rereads: ClassVar[bool] = False
    """It can read rows of a table again while it goes on (incremental snapshots)."""
    splits_moves: ClassVar[bool] = True
    """A changed key is a delete and an insert, each in the partition of its key."""
    tells_servers: ClassVar[bool] = False
    """Messages tell which server wrote them."""
    broadcasts: ClassVar[bool] = False
    """A schema change goes to every partition."""
    spreads_keyless: ClassVar[bool] = False
    """A row of a table without a key goes to any partition of its topic."""
    tells_keys: ClassVar[bool] = True
    """Messages of rows tell the table's key."""

    @property
    def tells_late(self) -> bool:
        """Whether it dates schema changes by their start, and tells otherwise when they ran.  In several partitions of
        a Canal without GTIDs that is when it sent them, which rows that it sends again do not tell."""
        return self.dates_by_start and (self.tells_order or not self.restarts)

    @property
    def tells_order(self) -> bool:
        """Whether messages tell exactly which of two came first: within a second, those in several partitions of a
        Canal without GTIDs do not."""
        is_one = self.partitions == 1 and not self.has_topics
        return self.tells_servers or self.has_gtids or not self.dates_by_start or is_one

    @property
    def tells_places(self) -> bool:
        """Whether messages tell their places in the binlog."""
        return self.tells_servers or self.has_gtids

    def messages(self, happened: Happened) -> Iterator[Message]:
        """What it sends of it."""
        if happened.text:
            for message in self.schema_change(happened):
                yield message._replace(value=message.value[:-1]) if happened.is_cut else message
        elif self.splits_moves and _moves(happened):
            yield self.row(replace(happened, after=None))
            yield self.row(replace(happened, before=None))
        else:
            yield self.row(happened)

    def schema_change(self, happened: Happened) -> Iterator[Message]:
        """The messages of a schema change."""
        raise NotImplementedError

    def row(self, happened: Happened) -> Message:
        """The message of a row change."""
        raise NotImplementedError

    def topic(self, table: str) -> str:
        """Where rows of a table go."""
        return f"{self.name}.{DATABASE}.{table}" if self.has_topics else self.name

    def partition(self, happened: Happened) -> int:
        """Where a row goes within its topic: by its table, or by its key."""
        row = happened.before if happened.after is None else happened.after
        assert row is not None
        told = [happened.table, *([] if self.by_table else [str(row[name]) for name in happened.key])]
        return crc32("\0".join(told).encode()) % self.partitions

    def sent(self, history: Sequence[Happened]) -> list[Message]:
        """Everything in the order in which it is sent: after a restart it begins somewhat before where it was."""
        order, at, breaks = list[Happened](), 0, self.breaks(history)
        while at < len(history):
            order.append(history[at])
            at += 1
            if at in breaks:
                breaks.remove(at)
                at = self.again_from(history, at)
        return [message for one in order for message in self.messages(one)]

    def breaks(self, history: Sequence[Happened]) -> set[int]:
        """How much of the history was sent when it is restarted: more often than elsewhere, a schema change that takes
        rows or values away stands shortly before, or one that renames tables, which might swap them back, at once."""
        takes = [n + self.random.randrange(1, 4) for n, one in enumerate(history) if one.text.startswith(TAKING)]
        takes += [n + 1 for n, one in enumerate(history) if one.text.startswith("RENAME")] * 3
        anywhere = range(1, len(history) + 1)
        is_behind = (bool(takes) and self.random.random() < 0.7 for _ in range(self.restarts))
        return {self.random.choice(takes if behind else anywhere) for behind in is_behind}

    def again_from(self, history: Sequence[Happened], at: int) -> int:
        """Where a sender that had sent so much begins anew: at its last note."""
        del history
        return max(0, at - self.random.randrange(self.repeats))

    def sent_in_part(self, batch: Sequence[Message]) -> Iterator[Message]:
        """What is sent of messages when it is killed: each partition has its first ones."""
        ends = {(one.topic, one.partition): self.random.randrange(len(batch) + 1) for one in batch}
        return (one for n, one in enumerate(batch) if n < ends[one.topic, one.partition])

    def is_killed(self, messages: Sequence[Message]) -> None:
        """Notes that it has sent these when it was killed: it may be away for long."""
        if self.stays_away and self.random.random() < 0.5:
            self.away.append(len(messages))


def _moves(happened: Happened) -> bool:
    """Whether a row has another key afterwards."""
    before, after = happened.before, happened.after
    return before is not None and after is not None and any(before[name] != after[name] for name in happened.key)


def _second(ms: int) -> int:
    return ms // 1000 * 1000


def _local(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y%m%d%H%M%S")


def _type_word(text: str) -> str:
    word = text.split()[0]
    return {"DROP": "ERASE"}.get(word, word)


class CanalServer(Sender):
    """Canal: times are whole seconds, schema changes go to partition 0 and are dated by their start, a message has the
    database that the statement or the session names, `gtid` is that of the transaction where the server reads by it.  A
    changed key is one message, in the partition of the new key (MQMessageUtils.messagePartition)."""

    protocol, splits_moves = "canal-json", False
    _batch = _ms = 0
    """The number of the batch, and when the present message is made."""

    def sent(self, history: Sequence[Happened]) -> list[Message]:
        """The same, in batches: the next one is taken when Kafka has the one before.  When Kafka fails, or the server
        is killed, each partition has the first messages of a batch, which then comes again in another one."""
        messages, at, breaks = list[Message](), 0, self.breaks(history)
        while at < len(history):
            self._batch += 1
            taken = history[at : at + self.random.choice((1, 1, 2, 5, 20))]
            self._ms = max(self._ms, *(one.ms for one in taken)) + self.random.choice((1, 30, 900))
            batch, pace = list[Message](), self.random.choice(((0,), (0, 0, 1)))
            for one in taken:
                self._ms += self.random.choice(pace)
                batch += self.messages(one)
            if broken := breaks.intersection(range(at + 1, at + len(taken) + 1)):
                breaks -= broken
                messages += self.sent_in_part(batch)
                if self.random.random() < 0.6:  # killed: the note of what was confirmed may be a second old
                    at, self._batch, self._ms = max(0, at - self.random.randrange(self.repeats)), 0, self._ms + 4000
                    self.is_killed(messages)
                continue
            messages, at = messages + batch, at + len(taken)
        return messages

    def schema_change(self, happened: Happened) -> Iterator[Message]:
        words = happened.text.replace("`", "").split()
        table = next((word for word in words if word.startswith("t") and word[1:2].isdigit()), "")
        value = self._head(happened) | {
            "table": table, "isDdl": True, "type": _type_word(happened.text), "sql": happened.text, "data": None,
            "mysqlType": None, "sqlType": None, "pkNames": None, "old": None,
        }  # fmt: skip
        yield Message(self.topic(table) if table else self.name, 0, None, compact(value), happened.number)

    def row(self, happened: Happened) -> Message:
        row = happened.before if happened.after is None else happened.after
        assert row is not None
        kind = "DELETE" if happened.after is None else "INSERT" if happened.before is None else "UPDATE"
        old = None
        if kind == "UPDATE":
            assert happened.before is not None
            old = [_texts({name: value for name, value in happened.before.items() if value != row[name]})]
        value = self._head(happened) | {
            "table": happened.table, "isDdl": False, "type": kind, "sql": "", "data": [_texts(row)], "old": old,
            "mysqlType": happened.types, "pkNames": list(happened.key) or None,
            "sqlType": {name: 4 if kind == "INT" else 12 for name, kind in happened.types.items()},
        }  # fmt: skip
        return Message(self.topic(happened.table), self.partition(happened), None, compact(value), happened.number)

    def _head(self, happened: Happened) -> dict[str, Any]:
        gtid = f"3e11fa47-71ca-11e1-9e33-{crc32(self.name.encode()):012x}:1-{happened.number}" if self.has_gtids else ""
        ms = _second(happened.ms)
        return {"id": self._batch, "database": happened.session, "es": ms, "ts": self._ms, "gtid": gtid}


class Ckafka(Sender):
    """CKafka's official format 1: rows are texts, in one of the forms that were seen; no message tells its place."""

    protocol, splits_moves, tells_keys = "ckafka", False, False

    def schema_change(self, happened: Happened) -> Iterator[Message]:
        yield from CanalServer.schema_change(self, happened)  # type: ignore[arg-type]

    def row(self, happened: Happened) -> Message:
        kind = "D" if happened.after is None else "I" if happened.before is None else "U"
        written = self.random.choice((_texts, _texts, dict, lambda row: compact(_texts(row)).decode()))
        images = {"NEW_VALUES": happened.after, "OLD_VALUES": happened.before}
        value = {"DATABASE": DATABASE, "TABLE": happened.table, "TYPE": kind, "TIME": _local(happened.ms)} | {
            name: None if row is None else written(row)
            for name, row in images.items()
            if row is not None or name == "NEW_VALUES" or self.random.random() < 0.5
        }
        return Message(self.name, self.partition(happened), None, compact(value), happened.number)

    def _head(self, happened: Happened) -> dict[str, Any]:
        return {"database": happened.session, "es": _second(happened.ms)}


class Ticdc(Sender):
    """TiCDC's Canal-JSON without the extension: its clock has milliseconds, of which each transaction has its own."""

    protocol, source, dates_by_start = "canal-json", "tidb", False

    def schema_change(self, happened: Happened) -> Iterator[Message]:
        yield from CanalServer.schema_change(self, happened)  # type: ignore[arg-type]

    def row(self, happened: Happened) -> Message:
        return CanalServer.row(self, happened)  # type: ignore[arg-type]

    def _head(self, happened: Happened) -> dict[str, Any]:
        return {"id": 0, "database": DATABASE, "es": happened.ms, "ts": happened.ms + 900}


class TicdcOldCollations(Ticdc):
    """The same, of a TiDB whose collations compare bytes."""

    source, compares_bytes = "tidb-old-collations", True


class TicdcOldCollationsUnsaid(Ticdc):
    """The same where nobody has told the bridge so."""

    compares_bytes = True


class TicdcDebezium(Sender):
    """TiCDC's Debezium without watermarks: messages have a commit ts, schema changes go to every partition."""

    protocol, source, dates_by_start, broadcasts = "debezium", "tidb", False, True

    def schema_change(self, happened: Happened) -> Iterator[Message]:
        value = {
            "source": self._source(happened), "ts_ms": happened.ms + 5, "databaseName": DATABASE, "schemaName": None,
            "ddl": happened.text, "tableChanges": [],
        }  # fmt: skip
        for partition in range(self.partitions):
            key = compact({"payload": {"databaseName": DATABASE}})
            yield Message(self.name, partition, key, compact({"payload": value}), happened.number)

    def row(self, happened: Happened) -> Message:
        op = "d" if happened.after is None else "c" if happened.before is None else "u"
        value = {
            "source": self._source(happened), "ts_ms": happened.ms + 5, "transaction": None, "op": op,
            "before": happened.before, "after": happened.after,
        }  # fmt: skip
        row = happened.before if happened.after is None else happened.after
        assert row is not None
        key = compact({"payload": {name: row[name] for name in happened.key}})
        return Message(self.name, self.partition(happened), key, compact({"payload": value}), happened.number)

    def _source(self, happened: Happened) -> dict[str, Any]:
        ts = ms_tso(happened.ms) + happened.number
        return TICDC_SOURCE | {"db": DATABASE, "table": happened.table, "ts_ms": happened.ms, "commit_ts": ts}


class Debezium(Sender):
    """Debezium's connector: every message tells its place in the binlog, and the server; rows have topics by table,
    schema changes one of their own; times are whole seconds; a changed key is a delete and a create."""

    protocol, rereads, tells_servers, spreads_keyless = "debezium", True, True, True
    reads_from: int = 1
    """The number of the server."""
    _last_partition: int = 0
    """Of a row: a message without a key may go there or elsewhere."""

    def sent(self, history: Sequence[Happened]) -> list[Message]:
        """The same; when it is killed, each partition has the first of the last messages."""
        messages, at, breaks = list[Message](), 0, self.breaks(history)
        while at < len(history):
            taken = history[at : at + self.random.choice((1, 2, 5, 20))]
            batch = [message for one in taken for message in self.messages(one)]
            if broken := breaks.intersection(range(at + 1, at + len(taken) + 1)):
                soon = history[at : at + 30 : len(history) % 3 + 1]  # it may go on with the next server
                breaks, at = breaks - broken, self.again_from(history, at)
                messages += self.sent_in_part(batch)
                self.is_killed(messages)
                self.reads_from = max(self.reads_from, *(one.server for one in soon))
            else:
                messages, at = messages + batch, at + len(taken)
        return messages

    def schema_change(self, happened: Happened) -> Iterator[Message]:
        value = {
            "source": self._source(happened), "ts_ms": happened.ms + 700, "databaseName": happened.session,
            "schemaName": None, "ddl": happened.text, "tableChanges": [],
        }  # fmt: skip
        yield Message(self.name, 0, compact({"databaseName": happened.session}), compact(value), happened.number)
        words = happened.text.split()
        if self.tells_truncates and words[0] == "TRUNCATE" and not happened.is_cut:
            source = self._source(happened) | {"table": words[-1]}
            truncate = {"before": None, "after": None, "source": source, "op": "t", "ts_ms": happened.ms + 700}
            partition = self.random.choice((self._last_partition, self.random.randrange(self.partitions)))
            yield Message(self._topic_of_rows(words[-1]), partition, None, compact(truncate), happened.number)

    def _topic_of_rows(self, table: str) -> str:
        return self.topic(table) if self.has_topics else f"{self.name}.rows"

    def row(self, happened: Happened) -> Message:
        op = "d" if happened.after is None else "c" if happened.before is None else "u"
        return self._row(happened, op, self._source(happened))

    def read_again(self, happened: Happened, late_ms: int) -> Message:
        """A row of an incremental snapshot: it has the place that was reached, and the connector's clock."""
        self.reads_from = happened.server
        clock = {"ts_ms": happened.ms - late_ms, "snapshot": "incremental"}
        return self._row(happened, "r", self._source(happened) | clock)

    def _row(self, happened: Happened, op: str, source: dict[str, Any]) -> Message:
        value = {
            "before": happened.before, "after": happened.after, "source": source, "transaction": None, "op": op,
            "ts_ms": happened.ms + 700,
        }  # fmt: skip
        row = happened.before if happened.after is None else happened.after
        assert row is not None
        key = compact({name: row[name] for name in happened.key}) if happened.key else None
        topic = self._topic_of_rows(happened.table)
        partition = self.partition(happened) if happened.key else self.random.randrange(self.partitions)
        self._last_partition = partition
        return Message(topic, partition, key, compact(value), happened.number)

    def _source(self, happened: Happened) -> dict[str, Any]:
        """With GTIDs, the binlog of the server that it reads from has what the former ones wrote, with their ids."""
        self.reads_from = max(self.reads_from, happened.server)
        file, event = divmod(happened.number - (happened.server - 1) * 1000, 9)
        if self.has_gtids:
            file, event = divmod(happened.number, 9)
            file += 1000 * (self.reads_from * (-1) ** self.partitions + 5)
        uuid = f"3e11fa47-71ca-11e1-9e33-c80aa942956{happened.server}"
        return NATIVE_SOURCE | {
            "db": happened.session, "table": happened.table, "ts_ms": _second(happened.ms),
            "server_id": happened.server, "gtid": f"{uuid}:{happened.number}" if self.has_gtids else None,
            "file": f"binlog.{file + 1:06}", "pos": 4 + event * 321,
        }  # fmt: skip


class DebeziumExact(Debezium):
    """The same on a MySQL 8 with GTIDs: times are those of commits, in milliseconds."""

    dates_by_start = False

    def _source(self, happened: Happened) -> dict[str, Any]:
        return super()._source(happened) | {"ts_ms": happened.ms}


class DebeziumMariadb(Debezium):
    """The same on MariaDB, which always has GTIDs: no row of a transaction is numbered, and all have one place."""

    def _source(self, happened: Happened) -> dict[str, Any]:
        of_mariadb = {
            "connector": "mariadb",
            "version": "3.5.0.Final",
            "gtid": f"0-{happened.server}-{happened.number}",
        }
        return super()._source(happened) | of_mariadb


SENDERS: Final[dict[str, type[Sender]]] = {
    "Canal": CanalServer,
    "CKafka": Ckafka,
    "TiCDC Canal-JSON": Ticdc,
    "TiCDC Canal-JSON, old collations": TicdcOldCollations,
    "TiCDC Canal-JSON, old collations unsaid": TicdcOldCollationsUnsaid,
    "TiCDC Debezium": TicdcDebezium,
    "Debezium": Debezium,
    "Debezium, exact times": DebeziumExact,
    "Debezium, MariaDB": DebeziumMariadb,
}


def drawn(kind: str, random: Random, *, is_wide: bool = False) -> Sender:
    """A sender with settings of its own.  is_wide: with many partitions."""
    sender = SENDERS[kind]
    partitions = 64 if is_wide else random.choice((1, 1, 2, 3, 5, 7, 12 if sender.broadcasts else 64))
    of_binlog = issubclass(sender, (CanalServer, Debezium))
    has_gtids = of_binlog and (is_wide or random.random() < 0.5 or sender in {DebeziumExact, DebeziumMariadb})
    tells_none = sender is Ckafka or (sender is CanalServer and not has_gtids)
    is_in_one = tells_none and random.random() < 0.7  # as it has to be for a certain order
    return sender(
        random,
        f"{random.choice(('up', 'cdc', 'binlog'))}{random.randrange(100)}",
        1 if is_in_one else partitions,
        by_table=random.random() < 0.3,
        has_topics=of_binlog and not is_in_one and random.random() < 0.5,
        has_gtids=has_gtids,
        restarts=random.choice((0, 1, 3)),
        repeats=random.choice((8, 8, 100)),
        stays_away=random.random() < 0.5,
        tells_truncates=issubclass(sender, Debezium) and random.random() < 0.5,
    )


def offsets(messages: Sequence[Message]) -> list[tuple[str, int, int, bytes | None, bytes]]:
    """Topics, partitions, offsets, keys and values, as Kafka gives them."""
    counts: Counter[tuple[str, int]] = Counter()
    placed = []
    for one in messages:
        placed.append((one.topic, one.partition, counts[one.topic, one.partition], one.key, one.value))
        counts[one.topic, one.partition] += 1
    return placed


def _texts(row: Row) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in row.items()}
