"""A pipeline to be watched, without one: samples made by hand, and what the ends tell of it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from bridge.ddl.rewrite import RewriteStep
from bridge.ends import End, Ends
from bridge.model import PartitionId, PartitionStart, RowCounts, TableName
from bridge.mysql.state.ddl_journal import JournalEntry, JournalState
from bridge.pipeline.heartbeat import StatusReporter
from bridge.pipeline.status import Status
from bridge.tso import ms_tso
from bridge.watch.document import Lookups, TargetLook
from bridge.watch.server import parse_address
from bridge.watch.watch import Watch

TABLES = (
    *(("shop", name) for name in ("order_lines", "orders", "events", "sessions", "stock", "payments", "customers")),
    *(("crm", name) for name in ("contacts", "notes")),
    ("ledger", "bookings_2026"),
)


class MadeSampler:
    """A busy shop: 12 partitions, some tables, more applied with each sample."""

    def __init__(self, tables: tuple[tuple[str, str], ...] = TABLES, *, held: str = "") -> None:
        self._tables, self._held, self._began = tables, held, time.time()

    def status(self) -> Status:
        """The status of now."""
        now = time.time()
        rows = {name: round((now - self._began + 3000) * 9000 / (n + 1) ** 1.4) for n, name in enumerate(self._tables)}
        counts = {
            TableName(*name): RowCounts(some * 5 // 10, some * 4 // 10, some // 10) for name, some in rows.items()
        }
        positions = {
            ("shop-changes", n): PartitionStart(810_000 + n, tso(now - 0.4 - (7.2 if n == 7 else n / 20)), 812_400 + n)
            for n in range(12)
        }
        return replace(
            status(now, sum(rows.values())),
            by_partition=False,
            positions=positions,
            committed=positions,
            tables=counts,
            phases_in_all=phases(now - self._began),
            backlog_bytes=41 << 20,
            transactions=88_120,
            schema_changes=14,
            retries_for={("target", "does not answer"): 3, ("target", "has another transaction in the way"): 9},
            away="",
            held=self._held,
        )


def tso(unix: float) -> int:
    """Unix time as a TSO."""
    return ms_tso(round(unix * 1000))


def phases(seconds: float) -> dict[str, float]:
    """Where these seconds went."""
    shares = {"waiting": 0.21, "decoding": 0.08, "folding": 0.1, "rendering": 0.07, "server": 0.42, "commit": 0.12}
    return {name: share * seconds for name, share in shares.items()}


def status(now: float, rows: int) -> Status:
    """A status of that moment."""
    wave = 1 + math.sin(now / 300)
    return Status(
        applied_ts=tso(now - 7.9),
        resolved_ts=tso(now - 7.6),
        source_lag=7.6 + wave,
        apply_lag=0.3 + wave,
        rows=rows,
        rows_per_second=21_480.0,
        messages=rows // 2,
        messages_total=rows // 2,
        backlog_rows=18_230,
        late=0,
        repeated=0,
        left_out=0,
        quarantined=2,
        safe_mode=0,
        retries=12,
        target_away=0.0,
        source_away=0.0,
        phases={},
        waiting_for="partition 7 has had no boundary for 7 s",
    )


def change(
    number: int, state: JournalState, statement: str, run: str = "", *steps: RewriteStep, why: str = "ran"
) -> Any:
    """An entry of the journal."""
    began = datetime.now(UTC) - timedelta(minutes=17 * number + 4)
    ts = tso(began.timestamp())
    done = None if state is JournalState.HELD else began
    return JournalEntry(
        ts, "0f3a99c2", "shop", statement, "shop-changes/0/1", state, "", "", run, steps, "", why, began, done
    )


CHANGES = (
    change(0, JournalState.HELD, "DROP TABLE `shop`.`carts`", why="the settings hold drop table (ddl.hold)"),
    change(
        1,
        JournalState.DONE,
        "ALTER TABLE `shop`.`orders` ADD COLUMN `note` VARCHAR(200) COLLATE utf8mb4_0900_ai_ci",
        "ALTER TABLE `shop`.`orders` ADD COLUMN `note` VARCHAR(200) COLLATE utf8mb4_unicode_520_ci",
        RewriteStep("utf8mb4_0900_ai_ci", "utf8mb4_unicode_520_ci", "the target has no such collation"),
    ),
    change(2, JournalState.DONE, "CREATE TABLE `shop`.`vouchers` (`id` BIGINT PRIMARY KEY, `code` VARCHAR(40))"),
    change(3, JournalState.IGNORED, "TRUNCATE TABLE `shop`.`scratch`", why="ignored by the settings"),
)
LOOK = TargetLook(CHANGES, {"done": 13, "held": 1, "ignored": 1}, {"bad-value": 1, "target-refused": 1}, 1.0)


class MadeLookups:
    """What Kafka and the target tell."""

    def __init__(self, target: TargetLook = LOOK) -> None:
        self.ends: Mapping[PartitionId, int] = {("shop-changes", n): 812_500 + 7 * n for n in range(12)}
        self.target = target
        self.partitions: tuple[PartitionId, ...] = ()

    def start(self) -> None: ...
    def close(self, seconds: float) -> None: ...


@contextmanager
def watching(
    sampler: MadeSampler | None = None, lookups: MadeLookups | None = None, *, listen: str = "0", name: str = "shop"
) -> Iterator[Watch]:
    """A port that is served, for a pipeline that reads, or for one that is starting."""
    ends = Ends(*(End(which, "db:3306", retry_seconds=0) for which in ("target", "source")))
    watch = Watch(parse_address(listen), name, ends, cast("Lookups", lookups or MadeLookups()))
    if sampler is not None:
        watch.report_on(cast("StatusReporter", sampler))
        watch.look()
    try:
        yield watch
    finally:
        watch.close()
