"""Verify against the messages of a run, without Spark: what it computes on executors runs in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pyarrow as pa

from bridge.config import Settings
from bridge.model import PartitionId, Table, quote_name
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.state.progress import ProgressTable
from bridge.mysql.table_definition import Definition
from bridge.protocols.batch_decode import EventDecoder, Messages
from bridge.sources.source import Export, Extent, Source, TopicNow
from bridge.verify.log import log_tables, recompute, verification
from bridge.verify.log.log_tables import LoggedTable, find_cuts
from bridge.verify.log.verification import LogVerification
from bridge.verify.options import VerifyOptions
from bridge.verify.report import Report
from tests.support.verify_servers import Quiet


class InProcess:
    """What verify uses of an RDD, over partitions that are lists."""

    def __init__(self, parts: Sequence[Sequence[Any]]) -> None:
        self._parts = parts

    def parallelize(self, items: Iterable[Any], count: int) -> InProcess:
        """As a Spark context does."""
        del count
        return InProcess([[one] for one in items])

    def map(self, function: Callable[[Any], Any]) -> InProcess:
        """One by one."""
        return InProcess([[function(one) for one in part] for part in self._parts])

    def mapPartitions(self, function: Callable[[Iterable[Any]], Iterable[Any]]) -> InProcess:  # noqa: N802  # of an RDD
        """Part by part."""
        return InProcess([list(function(part)) for part in self._parts])

    def partitionBy(self, count: int, number: Callable[[Any], int]) -> InProcess:  # noqa: N802
        """By the numbers of the keys."""
        made: list[list[Any]] = [[] for _ in range(count)]
        for one in chain.from_iterable(self._parts):
            made[number(one[0]) % count].append(one)
        return InProcess(made)

    def collect(self) -> list[Any]:
        """Everything."""
        return list(chain.from_iterable(self._parts))

    def toLocalIterator(self, prefetchPartitions: bool) -> Iterator[Any]:  # noqa: N802, N803
        """The same, one by one."""
        del prefetchPartitions
        return iter(self.collect())

    def persist(self, level: object) -> InProcess:
        """Nothing: it is here."""
        del level
        return self

    def unpersist(self) -> None:
        """Nothing."""


class InMemory:
    """A source that holds some messages."""

    is_kafka, place = False, "memory"

    def __init__(self, parts: Sequence[Messages], extents: dict[PartitionId, Extent]) -> None:
        self._parts, self._extents = parts, extents

    def __str__(self) -> str:
        return self.place

    def topics(self) -> dict[str, TopicNow]:
        """None, as without Kafka."""
        return {}

    def extents(self) -> dict[PartitionId, Extent]:
        """The offsets of each partition."""
        return self._extents

    def everything(self, extents: object) -> InMemory:
        """All messages."""
        del extents
        return self

    def decoded(self, decode: EventDecoder, export: Export[Any]) -> InProcess:
        """All events, by the parts in which they were given."""
        return InProcess([list(export(decode([part]))) for part in self._parts])


class OfEvents(InMemory):
    """A source whose messages are decoded already.  is_cut: whether those before the first one are gone."""

    def __init__(self, events: pa.Table, *, is_cut: bool = False) -> None:
        places = sorted(zip(*(events[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True))
        ends = {(topic, partition): offset + 1 for topic, partition, offset in places}
        firsts = {(topic, partition): offset for topic, partition, offset in reversed(places)} if is_cut else {}
        super().__init__([], {where: Extent(firsts.get(where, 0), end) for where, end in ends.items()})
        self.events = events

    def decoded(self, decode: EventDecoder, export: Export[Any]) -> InProcess:
        """All events, in one part."""
        del decode
        return InProcess([list(export(iter([self.events])))])


def verify(
    url: str,
    settings: Settings,
    protocol: str,
    parts: Sequence[Messages],
    ends: dict[PartitionId, int],
    fixes: Path | None = None,
) -> Report:
    """What `bridge verify` reports of a target and messages.  parts: as executors read them; fixes: of --fix-sql."""
    source = InMemory(parts, {where: Extent(0, end) for where, end in ends.items()})
    return _verify(url, settings, protocol, source, fixes)


def verify_events(
    url: str,
    events: pa.Table,
    protocol: str = "canal-json",
    fixes: Path | None = None,
    settings: Settings = Settings(timezone="UTC"),  # noqa: B008  # immutable
    *,
    is_cut: bool = False,
) -> Report:
    """The same of events.  is_cut: whether those before the first one are gone."""
    return _verify(url, settings, protocol, OfEvents(events, is_cut=is_cut), fixes)


def _verify(url: str, settings: Settings, protocol: str, source: InMemory, fixes: Path | None = None) -> Report:
    options = VerifyOptions.of(settings, fix_file=fixes)
    table = ProgressTable(settings.name)
    made = LogVerification(settings, Target(url), cast(Source, source), protocol, table, options, Quiet())
    with without_spark(), cut_tables():
        return made.run()


def expected_table(table: Table) -> LoggedTable:
    """A table as verify expects rows of it; its first column is its key."""
    definition = cast(Definition, SimpleNamespace(table=table))
    return LoggedTable(0, "`e`", definition, tuple(table.columns)[:1], tuple(table.columns))


@contextmanager
def cut_tables() -> Iterator[None]:
    """Small tables are cut into parts as large ones are."""

    def cuts(session: Session, definition: Definition, key: Sequence[str]) -> tuple[int, ...]:
        rows = session.value(f"SELECT COUNT(*) FROM {quote_name(*definition.name)}")
        return find_cuts(session, replace(definition, rows=rows), key)

    with patch.object(log_tables, "_RANGE_ROWS", 1), patch.object(verification, "find_cuts", cuts):
        yield


@contextmanager
def without_spark() -> Iterator[None]:
    """No Spark is started, and nothing is left in files: sources decode what they hold (`InMemory`)."""
    with (
        patch.multiple(
            verification,
            start_session=lambda *_, **__: None,
            driver_folder=lambda _: None,
        ),
        patch.multiple(
            recompute,
            transfer_folder=lambda *_: None,
            decoded=lambda _, source, decode, export, __: source.decoded(decode, export),
        ),
    ):
        yield
