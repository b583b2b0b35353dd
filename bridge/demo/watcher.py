"""Reads the target continuously, and checks that each state it sees is one that the bank had."""

from __future__ import annotations

import threading
import time
from statistics import median
from typing import Final

from pymysql.err import MySQLError

from bridge.demo.bank import LEDGER, SCHEMA
from bridge.demo.model import BankTotals, Transaction
from bridge.model import quote_name
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import error_code
from bridge.tso import tso_ms

NO_SUCH_TABLE: Final = 1146
TABLE_CHANGED: Final = 1412
"""The table definition has changed since the snapshot was taken."""
PAUSE_SECONDS: Final = 0.05
KEPT_VIOLATIONS: Final = 5


class Watcher:
    """Takes consistent snapshots of all tables, one after the other, and compares each with the bank at that moment.

    Snapshots of an empty bank do not count.  A snapshot must not be older than one before it.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._moments: dict[int, tuple[int, BankTotals]] = {}
        self._latencies: list[float] = []
        self._newest = 0
        self._end = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="watcher", daemon=True)
        self.is_timing = False
        """Whether latencies are measured now; they are not while the bridge catches up."""
        self.snapshots = 0
        self.violations = 0
        self.first_violations: list[str] = []
        """Descriptions of the first violations."""

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def expect(self, transaction: Transaction) -> None:
        """Adds a state that may be seen.  Call it before the transaction is sent."""
        self._moments[transaction.entry] = transaction.commit_ts, transaction.moment

    def check(self) -> None:
        """Raises the error that ended the thread, if there is one."""
        if self._failure is not None:
            raise self._failure

    def latency(self) -> float | None:
        """Returns the median seconds from a commit of the upstream until the watcher saw it, while `is_timing`; None if
        there are none."""
        return median(self._latencies) if self._latencies else None

    def watch(self) -> None:
        """Takes snapshots over one connection until the end; raises what the server raises."""
        session = self._target.connect()
        try:
            session.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            while not self._end.wait(PAUSE_SECONDS):
                self._check_snapshot(session)
        finally:
            session.close()

    def _work(self) -> None:
        try:
            self.watch()
        except BaseException as error:  # noqa: BLE001  # raised again by check, in the main thread
            self._failure = error

    def _check_snapshot(self, session: Session) -> None:
        session.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        seen_at = time.time()
        try:
            found = _read(session)
        except MySQLError as error:
            if error_code(error) not in (NO_SUCH_TABLE, TABLE_CHANGED):
                raise
            return
        finally:
            session.rollback()
        if found is not None:
            self._judge(*found, seen_at)

    def _judge(self, entry: int, moment: BankTotals, seen_at: float) -> None:
        self.snapshots += 1
        expected = self._moments.get(entry)
        if expected is None:
            self._violated(f"ledger entry {entry} was seen after entry {self._newest}, {moment}")
        elif expected[1] != moment:
            self._violated(f"at ledger entry {entry} the upstream was {expected[1]}, the target {moment}")
        if expected is not None and entry > self._newest:
            if self.is_timing:
                self._latencies.append(seen_at - tso_ms(expected[0]) / 1000)
            for passed in range(self._newest, entry):
                self._moments.pop(passed, None)
            self._newest = entry

    def _violated(self, words: str) -> None:
        self.violations += 1
        if len(self.first_violations) < KEPT_VIOLATIONS:
            self.first_violations.append(words)


def _read(session: Session) -> tuple[int, BankTotals] | None:
    """Reads the newest ledger entry and the state; None for a bank without rows.

    A table that is not listed yet was created after the snapshot, so the snapshot holds none of its rows.
    """
    tables = [name for (name,) in session.rows(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (SCHEMA,)
    )]  # fmt: skip
    accounts = total = weighted = entry = entries = 0
    for name in tables:
        where = quote_name(SCHEMA, name)
        if name == LEDGER:
            entry, entries = session.rows(f"SELECT COALESCE(MAX(id), 0), COUNT(*) FROM {where}")[0]
            continue
        key = "code" if name == "brokerage" else "id"
        count, balance, weight = session.rows(
            "SELECT COUNT(*), COALESCE(SUM(balance), 0),"
            f" COALESCE(SUM(CAST(CRC32(CONCAT('{name}:', {key})) AS DECIMAL(20)) * balance), 0) FROM {where}"
        )[0]
        accounts, total, weighted = accounts + count, total + int(balance), weighted + int(weight)
    moment = BankTotals(accounts, total, weighted, entries)
    return (entry, moment) if any(moment) else None
