"""Random upstreams behind models of real senders: many topics and partitions, messages sent again, failovers.

The upstream is the same server, on which each statement runs once.  A run ends with the upstream's rows, or it stops;
`SENDERS_FROM` and `SENDERS_RUNS` with `-m soak` run others.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import takewhile
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from bridge.config import DdlSection
from bridge.errors import AheadOfTargetError, BridgeError, HeldError
from bridge.events import Kind
from bridge.filters.table_filter import TableFilter
from bridge.protocols import DecodeOptions, make_decoder
from bridge.protocols.batch_decode import Messages, decode_messages
from tests.generated.senders import BEGIN_MS, DATABASE, SENDERS, Debezium, Happened, Row, Sender, drawn, offsets
from tests.generated.senders import Message as Sent
from tests.generated.verifying import verify_events
from tests.support.pipelines import admin, run_all, sql
from tests.support.verify_servers import execute

RUNS: Final = 6
"""Of each sender."""
VERIFIED: Final = {"TiCDC Canal-JSON", "TiCDC Debezium", "Debezium", "Canal"}
"""The senders whose runs are verified against their messages."""
MOST_STOPS: Final = 0.5
"""Of the runs of a sender: more would say that nothing is tested."""
UNREADABLE: Final = "ALTER TABLE {} FROBNICATE COLUMN v"
COME_FIRST: Final = ("before a schema change that has run", "it came too late", "the target has no table")
"""What stops the bridge where a killed sender that was away has sent a schema change, or what is behind it, first."""
MOST_TABLES: Final = 16
"""Of those that are made at the beginning."""
MOST_READ: Final = 1 << 20
DAMAGED: Final = 0.25
"""The share of the runs in which a message comes that cannot be decoded."""
KEPT: Final = (("drop column",), ("drop table",), *[()] * 10)
"""What the bridge may be told to ignore, so that the target keeps it: it is not taken for what comes again."""
OF_COLUMNS: Final = 0.5
"""The share of the runs with schema changes of columns alone where only these tell the order: others are held there."""
BATCHES: Final = (1, 3, 30, 1000, 1000)
BURST: Final = 200
"""So many rows of many keys are read at once, behind the last schema change: some of a key, out of many partitions."""
FIRST_VALUE: Final = 100
"""Above the keys: every value but those of keys is another one."""


class Upstream:
    """Tables `t0`, `t1`, ... of a database, and what happens to them.

    tables: at most so many.  steps: by how many milliseconds the clock may go on.  spells: keys are words, some of
    which differ in the case of their letters only.  by_start: schema changes are dated by their start.
    in_seconds: nothing comes in the second of a schema change behind it.  has_unique: tables have a unique key `u`.
    moves: a row may get another key.  in_transactions: it may be changed before, in the same transaction.
    has_keyless: some tables have no key.
    selects: a table may be made in one transaction with its first row (CREATE TABLE ... SELECT).
    of_columns: schema changes are ADD and DROP COLUMN alone, of which rows show whether they are before them.
    changes: the share of schema changes.
    first: the number of the first table, and of what else tells it from another upstream.
    """

    def __init__(
        self,
        random: Random,
        tables: int,
        steps: Sequence[int],
        *,
        spells: bool,
        by_start: bool,
        in_seconds: bool,
        has_unique: bool,
        moves: bool = True,
        in_transactions: bool = False,
        has_keyless: bool = False,
        selects: bool = False,
        of_columns: bool = False,
        changes: float = 0.15,
        first: int = 0,
    ) -> None:
        self._changes, self._of_columns = changes, of_columns
        self.random, self._most, self._steps, self._spells, self._by_start = random, tables, steps, spells, by_start
        self._selects, self._is_in_one, self._moves = selects, False, moves
        self._in_seconds, self._has_keyless, self._in_transactions = in_seconds, has_keyless, in_transactions
        self._unique = ", UNIQUE KEY u (v)" if has_unique else ""
        self.types: dict[str, dict[str, str]] = {}
        self.keys: dict[str, tuple[str, ...]] = {}
        self.rows: dict[str, dict[Any, Row]] = {}
        self.done: list[Happened] = []
        self._first = first
        self.server, self._ms, self._count, self._values = first + 1, BEGIN_MS, first * 1000, FIRST_VALUE + first * 1000
        self._waits_since: int | None = None
        self._since = 0
        """When the present server took over: nothing began there before."""
        self._hot: Any = None
        """The key that was written last, which is often written again."""

    def happen(self) -> None:
        """Something random."""
        if len(self.types) < min(2, self._most) or self.random.random() < self._changes:
            self._change_schema()
        else:
            self._change_row(self.random.choice(sorted(self.types)))

    def write(self, count: int) -> None:
        """So many rows are written, without a schema change."""
        for _ in range(count):
            self._change_row(self.random.choice(sorted(self.types)))

    def make(self) -> None:
        """A table with some rows."""
        if free := self._free():
            self._create(self.random.choice(free))
        for _ in range(self.random.randrange(4)):
            self._change_row(self.random.choice(sorted(self.types)))

    def _free(self) -> list[str]:
        names = (f"t{self._first + n}" for n in range(self._most))
        return [name for name in names if name not in self.types]

    def fail_over(self) -> None:
        """Another server goes on, perhaps within the second, whose binlog has the same name and begins anew."""
        self.server += 1
        self._ms, self._waits_since = self._ms + self.random.choice((1, 5_000)), None
        self._since = self._ms
        self._count = (self.server - 1) * 1000

    def _tell(self, *, is_next: bool = True, **fields: Any) -> None:
        """It has happened; is_next: in a transaction of its own."""
        is_next = is_next and not self._is_in_one
        self._ms += self.random.choice(self._steps) if is_next else 0
        self._count += is_next
        at = self._ms
        if "text" in fields and self._waits_since is not None:
            at, self._waits_since = self._waits_since, None
        elif "text" in fields and self._by_start:
            at = max(self._since, at - self.random.choice((0, 0, 0, 2500)))
        self.done.append(Happened(self._count, at, server=self.server, **fields))

    def _change_row(self, table: str) -> None:
        key, rows, types = self.keys[table], self.rows[table], self.types[table]
        what, before = self.random.choice([(None, None), *rows.items()])
        if self._hot in rows and self.random.random() < 0.5:
            what, before = self._hot, rows[self._hot]
        self._hot = what
        if before is not None and self.random.random() < 0.3:
            del rows[what]
            self._tell(table=table, types=types, key=key, before=before)
            return
        after: Row = {name: self._value(kind) for name, kind in types.items()}
        if key:
            after |= {name: before[name] if before else self._key_value(types[name]) for name in key}
            what = tuple(after[name] for name in key)
            if before is not None and self.random.random() < 0.3:
                if self._moves:
                    self._move_row(table, before)
                return
        before = rows.get(what)
        rows[object() if what is None else what] = after
        self._tell(table=table, types=types, key=key, before=before, after=after)

    def _move_row(self, table: str, before: Row) -> None:
        """A row gets another key; perhaps its former key is taken at once."""
        key, rows, types = self.keys[table], self.rows[table], self.types[table]
        after = {**before, **{name: self._key_value(types[name]) for name in key}}
        if not key or tuple(after[name] for name in key) in rows:
            return
        is_changed = self._in_transactions and self.random.random() < 0.5
        if is_changed:
            row = {name: before[name] if name in key else self._value(kind) for name, kind in types.items()}
            self._tell(table=table, types=types, key=key, before=before, after=row)
            before, after = row, {**row, **{name: after[name] for name in key}}
        del rows[tuple(before[name] for name in key)]
        rows[tuple(after[name] for name in key)] = after
        self._tell(is_next=not is_changed, table=table, types=types, key=key, before=before, after=after)

    def _value(self, kind: str) -> int | str:
        self._values += 1
        return self._values if kind == "INT" else f"v{self._values}"

    def _key_value(self, kind: str) -> int | str:
        number = self.random.randrange(9)
        return number if kind == "INT" else self.random.choice(("a", "A", "b", "B", "c ", "c"))

    def _change_schema(self) -> None:
        free = self._free()
        if free and (len(self.types) < 2 or (not self._of_columns and self.random.random() < 0.4)):
            return self._create(self.random.choice(free))
        table = self.random.choice(sorted(self.types))
        if self._by_start and self.random.random() < 0.4:
            self._wait(table, self._ms)
        undone = (self._truncate, self._swap)  # by what is sent again, where the bridge does not see that it is
        others = (self._drop, self._rename, self._add, self._drop_column, self._make_anew)
        of_columns = (self._add, self._drop_column)
        kind = self.random.choice(of_columns if self._of_columns else (*undone, *undone, *others))
        return kind(table, free)

    def _wait(self, table: str, began: int) -> None:
        """A schema change has begun, and waits for those who write into its table, maybe for longer than a second."""
        self._ms += self.random.choice((0, 1500))
        for _ in range(self.random.randrange(1, 4)):
            self._change_row(table)
        self._waits_since = began

    def say(self, text: str, **fields: Any) -> None:
        """A schema change."""
        self._tell(text=text, **fields)
        self._ms += 1000 if self._in_seconds else 0

    def _create(self, table: str) -> None:
        kind = "VARCHAR(9)" if self._spells else "INT"
        is_keyless = self._has_keyless and self.random.random() < 0.3
        self.types[table], self.keys[table], self.rows[table] = (
            {"id": kind, "v": "INT"},
            () if is_keyless else ("id",),
            {},
        )
        collation = " DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci" if self._spells else ""
        self.say(
            f"CREATE TABLE {table} (id {kind}{'' if is_keyless else ' PRIMARY KEY'}, v INT{self._unique}){collation}"
        )
        if self._selects and self.random.random() < 0.3:
            self._is_in_one = True
            self._change_row(table)
            self._is_in_one = False

    def _truncate(self, table: str, _free: Sequence[str]) -> None:
        """Perhaps once more within the second: the same statement, with rows between.  It may have waited for them."""
        first = 0
        for number in range(self.random.choice((1, 2, 2))):
            if number and self._by_start and self.random.random() < 0.8:
                self._wait(table, self.random.choice((self.done[first].ms, self._ms)))
            self.rows[table], first = {}, len(self.done)
            self.say(f"TRUNCATE TABLE {table}")
            for _ in range(self.random.randrange(3)):
                self._change_row(table)

    def _drop(self, table: str, _free: Sequence[str]) -> None:
        del self.types[table], self.keys[table], self.rows[table]
        self.say(f"DROP TABLE {table}")

    def _rename(self, table: str, free: Sequence[str]) -> None:
        if free:
            self._move(table, free[0])
            self.say(f"RENAME TABLE {table} TO {free[0]}")

    def _swap(self, table: str, _free: Sequence[str]) -> None:
        other = next((one for one in sorted(self.types) if one != table), None)
        if other is not None:
            self._move(table, "aside")
            self._move(other, table)
            self._move("aside", other)
            self.say(f"RENAME TABLE {table} TO aside, {other} TO {table}, aside TO {other}")

    def _move(self, table: str, to: str) -> None:
        self.types[to], self.keys[to] = self.types.pop(table), self.keys.pop(table)
        self.rows[to] = self.rows.pop(table)

    def _add(self, table: str, _free: Sequence[str]) -> None:
        self._values += 1
        name = f"c{self._values}"
        self.types[table] = {**self.types[table], name: "INT"}
        self.rows[table] = {key: {**row, name: 0} for key, row in self.rows[table].items()}
        self.say(f"ALTER TABLE {table} ADD COLUMN {name} INT NOT NULL DEFAULT 0")

    def _drop_column(self, table: str, _free: Sequence[str]) -> None:
        others = [name for name in self.types[table] if name not in self.keys[table]]
        if len(others) > 1:
            gone = self.random.choice(others)
            self.types[table] = {name: kind for name, kind in self.types[table].items() if name != gone}
            self.rows[table] = {
                key: {name: value for name, value in row.items() if name != gone}
                for key, row in self.rows[table].items()
            }
            self.say(f"ALTER TABLE {table} DROP COLUMN {gone}")

    def _make_anew(self, table: str, _free: Sequence[str]) -> None:
        """A column is dropped and made again, by one statement, or by two that may be of one second."""
        others = [
            name for name in self.types[table] if name not in self.keys[table] and not (name == "v" and self._unique)
        ]
        if others:
            name = self.random.choice(others)
            self.types[table] = {**{one: kind for one, kind in self.types[table].items() if one != name}, name: "INT"}
            self.rows[table] = {key: {**row, name: 0} for key, row in self.rows[table].items()}
            dropped, added = f"DROP COLUMN {name}", f"ADD COLUMN {name} INT NOT NULL DEFAULT 0"
            for text in self.random.choice(([f"{dropped}, {added}"], [dropped, added])):
                self._tell(text=f"ALTER TABLE {table} {text}")
            self._ms += 1000 if self._in_seconds else 0

    def lose_key(self, table: str) -> None:
        """Its primary key is dropped; then a row comes of which there is one with the former key."""
        self.say(f"ALTER TABLE {table} DROP PRIMARY KEY")
        for row in [*self.rows[table].values()][:1]:
            twin = {**row, "v": self._value("INT")}
            self._tell(table=table, types=self.types[table], key=(), after=twin)
            self.rows[table][object()] = twin

    def lose_unique(self, table: str) -> None:
        """Its unique key is dropped; then rows come that have a value of it twice."""
        self.say(f"ALTER TABLE {table} DROP INDEX u")
        for row in [*self.rows[table].values()][:1]:
            key = next(one for one in ("x", "y") if (one,) not in self.rows[table]) if self._spells else 9
            twin = {**row, "id": key}
            self._tell(table=table, types=self.types[table], key=("id",), after=twin)
            self.rows[table][key,] = twin

    def state(self) -> dict[str, tuple[list[str], list[tuple[Any, ...]]]]:
        """Columns and rows of each table."""
        return {
            table: (
                sorted(types),
                sorted(tuple(row[name] for name in sorted(types)) for row in self.rows[table].values()),
            )
            for table, types in self.types.items()
        }


def state_of(url: str) -> dict[str, tuple[list[str], list[tuple[Any, ...]]]]:
    """The same of the target."""
    found = {}
    with admin(url) as session:
        for (table,) in session.rows(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", [DATABASE]
        ):
            columns = sorted(column for column, *_ in session.rows(f"SHOW COLUMNS FROM {DATABASE}.{table}"))
            rows = session.rows(f"SELECT {', '.join(columns)} FROM {DATABASE}.{table}")
            found[table] = (columns, sorted(rows, key=lambda row: [(value is None, value) for value in row]))
    return found


State = dict[str, tuple[list[str], list[tuple[Any, ...]]]]


def of_tables(got: State, want: State) -> State:
    """What is there of the tables and columns that are wanted."""
    found = {}
    for name in got.keys() & want.keys():
        columns, rows = got[name]
        wanted = [columns.index(column) for column in want[name][0] if column in columns]
        found[name] = [columns[n] for n in wanted], sorted(tuple(row[n] for n in wanted) for row in rows)
    return found


def events_of(sender: Sender, messages: Sequence[Sent]) -> pa.Table:
    """The events, as they are read."""
    read = Messages(*map(list, zip(*offsets(messages), strict=True)))
    events = decode_messages(make_decoder(sender.protocol, DecodeOptions("UTC")), read)
    order = {where: n for n, where in enumerate(zip(read.topic, read.partition, read.offset, strict=True))}
    names = ("topic", "partition", "offset")
    where = zip(*(events[name].to_pylist() for name in names), strict=True)
    return events.take(pa.array(sorted(range(events.num_rows), key=[order[one] for one in where].__getitem__)))


def read_unevenly(events: pa.Table, random: Random) -> pa.Table:
    """The events as they are read where partitions bring theirs later than others, and perhaps the rest of one, with
    the last schema changes, comes behind all others."""
    waiting: dict[tuple[str, int], list[int]] = {}
    for number, where in enumerate(zip(events["topic"].to_pylist(), events["partition"].to_pylist(), strict=True)):
        waiting.setdefault(where, []).append(number)
    changes = [n for n, kind in enumerate(events["kind"].to_pylist()) if kind == Kind.SCHEMA_CHANGE]
    order, rest = list[int](), list[int]()
    if changes and random.random() < 0.5:
        since = random.choice(changes[-3:])
        where, mine = next((where, mine) for where, mine in waiting.items() if since in mine)
        rest = mine[mine.index(since) :]
        waiting[where] = mine[: mine.index(since)]
    waiting = {where: mine for where, mine in waiting.items() if mine}
    while waiting:
        of = random.sample(sorted(waiting), min(random.choice((1, 2)), len(waiting)))
        where = min(of, key=lambda one: waiting[one][0])
        count = random.randint(1, 6)
        order += waiting[where][:count]
        if later := waiting[where][count:]:
            waiting[where] = later
        else:
            del waiting[where]
    return events.take(pa.array(order + rest))


def with_snapshots(sender: Sender, history: Sequence[Happened], messages: list[Sent], random: Random) -> list[Sent]:
    """Rows of incremental snapshots stand among the messages, each as the row was at its place."""
    if not isinstance(sender, Debezium) or sender.away or random.random() < 0.5:
        return messages
    found = list(messages)
    for one in history:
        if one.after is not None and one.key and random.random() < 0.1:
            late = random.choice((0, 60, 1500))
            at = next(n for n, sent in enumerate(found) if sent.number == one.number)
            again = sender.read_again(one, late)
            found.insert(at + 1, again)
    return found


def values_behind(history: Sequence[Happened], one: Happened, messages: Sequence[Sent]) -> set[Any]:
    """The values that came first behind something that happened, and were not sent before it, as by a sender that was
    killed in the midst of a batch."""
    sent_before = {sent.number for sent in takewhile(lambda sent: sent.number != one.number, messages)}
    told: dict[bool, set[Any]] = {False: set(), True: set()}
    for other in history:
        told[other.number > one.number and other.number not in sent_before] |= {
            *(other.after or {}).values(),
            *(other.before or {}).values(),
        }
    return {value for value in told[True] - told[False] if isinstance(value, int) and value > FIRST_VALUE}


def _lose(upstream: Upstream, loses: str, random: Random, *, may_miss: bool) -> tuple[tuple[str, ...], Happened | None]:
    """A key is lost: either the bridge is told to ignore that (gives the classes), or the message of it is missing."""
    if not loses or not upstream.types:
        return (), None
    began = len(upstream.done)
    (upstream.lose_key if loses == "primary" else upstream.lose_unique)(random.choice(sorted(upstream.types)))
    if loses == "primary" and random.random() < 0.5 and may_miss:
        return (), upstream.done[began]
    return ("drop primary key" if loses == "primary" else "drop index",), None


def _applied(
    url: str, events: pa.Table, cuts: Sequence[int], random: Random, *, batches: Sequence[int] = BATCHES, **options: Any
) -> BridgeError | None:
    """Applies events, with a restart at each cut; gives what stopped it.  batches: how many may be read at once.

    A part of a batch of Canal's may end in rows whose CREATE TABLE is in the rest: the next start goes on with it.
    """
    for end in (*cuts, events.num_rows):
        batch = random.choice(batches)
        try:
            run_all(url, events.slice(0, end), batch=batch, boundary_seconds=60, **options)
        except AheadOfTargetError as error:
            if end == events.num_rows:
                return error
        except BridgeError as error:
            return error
    return None


def damaged(messages: Sequence[Sent], changes: set[int], random: Random) -> list[Sent]:
    """The messages, of which one cannot be decoded, before a schema change of its partition where there is one.

    changes: the numbers of what are schema changes.
    """
    behind, found = set[tuple[str, int]](), list[int]()
    for n, one in reversed([*enumerate(messages)]):
        found += [n] if (one.topic, one.partition) in behind else []
        behind |= {(one.topic, one.partition)} if one.number in changes else set()
    at = random.choice(found or range(len(messages)))
    return [one._replace(value=one.value[:-9]) if n == at else one for n, one in enumerate(messages)]


def beside(kind: str, random: Random) -> tuple[list[Sent], Upstream] | None:
    """What another connector of the pipeline sends, and of which upstream; None where it stays away for a while."""
    sender = drawn(kind, random)
    sender.name += "other"
    upstream = Upstream(
        random, 2, (1500,), spells=False, by_start=False, in_seconds=True, has_unique=False, changes=0.2, first=500
    )
    for _ in range(random.randrange(1, 12)):
        upstream.happen()
    sent = sender.sent(upstream.done)
    return None if sender.away else (sent, upstream)


def mixed(random: Random, *sent: Sequence[Sent]) -> list[Sent]:
    """What several have sent, as Kafka took it."""
    order = [n for n, messages in enumerate(sent) for _ in messages]
    random.shuffle(order)
    each = [iter(messages) for messages in sent]
    return [next(each[n]) for n in order]


def nobody(_events: pa.Table, _protocol: str) -> None:
    """Looks."""


def one_run(url: str, kind: str, seed: int, look: Callable[[pa.Table, str], None] = nobody) -> str:
    """How a run ended: `equal`, `rightly stopped` or `stopped`.  Fails where it is none of them.  look: is given the
    events of a run that ended equal, and their protocol."""
    random = Random(f"{kind} {seed}")
    is_short = random.random() < 0.6  # and what is wrong is not written over by later rows
    is_wide = seed % RUNS == RUNS - 1 and not SENDERS[kind].broadcasts
    """Everything is read at once, of many topics or partitions."""
    tables = MOST_TABLES if is_wide else random.choice((1, 2, 3) if is_short else (1, 2, 4, 12, 100))
    sender = drawn(kind, random, is_wide=is_wide)
    steps: tuple[int, ...] = (1, 2, 300, 1500)
    if sender.dates_by_start:
        steps = random.choice(((0, 1, 300, 1500), (0,) * 9 + (1500,)))
    of_columns = not sender.tells_order and Random(f"{kind} {seed} columns").random() < OF_COLUMNS
    sender.restarts = 0 if of_columns else sender.restarts
    loses = "" if is_wide else random.choice(("primary", "unique", *[""] * 10))
    upstream = Upstream(
        random,
        tables,
        steps,
        spells=sender.compares_bytes,
        by_start=sender.tells_late,
        in_seconds=not sender.tells_order and bool(sender.restarts),
        has_unique=loses == "unique",
        moves=sender.tells_keys or sender.partitions == 1,  # else nothing tells which row of a second came first
        in_transactions=not sender.splits_moves and not sender.stays_away,  # else late_rows names what may come again
        has_keyless=sender.spreads_keyless and not (loses or is_wide) and random.random() < 0.3,
        selects=sender.tells_places,
        of_columns=of_columns,
        changes=0.4 if is_short else 0.15,
    )
    for _ in range(min(tables, MOST_TABLES)):
        upstream.make()
    count, ends_at = random.randrange(4, 16) if is_short else random.randrange(10, 60), None
    unreadable_at = random.randrange(count) if random.random() < 0.12 and not (loses or is_wide) else None
    for number in range(count):
        upstream.happen()
        if sender.tells_servers and random.random() < (0.1 if is_short else 0.02):
            upstream.fail_over()
        if number == unreadable_at and upstream.types:
            table = random.choice(sorted(upstream.types))
            upstream.say(UNREADABLE.format(table), is_cut=random.random() < 0.6)
            ends_at = upstream.done[-1]
    settled = len(upstream.done)
    if is_wide:
        upstream.write(BURST)
    ignored, missing = _lose(upstream, loses, random, may_miss=sender.tells_keys)
    is_spread = sender.partitions > 1 and any(not one.text and not one.key for one in upstream.done)
    sql(
        url,
        "DROP DATABASE IF EXISTS _bridge",
        f"DROP DATABASE IF EXISTS {DATABASE}",
        f"CREATE DATABASE {DATABASE}",
        "SELECT 1",
    )
    sent = sender.sent([one for one in upstream.done if one is not missing])
    messages = with_snapshots(sender, upstream.done, sent, random)
    other = None
    if sender.tells_places and not sender.away and random.random() < 0.25:
        other = beside(kind, random)
    messages = messages if other is None else mixed(random, messages, other[0])
    events = events_of(sender, messages)
    dice = Random(f"{kind} {seed} damage")
    kept: tuple[str, ...] = () if loses or is_wide else dice.choice(KEPT)
    rules = DdlSection(source=sender.source, ignore=ignored + kept).rules(TableFilter())
    partitions = sorted({(one.topic, one.partition) for one in messages})
    cuts = sorted(random.sample(range(1, events.num_rows), min(random.randrange(3), events.num_rows - 1)))
    if is_wide:
        behind = {one.number for one in upstream.done[settled:]}
        begins = next(n for n, one in enumerate(messages) if one.number in behind)
        cuts = sorted({*cuts, events_of(sender, messages[:begins]).num_rows})
    is_uneven = sender.tells_places and not sender.away and random.random() < 0.3
    cuts = sorted({*cuts, *(events_of(sender, messages[:end]).num_rows for end in sender.away if end)})
    if is_uneven:
        events, cuts = read_unevenly(events, random), []  # behind a restart nothing tells what came late
    told = f"{kind}, seed {seed}: {sender}"
    options: dict[str, Any] = {"protocol": sender.protocol, "ddl": rules, "partitions": partitions}
    options["batches"] = [MOST_READ] if is_wide else BATCHES[:3] if is_uneven else BATCHES
    if not (is_uneven or is_wide) and dice.random() < DAMAGED:  # it stops there, and goes on once that is mended
        changes = {one.number for one in upstream.done if one.text}
        bad = events_of(sender, damaged(messages, changes, dice))
        first = _applied(url, bad, (), dice, **options | {"batches": [MOST_READ]})
        assert first is not None, f"{told}: it passed over a message that cannot be decoded"
    with capture_logs() as said:
        stop = _applied(url, events, cuts, random, **options)
    if stop is not None:
        is_told = ends_at is not None and sender.tells_order and not is_uneven  # or rows may be read before it
        behind = values_behind(upstream.done, ends_at, messages) if ends_at and is_told else set[Any]()
        early = behind & {value for _, rows in state_of(url).values() for row in rows for value in row}
        assert not early, f"{told}: {early} came behind a schema change that cannot be read: {stop}"
        is_late = is_uneven and isinstance(stop, AheadOfTargetError)  # rows of a table whose CREATE TABLE was not read
        is_unclear = isinstance(stop, HeldError) and (is_uneven or not sender.tells_order)  # it may come too late
        is_unsaid = sender.compares_bytes and "old" not in sender.source
        is_first = bool(sender.away) and any(text in str(stop) for text in COME_FIRST)
        is_told_to = ends_at is not None or bool(loses or kept)
        is_right = is_told_to or is_spread or is_unclear or is_unsaid or is_first or is_late
        tells_all = sender.has_gtids or not sender.dates_by_start
        is_told_all = tells_all and other is None and not (sender.restarts or upstream.server > 1)
        assert is_right or not is_told_all, f"{told}: messages tell the order of all, and nothing comes again: {stop}"
        is_shown = of_columns and isinstance(stop, AheadOfTargetError) and not is_told_to
        assert not is_shown, f"{told}: rows show on which side they are: {stop}"
        return f"{'rightly ' if is_right else ''}stopped: {type(stop).__name__}: {stop}"
    assert ends_at is None, f"{told}: it went on behind a schema change that cannot be read"
    want, got = upstream.state() | ({} if other is None else other[1].state()), state_of(url)
    says = ("late_rows", *(("rows_may_be_twice",) if sender.tells_servers else ()))
    named = {one["table"] for one in said if one["event"] in says}
    if named and any(one.text.startswith("RENAME") for one in upstream.done):  # with the rows that it had
        named = {f"{DATABASE}.{name}" for name in want}
    got = of_tables(got, want) if kept else got
    for name in (name for name in want if f"{DATABASE}.{name}" in named and name in got):
        if not set(want[name][1]).difference(got[name][1]):  # it says that rows may be there that are gone
            got[name] = got[name][0], want[name][1]
    assert got == want, (told, [f"{one.number} {one.text or (one.table, one.after)}" for one in upstream.done])
    look(events, sender.protocol)
    return "equal"


@pytest.mark.parametrize("kind", SENDERS)
def test_runs_of_a_sender_end_equal_or_stop(target: str, kind: str) -> None:
    """Whatever the topics and partitions, what is sent again, read again or written by another server: never another
    state than the upstream's, and not often a stop.  Verify finds what is equal equal; and a row that is gone from the
    target is missing, where the log tells it."""
    told = list[bool]()

    def look(events: pa.Table, protocol: str) -> None:
        report = verify_events(target, events, protocol)
        assert report.is_equal, report.document()
        for table in report.tables:
            execute(target, f"DELETE FROM {table.name} LIMIT 1")
        told.append(not verify_events(target, events, protocol).is_equal)

    verified = look if kind in VERIFIED else nobody
    ends = Counter(one_run(target, kind, seed, verified).partition(":")[0] for seed in range(RUNS))
    assert ends["stopped"] <= MOST_STOPS * RUNS, ends
    assert any(told) or verified is nobody


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", SENDERS)
def test_many_runs_of_a_sender(target: str, kind: str) -> None:
    """The same for more runs."""
    first, wrong = int(os.environ.get("SENDERS_FROM", "1000")), []
    ends: Counter[str] = Counter()
    for seed in range(first, first + int(os.environ.get("SENDERS_RUNS", "200"))):
        try:
            ends[one_run(target, kind, seed)[:110]] += 1
        except Exception as error:  # noqa: BLE001  # a crash is as wrong as another state
            wrong.append(f"seed {seed}: {type(error).__name__}: {str(error)[:2000]}")
    print("\n".join(f"{count:5} {end}" for end, count in ends.most_common()))
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n\n".join(wrong[:5])
