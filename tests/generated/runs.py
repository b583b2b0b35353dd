"""Whole runs: messages of a drawn upstream through the project's decoders, appliers and writers to a real server."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Final

from bridge.commands.quarantine import Quarantine
from bridge.errors import BridgeError
from bridge.filters.table_filter import DEFAULT_SCHEMA
from bridge.model import SchemaChange, TableName
from bridge.mysql.connection.target import Target
from bridge.mysql.state.ddl_journal import Journal, JournalState
from bridge.mysql.state.progress import ProgressTable
from bridge.pipeline.order import OrderChanged
from tests.generated.bench import Bench
from tests.generated.cases import Case
from tests.generated.comparison import Comparison, may_be_ahead, may_watch
from tests.generated.decisions import Operator, instead
from tests.generated.dimensions import FILTER_CHANGE, NONE
from tests.generated.failures import Crash, Failure, Stopped, cut
from tests.generated.history import History
from tests.generated.message_log import Log, Placed
from tests.generated.names import NAMES, Names
from tests.generated.process import Process
from tests.generated.repairs import Repairs
from tests.generated.resent import Taken, two_rows_hold
from tests.generated.settings import DROPPED, gone_on, stops
from tests.generated.tables import ROUTES, UNROUTED
from tests.generated.target_tables import TargetTables
from tests.generated.upstream import Step
from tests.support.pipelines import Pipeline

_MOST_STARTS: Final = 40
_OTHER_SPELLING: Final = "are one to the target, as their keys differ only in"
"""Of the error for a row that would overwrite one whose key is spelled otherwise."""
_TABLES: Final = ("t0", "t1", "renamed", "aside")
"""Names that tables have upstream."""
_OTHERS: Final = (*_TABLES, "a b", "one", "other")
"""Names that they might have there, by those on the target."""


def run(bench: Bench, case: Case) -> dict[str, set[str]]:
    """Runs it; gives the values of dimensions that it had.  Raises Failure."""
    one = Run(bench, case)
    try:
        one.go()
    except Stopped as stopped:
        bench.stopped[str(stopped)] += 1
    return one.met


class Run:
    """One run at work."""

    def __init__(self, bench: Bench, case: Case) -> None:
        self._bench, self._case, self._choice = bench, case, case.choice
        self._random = random = Random(case.seed ^ 0x5EED)
        crash_at = random.choice((1, 1, 2, 3, 5)) if self._choice["crash"] != NONE else 0
        self._watches = may_watch(case) and random.random() < 0.5
        routing = ROUTES.get(self._choice["route"], UNROUTED)
        self._name = bench.name()
        self._names = Names(NAMES.get(self._choice["names"], {}))
        self._target = TargetTables(bench.session, routing, self._names)
        self._history = History(case, bench.equality, random, self._target)
        self._comparison = Comparison(case, self._history, self._target)
        self._process = Process(
            bench, case, self._target, random, self._history, crash_at, self._check, may_be_ahead=may_be_ahead(case)
        )
        self._seen: set[str] = set()
        """The schema changes that people have looked at."""
        self.met: dict[str, set[str]] = {name: {value} for name, value in self._choice.items()}

    def go(self) -> None:
        """From the first message to the comparison."""
        self._history.load()
        self.met["operations"] = self._history.run()
        if self._choice["begins"] != NONE and not self._history.copy():
            self.met["begins"] = {NONE}
        self._history.leave_out()
        self._log = log = Log(self._case, self._history.steps, self._random, self._bench.equality)
        self._deliver(log, self._name, self._stop_at(log))
        if self._choice["redelivery"] == "from below":
            self._deliver(log, self._name + " again", len(log.messages))
        if self._choice["quarantine"] != NONE:
            self._work_through_quarantine()
        self._comparison.compare()
        if self._bench.verifies_one_in and self._case.seed % self._bench.verifies_one_in == 0:
            self._repairs().verify(log.messages)

    def _check(self, pipeline: Pipeline) -> None:
        """After a transaction of the target."""
        self._comparison.check_progress(pipeline)
        if self._watches:
            self._comparison.look(pipeline)

    def _repairs(self) -> Repairs:
        return Repairs(self._bench, self._comparison, self._random, self._process.settings)

    # --- the bridge

    def _stop_at(self, log: Log) -> int:
        """How many messages there are when the bridge is stopped, or all."""
        if log.growth is not None:
            return next((n for n, one in enumerate(log.messages) if one.turn >= log.growth), len(log.messages))
        return self._random.randrange(len(log.messages) + 1) if stops(self._choice) else len(log.messages)

    def _deliver(self, log: Log, name: str, until: int) -> None:
        """Everything, from where progress says, as often as the bridge begins anew.  until: it is stopped there."""
        start_ts = self._history.start_ts if name == self._name else 0
        for _ in range(_MOST_STARTS):
            try:
                with self._process.open(log, log.known(until), name, start_ts):
                    self._process.feed(log.messages[:until])
                    if until == len(log.messages):
                        self._process.end()
                        return
                until = len(log.messages)
                self._go_on()
            except OrderChanged:
                pass
            except Crash:
                self._process.crash_at = 0
                self._go_on()
            except Failure:
                raise
            except BridgeError as error:
                if not self._decides(log.messages):
                    self._stopped(error)
            except Exception as error:  # whatever it is, it is a finding
                text = "".join(traceback.format_exception(error))
                raise Failure(f"an unexpected {type(error).__name__}", text) from error
        raise Failure("never ends", f"{_MOST_STARTS} starts")

    def _decides(self, log: Sequence[Placed]) -> bool:
        """Whether the bridge has ended as something is to be decided, which then is; nothing is wrong meanwhile."""
        if self._choice["decision"] == NONE:
            return False
        if self._bench.verifies_one_in and self._random.random() < 0.2:
            self._repairs().verify_meanwhile(log)
        is_open = self._operator().decide()
        if is_open and self._bench.verifies_one_in and self._random.random() < 0.2:
            self._repairs().verify_meanwhile(log)
        return is_open

    def _operator(self) -> Operator:
        ddl = next((step.ddl for step in self._history.steps if step.ddl), None)
        there = self._target.quoted(self._case.tables[0].name)
        text = instead(ddl, there, self._names) if ddl and self._choice["decision"] == "replace unlike" else ""
        target, decision = Target(self._bench.url), self._choice["decision"]
        return Operator(target, self._process.settings, decision, there, text, self._random, self._seen)

    def _go_on(self) -> None:
        """The bridge goes on, with other settings."""
        history = self._history
        if history.is_later:
            return
        how, early = self._choice["goes on with"], None
        if how == FILTER_CHANGE:
            early = self._in_target()
            if early is None:
                return
        elif how == "other routes" and self._is_begun():
            return
        now = gone_on(self._choice, self._random)
        if how == "other routes" and not self._target.move(ROUTES.get(now["route"], UNROUTED), _TABLES, _OTHERS):
            return
        history.is_later, history.now = True, now
        if how == "fewer tables":
            history.frozen = {DROPPED: self._target.rows(DROPPED, None)}
        if early is not None:
            history.early = early
            history.leave_out()

    def _is_begun(self) -> bool:
        """Whether a schema change has begun to run: tables are not moved meanwhile."""
        progress = ProgressTable(self._name).read(self._bench.session)
        return progress is not None and len(self._waiting(progress.pending)) < len(progress.pending)

    def _in_target(self) -> frozenset[int] | None:
        """The numbers of the steps of the first table that are in the target; None where some are in parts, or may
        be."""
        progress = ProgressTable(self._name).read(self._bench.session)
        if progress is None:
            return frozenset()
        if progress.in_parts:
            return None
        waiting = self._waiting(progress.pending)
        if waiting and not self._case.wire.has_boundaries:
            return None
        steps = self._history.told_steps
        numbers = {number for number, step in enumerate(steps) if step.ts not in waiting}
        is_bounded = self._case.wire.has_boundaries
        below = progress.applied_ts if is_bounded else 0
        names = {self._case.tables[0].name, "renamed"}
        read: dict[int, set[bool]] = {}
        for one in self._log.messages:
            start = progress.positions.get((one.topic, one.partition))
            if one.table in names and start is not None:
                ts = steps[one.step].ts
                is_below = ts < below or (self._case.wire.has_commit_ts and ts < (start.floor or 0))
                is_read = not is_bounded and one.offset < start.offset
                read.setdefault(one.step, set()).add(is_below or is_read)
        if any(len(found) > 1 for found in read.values()):
            return None
        return frozenset(n for n in numbers if True in read.get(n, ()) or steps[n].ts < below)

    def _waiting(self, pending: Sequence[SchemaChange]) -> set[int]:
        """The commit ts of schema changes that are still to run; what is begun is finished as it was begun."""
        journal, session = Journal(self._name, DEFAULT_SCHEMA), self._bench.session
        entries = [(change.commit_ts, journal.find(session, change)) for change in pending]
        return {ts for ts, entry in entries if entry is None or entry.state is not JournalState.RUNNING}

    def _stopped(self, error: BridgeError) -> None:
        """An error of the bridge: whether it may be."""
        what = type(error).__name__
        if self._may_stop(str(error)):
            raise Stopped(f"{self._choice['protocol']}: {what}") from error
        raise Failure(f"stopped by {what}", "".join(traceback.format_exception(error))) from error

    def _may_stop(self, words: str) -> bool:
        """Only where a value is told nowhere: not in the message, and not by the target, which is ahead, or where a row
        without a key cannot be found by a part of it; and where what is sent again is a moment that never was, in
        which two rows have one unique value; and where a key comes in an earlier spelling than the target has, which is
        ahead (guarantees, "The honest limits")."""
        is_ahead, wire = may_be_ahead(self._case), self._case.wire
        is_partial = wire.is_partial or (not wire.has_commit_ts and any(table.extra for table in self._case.tables))
        if is_partial and (is_ahead or self._choice["shape"] == "no key"):
            return True
        if _OTHER_SPELLING in words:
            return wire.is_tidb and self._choice["redelivery"] != NONE
        names = {str(TableName(*self._target.place(name))): name for name in self._history.names}
        taken = Taken.of(words, names)
        if taken is None or wire.has_boundaries or self._choice["redelivery"] not in ("copies", "whole topic"):
            return False
        return two_rows_hold(taken, self._in_hand(), self._bench.equality, nets=wire.is_tidb)

    def _in_hand(self) -> list[Step]:
        """What has been read and is not in the target, in the order in which it was sent."""
        progress = self._process.pipeline.table.read(self._bench.session)
        assert progress is not None
        starts = {where: start.offset for where, start in progress.positions.items()}
        turns = {m.turn: m.step for m in self._process.read if m.offset >= starts.get((m.topic, m.partition), 0)}
        return [self._history.steps[turns[turn]] for turn in sorted(turns)]

    # --- the quarantine

    def _work_through_quarantine(self) -> None:
        """A retry while the cause is there changes nothing; once it is cured, all is applied."""
        quarantine = Quarantine(Target(self._bench.url), self._process.settings)
        refused = [step for step in self._history.steps if "refused" in step.labels]
        before = self._target.contents(self._history.names)
        outcomes = quarantine.retry(None) or []
        if len(outcomes) > len(refused) and self._case.wire.is_partial and may_be_ahead(self._case):
            raise Stopped(f"{self._choice['protocol']}: a part of a row that has moved already")
        if len(outcomes) != len(refused):
            raise Failure("rows quarantined", f"{len(outcomes)}, not {len(refused)}")
        now = self._target.contents(self._history.names)
        if any(outcome.done for outcome in outcomes) or now != before:
            raise Failure("a retry before the cure", f"{outcomes}; {cut(f'the target was {before} and is {now}')}")
        table = self._history.contents[0].table
        [column] = [c for c in table.columns if c.name == "q"]
        name = self._target.quoted(table.name)
        self._bench.session.execute(
            f"ALTER TABLE {name} MODIFY COLUMN {self._names.sql(replace(column, narrow='').sql)}"
        )
        outcomes = quarantine.retry(None) or []
        if not all(outcome.done for outcome in outcomes):
            raise Failure("a retry after the cure", f"{outcomes}")
