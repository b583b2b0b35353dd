"""Asks Kafka and the target for what the pipeline itself does not hold, and keeps what the port shows."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from bridge.model import PartitionId, TableName
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.state.ddl_journal import Journal, JournalEntry
from bridge.mysql.state.progress import ProgressTable
from bridge.mysql.state.quarantine import count_held
from bridge.pipeline.steering.load_watch import KeptSession
from bridge.pipeline.watching.status import Status
from bridge.sources.source import Source


@dataclass(frozen=True)
class TargetLook:
    """What the target tells of the pipeline.

    changes: the last schema changes, the newest first.
    states: the number of schema changes in each state.
    quarantined: the number of entries that are held, by code.
    looked_at: Unix time; None until the target has answered.
    """

    changes: tuple[JournalEntry, ...] = ()
    states: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[str, int] = field(default_factory=dict)
    looked_at: float | None = None


@dataclass(frozen=True)
class View:
    """What is shown.

    at, started_at: Unix time of the look, and of the start of the process.
    reason: why the pipeline does not apply what comes; "" while it does.
    status: None until the pipeline reads.
    ends: where the partitions end, as far as Kafka has told.
    rate, table_rates: row changes per second of the last seconds.
    phases: where the time of the last seconds went.
    """

    at: float
    started_at: float
    reason: str
    status: Status | None = None
    ends: Mapping[PartitionId, int] = field(default_factory=dict)
    rate: float = 0.0
    table_rates: Mapping[TableName, float] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)
    target: TargetLook = TargetLook()

    def behind(self, where: PartitionId) -> int | None:
        """Counts the messages of a partition that are not, or not surely, in the target; None while Kafka has not told
        where it ends."""
        if self.status is None or where not in self.ends or where not in self.status.committed:
            return None
        return max(0, self.ends[where] - self.status.committed[where].offset)


LOOKUP_SECONDS: Final = 5.0
_LAST_CHANGES: Final = 20

log = structlog.get_logger()


class Lookups:
    """Asks now and then, in a thread of its own, so that an end that does not answer keeps nobody waiting."""

    def __init__(self, source: Source, target: Target, table: ProgressTable) -> None:
        self._source, self._session, self._table = source, KeptSession(target), table
        self.ends: Mapping[PartitionId, int] = {}
        """Where the partitions ended when Kafka was last asked."""
        self.target = TargetLook()
        """What the target last told."""
        self.partitions: tuple[PartitionId, ...] = ()
        """The partitions to ask for; whoever knows them sets them."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="watch-lookups", daemon=True)

    def start(self) -> None:
        """Starts asking."""
        self._thread.start()

    def close(self, seconds: float) -> None:
        """Ends asking; a question that is not answered is waited for so long at most."""
        self._is_over.set()
        self._thread.join(seconds)

    def _work(self) -> None:
        while not self._is_over.is_set():
            self._ask_kafka()
            self._ask_target()
            self._is_over.wait(LOOKUP_SECONDS)
        self._session.close()

    def _ask_kafka(self) -> None:
        try:
            self.ends = self._source.ends(self.partitions)
        except Exception as error:  # noqa: BLE001  # what is asked here is only shown; the pipeline tells what is wrong
            log.debug("ends_not_known", error=str(error))

    def _ask_target(self) -> None:
        try:
            with self._session.use() as session:
                self.target = self._looked(session)
        except Exception as error:  # noqa: BLE001  # as above; the tables may also not be there yet
            log.debug("target_not_looked_at", error=str(error))

    def _looked(self, session: Session) -> TargetLook:
        journal = Journal(self._table.name, self._table.schema)
        return TargetLook(
            changes=tuple(journal.latest(session, _LAST_CHANGES)),
            states=journal.counts(session),
            quarantined=count_held(session, self._table.schema, self._table.name),
            looked_at=time.time(),
        )
