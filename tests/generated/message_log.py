"""The messages of a run: what its upstream did, at places of a topic, in the order in which they are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

import pyarrow as pa

from bridge.protocols import Decoder
from bridge.protocols.batch_decode import Messages, decode_messages
from tests.generated.cases import Case
from tests.generated.dimensions import NONE
from tests.generated.history import BEGIN
from tests.generated.names import NAMES, Names
from tests.generated.shards import SHARDS, Shards
from tests.generated.tables import COUNTED, RESERVED, Equality, Table, reserved_row
from tests.generated.upstream import STATEMENTS_APART, Change, Step
from tests.generated.wires import ROWS, STATEMENTS, Message

PARTITIONS: Final = {"one": 1, "by table": 2, "by key": 3, "growing": 3}


@dataclass(frozen=True)
class Placed:
    """A message at its place.

    turn: of the transaction that it belongs to, in the order in which they are sent; step: the transaction's number.
    is_reserved: a row change that is left out.  table: as of `Message`.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    turn: int
    step: int
    is_reserved: bool
    table: str


def messages_of(placed: Sequence[Placed]) -> Messages:
    """Messages as they are read."""
    return Messages(
        [m.topic for m in placed], [m.partition for m in placed], [m.offset for m in placed],
        [m.key for m in placed], [m.value for m in placed],
    )  # fmt: skip


def decoded(decoder: Decoder, messages: Sequence[Placed]) -> pa.Table:
    """The events of messages."""
    return decode_messages(decoder, messages_of(messages))


class _Sent(NamedTuple):
    """A message on its way; turn, step: as of `Placed`."""

    where: tuple[str, int]
    message: Message
    turn: int
    step: int


class Log:
    """The messages of a run in the order in which they are read."""

    def __init__(self, case: Case, steps: Sequence[Step], random: Random, equality: Equality) -> None:
        self._case, self._random = case, random
        sharded = case.tables[0].name if case.choice["route"] == "shards" else ""
        self._shards = Shards(sharded, equality, random.choice(SHARDS))
        self._wire = case.wire(random, case.choice["unique updates"] == "split")
        self._partitions = PARTITIONS[case.choice["partitions"]]
        self.growth = random.randrange(len(steps) + 1) if case.choice["partitions"] == "growing" else None
        """From that turn on there are all partitions; before there is one."""
        self._names = Names(NAMES.get(case.choice["names"], {}))
        self._numbers = {self._names(table.name): number for number, table in enumerate(case.tables)}
        batches = self._batches(steps)
        self._sent = [
            _Sent(where, message, turn, number)
            for turn, number in enumerate(self._again(len(batches)))
            for where, message in batches[number]
        ]
        self.messages = self._placed(self._interleaved())
        self._ts = [step.ts for step in steps]

    def known(self, until: int) -> set[tuple[str, int]]:
        """The partitions of which a bridge knows that has read so many messages."""
        there = self.messages if self.growth is None else self.messages[:until]
        return {(ROWS, 0), *((one.topic, one.partition) for one in there)}

    def _count(self, turn: int) -> int:
        return 1 if self.growth is not None and turn < self.growth else self._partitions

    def _batches(self, steps: Sequence[Step]) -> list[list[tuple[tuple[str, int], Message]]]:
        """What each step sends, with the boundaries behind it."""
        batches = []
        for number, step in enumerate(steps):
            following = steps[number + 1].ts if number + 1 < len(steps) else step.ts + 1
            count = self._count(number)
            if step.ddl:
                batch = self._schema_change(self._shards.first(step.ddl), step.ts, count)
            else:
                changes = [*map(self._names.change, self._shards.told(step.changes))]
                messages = self._wire.transaction(changes, step.ts)
                batch = [(self._place(m, count), m) for m in self._with_reserved(messages, step.ts)]
                batch += self._unwanted(step.ts, count)
            batch += self._late_shard(steps, number, count)
            batches.append([*batch, *self._boundaries(step.ts, following, count)])
        if self._wire.has_boundaries:
            last = steps[-1].ts + 1 if steps else BEGIN
            batches.append(self._to_all(self._wire.boundary(last), self._partitions))
        return batches

    def _schema_change(
        self, ddl: tuple[Table, Table, str], ts: int, count: int
    ) -> list[tuple[tuple[str, int], Message]]:
        was, now = map(self._names.table, ddl[:2])
        numbers = self._numbers
        numbers[now.name], numbers[was.name] = numbers[was.name], numbers.get(now.name, numbers[was.name])
        messages = [self._wire.ddl((was, now, self._names.sql(one)), ts) for one in ddl[2].split(STATEMENTS_APART)]
        return [sent for one in messages for sent in self._everywhere(one, now.name, count)]

    def _late_shard(self, steps: Sequence[Step], number: int, count: int) -> list[tuple[tuple[str, int], Message]]:
        """The schema change that the late shard has behind a step, at the latest when a row needs it."""
        if self._shards.waits is None:
            return []
        ts, following = steps[number].ts, steps[number + 1] if number + 1 < len(steps) else None
        if not self._shards.must_come(following) and self._random.random() < 0.6:
            return []
        between = ts + 1 if following and following.ts > ts + 1 else ts
        return self._schema_change(self._shards.later(), between, count)

    def _unwanted(self, ts: int, count: int) -> list[tuple[tuple[str, int], Message]]:
        """A schema change of a table that is not replicated."""
        if self._case.choice["left out"] != "table filter" or self._random.random() < 0.7:
            return []
        table = self._random.choice(RESERVED["table filter"])
        text = self._random.choice(("CREATE TABLE `{}` (k INT PRIMARY KEY)", "DROP TABLE `{}`", "TRUNCATE TABLE `{}`"))
        ddl = self._wire.ddl((table, table, text.format(table.name)), ts)
        return self._everywhere(ddl, table.name, count)

    def _with_reserved(self, messages: list[Message], ts: int) -> list[Message]:
        """Row changes that are left out stand among those of a transaction."""
        whose = self._case.choice["left out"]
        for _ in range(self._random.choice((0, 1, 1, 3)) if whose != NONE else 0):
            table = self._random.choice(RESERVED[whose])
            was, now = reserved_row(table, self._random), reserved_row(table, self._random)
            changes = [Change(table, None, now), Change(table, was, None), *([Change(table, was, now)] * (was != now))]
            sent = self._wire.transaction([self._random.choice(changes)], ts)
            at = self._random.randrange(len(messages) + 1)
            is_counted = whose in COUNTED
            marked = [one._replace(is_reserved=is_counted and one.value is not None) for one in sent]
            messages = [*messages[:at], *marked, *messages[at:]]
        return messages

    def _boundaries(self, ts: int, following: int, count: int) -> list[tuple[tuple[str, int], Message]]:
        how = self._case.choice["boundaries"]
        if how in {NONE, "last"} or (how == "some" and self._random.random() < 0.6):
            return []
        sent = self._to_all(self._wire.boundary(self._random.choice((ts, ts + 1, following))), count)
        return sent if self._random.random() < 0.7 else self._random.sample(sent, k=1)

    def _everywhere(self, ddl: Message, table: str, count: int) -> list[tuple[tuple[str, int], Message]]:
        if ddl.topic == STATEMENTS:
            return [((STATEMENTS, 0), ddl)]
        if self._wire.broadcasts:
            return self._to_all(ddl, count)
        is_first = self._wire.is_tidb or count == 1
        return [((ROWS, 0 if is_first else self._numbers.get(table, 0) % count), ddl)]

    def _to_all(self, message: Message, count: int) -> list[tuple[tuple[str, int], Message]]:
        return [((ROWS, p), message) for p in range(count)]

    def _place(self, message: Message, count: int) -> tuple[str, int]:
        if self._case.choice["partitions"] in {"by key", "growing"}:
            return ROWS, sum((message.row or "").encode()) % count
        return ROWS, self._numbers.get(message.table, 0) % count

    def _again(self, count: int) -> list[int]:
        """The numbers of so many transactions in the order in which they are sent, some a second time."""
        how, once = self._case.choice["redelivery"], list(range(count))
        if how == "whole topic":
            return once * 2
        if how != "copies" or not count:
            return once
        end = self._random.randrange(count) + 1
        return [*once[:end], *once[self._random.randrange(end) : end], *once[end:]]

    def _interleaved(self) -> list[_Sent]:
        """Partitions are read one ahead of the other, where boundaries tell what is complete."""
        if not self._wire.has_boundaries or self._partitions == 1 or self._random.random() < 0.3:
            return self._sent
        queues: dict[tuple[str, int], list[_Sent]] = {}
        for sent in self._sent:
            queues.setdefault(sent.where, []).append(sent)
        merged = []
        while queues:
            where = self._random.choice(sorted(queues))
            count = self._random.choice((1, 1, 2, 5, 50))
            merged += queues[where][:count]
            queues[where] = queues[where][count:]
            if not queues[where]:
                del queues[where]
        return merged

    def _placed(self, sent: Sequence[_Sent]) -> list[Placed]:
        offsets: Counter[tuple[str, int]] = Counter()
        placed = []
        for where, message, turn, step in sent:
            at = (*where, offsets[where])
            placed.append(Placed(*at, message.key, message.value, turn, step, message.is_reserved, message.table))
            offsets[where] += 1
        return placed
