"""Commits target transactions: compare-and-set on the progress row, statements, COMMIT; and recovers when one of them
fails half-way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NoReturn, TypeVar

import structlog
from pymysql.err import MySQLError

from bridge.ddl.policy import DdlRules
from bridge.ends import End
from bridge.errors import ApplyError, HeldError, RefusedRowsError, TargetError
from bridge.model import Advance, SchemaChange, Table, TableName
from bridge.mysql.apply import load_data
from bridge.mysql.apply.load_data import LoadRefusedError
from bridge.mysql.apply.run_statement import (
    Ahead,
    Refusal,
    UnnamedWarningError,
    Volume,
    execute_statement,
    execute_together,
    in_exchanges,
    one_by_one,
    refused_changes,
    refused_transaction,
)
from bridge.mysql.catalog import find_side_effects, load_tables, refuse_side_effects, refuse_without_transactions
from bridge.mysql.connection.session import Session
from bridge.mysql.schema_changes.ddl_runner import SchemaChangeRunner, Unreadable
from bridge.mysql.server_errors import (
    DUPLICATE_KEY,
    LOCK_FIX,
    LOST,
    TRANSIENT,
    error_code,
    is_lock_wait,
    server_words,
    trouble,
)
from bridge.mysql.state.ownership import Ownership, mark_connection
from bridge.mysql.state.progress import Progress
from bridge.phases import Phase, PhaseClock
from bridge.rows.net_changes import OrderedChanges
from bridge.rows.order_and_slices import RowChanges
from bridge.rows.sql.statement import Rendering, Statement
from bridge.rows.type_check import CheckedTypes

log = structlog.get_logger()

StatementSource = Callable[[Rendering], Iterable[Statement]]
"""Gives the statements of one transaction in their order; it is called again for every retry."""


def no_trace(step: str) -> None:
    """Does nothing; it is the default trace."""


def no_statements(rendering: Rendering) -> Iterable[Statement]:
    """Gives the statements of a transaction that only moves progress."""
    del rendering
    return ()


@dataclass
class WriterCounts:
    """What a writer has done so far, for status and metrics.

    by_transaction: as of `Rendering`.
    """

    transactions: int = 0
    safe_mode: int = 0
    schema_changes: int = 0
    by_transaction: dict[str, str] = field(default_factory=dict)


AnswerT = TypeVar("AnswerT")
OnHeld = Callable[[HeldError], None]
"""Is called again and again while a schema change waits for the operator; it may raise."""


def raise_held(held: HeldError) -> None:
    """Raises at once, instead of waiting for the operator."""
    raise held


class Writer:
    """Writes for one owner, one transaction at a time.

    end: the target as an end, which says how long a lost connection or a lock conflict is retried.
    ddl: how schema changes are handled.
    trace: told the name of each step (tests crash there).
    load_bytes: about how many bytes are loaded at once.
    """

    load_bytes: int = load_data.LOAD_BYTES

    def __init__(
        self,
        ownership: Ownership,
        *,
        end: End,
        ddl: DdlRules = DdlRules(),  # noqa: B008  # immutable
        trace: Callable[[str], None] = no_trace,
    ) -> None:
        self._ownership, self._target, self._table = ownership, ownership.target, ownership.table
        self.end, self._trace = end, trace
        self._ddl = ddl
        self._runner = SchemaChangeRunner(self._table.name, self._table.schema, ddl, trace)
        self._session: Session | None = None
        self._former_connections: list[int] = []
        self._outcome_unknown = False
        self._volume = Volume()
        self._takes_loads = False
        self._loadable: set[TableName] = set()
        self._checked_types = CheckedTypes()
        self.counts = WriterCounts()
        self.phases = PhaseClock()
        """Where the time of the thread goes that uses this writer."""

    @property
    def connections(self) -> list[int]:
        """Ids of the server connections in use, for the one who takes over."""
        session = self._session
        return [self._ownership.control.connection_id, *([session.connection_id] if session else [])]

    def session(self) -> Session:
        """Gives the writing session, and opens it when needed.  Those before it are ended first, whatever has become
        of them in the network: a COMMIT that is still on its way must not arrive behind what comes now."""
        if self._session is None:
            self._ownership.revive()
        self._end_former_connections()
        if self._session is None:
            self._session = self._target.connect()
            self._ownership.check_progress(self._session)
            mark_connection(self._session, self._ownership.lock)
            self._ownership.announce(self._session, self.connections)
            self._takes_loads = not load_data.server_objection(self._session)
        return self._session

    def _end_former_connections(self) -> None:
        while self._former_connections:
            self._ownership.end(self._former_connections[-1])
            self._former_connections.pop()

    def progress(self) -> Progress:
        """Reads progress, which this process owns.  Raises OwnedError after a take-over, TargetError when retrying does
        not help."""

        def read() -> Progress:
            self._ownership.revive()
            return self._ownership.progress()

        return self._retry(read)

    def load_tables(self, names: Iterable[TableName], *, cascades_are_lost: bool = False) -> dict[TableName, Table]:
        """Loads the named tables as they are now.  Raises TargetError when retrying does not help, and for tables that
        have no transactions, or in which the target would change rows by itself.

        cascades_are_lost: whether the log lacks the changes that foreign keys cascade upstream.
        """
        names = list(names)

        def load() -> tuple[dict[TableName, Table], Collection[TableName]]:
            with self._whole_or_closed() as session:
                tables = load_tables(session, names)
                refuse_without_transactions(session, {table.stored for table in tables.values()})
                effects = find_side_effects(session, tables, cascades=cascades_are_lost)
                refuse_side_effects(effects, self._ddl.routes.accepts_target)
                loadable = self._find_loadable(tables) if self._takes_loads else ()
                session.rollback()
            return tables, loadable

        tables, loadable = self._retry(load)
        loaded = set(names)
        self._checked_types -= {checked for checked in self._checked_types if checked[0] in loaded}
        self._loadable -= loaded
        self._loadable.update(loadable)
        return {name: self._with_rules(table) for name, table in tables.items()}

    def _with_rules(self, table: Table) -> Table:
        """Notes what the settings say of a table's rows."""
        keeps_gone = self._ddl.keeps_gone(table.name)
        return replace(table, keeps_gone=keeps_gone, guards_spelling=self._ddl.is_from_tidb and not keeps_gone)

    def note_source(self, source: str) -> None:
        """Notes what the messages tell of their source, as of `DdlRules.sent_by`; before anything is applied."""
        ddl = self._ddl.sent_by(source)
        if ddl is not self._ddl:
            held = "" if source == "mariadb" else "; those that mean its default collation are held until then"
            log.warning(
                "source_is_not_tidb",
                why=f"the messages were made from a binlog, and ddl.source is {self._ddl.source}",
                source=ddl.source,
                fix=f"set ddl.source, as the upstream is, for its schema changes{held}",
            )
            self._ddl = ddl
            self._runner = SchemaChangeRunner(self._table.name, self._table.schema, ddl, self._trace)

    def _find_loadable(self, tables: Mapping[TableName, Table]) -> Collection[TableName]:
        """Gives the tables whose rows may be sent by LOAD DATA, by their definitions."""
        plain = load_data.transactional(self.session(), {table.stored for table in tables.values()})
        return {name for name, table in tables.items() if table.stored in plain}

    def apply(self, step: Advance, source: StatementSource = no_statements) -> None:
        """Moves progress from step.old_ts to step.new_ts together with the statements, in one transaction.

        Raises OwnedError after a take-over, ApplyError when the target refuses a row, TargetError when retrying
        does not help.
        """
        failures = count()
        # A load may have been what cut the connection, so retries do not use one.
        self._retry(lambda: self._attempt(step, source, may_load=next(failures) == 0))
        self._ownership.committed(step)
        self.counts.transactions += 1

    def writes_apart(self, rows: RowChanges) -> bool:  # noqa: ARG002
        """Tells whether others will probably write these rows, which the driver need not fold then."""
        return False

    def refused_changes(self, net: OrderedChanges, *, only_first: bool = False) -> list[Refusal]:
        """Tells which of these row changes the target refuses, and why; or the first one.  It rolls all back."""

        def find() -> list[Refusal]:
            with self._whole_or_closed() as session:
                session.begin()
                try:
                    return refused_changes(session, net, self._rendering(safe_mode=True), only_first=only_first)
                finally:
                    session.rollback()

        return self._retry(find)

    def changes_between(self, low: int, high: int) -> list[SchemaChange]:
        """Gives the schema changes on record with low <= commit_ts < high (TSO), in the order in which they came.
        Raises TargetError when retrying does not help."""
        return self._ask(lambda session: self._runner.journal.between(session, low, high))

    def unreadable(self) -> Unreadable:
        """Tells what the operator has decided about schema changes that cannot be read.  Raises TargetError when
        retrying does not help."""
        return self._ask(self._runner.unreadable)

    def note_unreadable(self, change: SchemaChange, again: SchemaChange, reason: str) -> str:
        """Records a schema change that cannot be read, so that the operator can decide, and gives its id.  Raises
        TargetError when retrying does not help.

        again: what it is where its partition held the same message before.
        """
        return self._ask(lambda session: self._runner.note_unreadable(session, change, again, reason))

    def _ask(self, question: Callable[[Session], AnswerT]) -> AnswerT:
        """Asks the control session, again where its connection is lost."""

        def ask() -> AnswerT:
            with self._reconnected():
                return question(self._ownership.control)

        return self._retry(ask)

    def run_next(self, pending: tuple[SchemaChange, ...], on_held: OnHeld = raise_held) -> None:
        """Runs the first of the schema changes that progress lists, and removes it from the list when it is done.

        Raises SchemaChangeError when one is refused, what `on_held` raises when one is held, OwnedError after a
        take-over.
        """
        while (held := self._retry(lambda: self._run_unless_held(pending[0], pending[1:]))) is not None:
            on_held(held)
        self._trace("ddl taken off")
        self.counts.schema_changes += 1

    def break_off(self) -> None:
        """Ends what is in hand, which the server rolls back; may be called from any thread."""
        self._ownership.break_off(self.connections[1:])
        self.cut()

    def cut(self) -> None:
        """Ends the connections under who waits for an answer."""
        if self._session is not None:
            self._session.cut()

    def close(self) -> None:
        """Ends the writing session; an open transaction is rolled back."""
        if self._session is not None:
            self._former_connections.append(self._session.connection_id)
            self._session.close()
            self._session = None

    def _run_unless_held(self, change: SchemaChange, rest: tuple[SchemaChange, ...]) -> HeldError | None:
        with self._reconnected():
            self._ownership.check()
            try:
                self._runner.run(self._ownership.control, change)
            except HeldError as held:
                return held
            self._ownership.taking_off(rest)
            if not self._table.set_pending(self._ownership.control, self._ownership.epoch, rest):
                raise self._ownership.lost_error()
            self._ownership.taken_off()
        return None

    @contextmanager
    def _reconnected(self) -> Iterator[None]:
        """Opens another control session where its connection is lost, for the next attempt."""
        try:
            yield
        except LOST:
            self._ownership.reconnect()
            raise

    @contextmanager
    def _whole_or_closed(self) -> Iterator[Session]:
        """Gives the writing session, which is closed where something fails."""
        try:
            yield self.session()
        except (MySQLError, OSError):
            self.close()
            raise

    def _attempt(self, step: Advance, source: StatementSource, *, may_load: bool) -> None:
        try:
            if self._outcome_unknown and self._is_committed(step):
                return
            try:
                self._transact_unless_refused(step, source, may_load=may_load)
            except MySQLError as error:
                if error_code(error) not in DUPLICATE_KEY:
                    raise
                self._enter_safe_mode(step, error)
                self._transact(step, source, self._rendering(safe_mode=True))
        except (MySQLError, OSError) as error:
            if isinstance(error, LOST):
                self.close()
            elif self._session is not None:
                self._session.rollback()
            if isinstance(error, TRANSIENT):
                raise
            raise refused_transaction(step, error, self._volume) from error
        except BaseException as error:
            self.close()
            if isinstance(error, RefusedRowsError) and not error.is_exact:
                error.where = f"commit ts {step.old_ts} to {step.new_ts}, {error.where}"
            raise

    def _rendering(self, *, safe_mode: bool = False, may_load: bool = False) -> Rendering:
        load_bytes = self.load_bytes if may_load and self._takes_loads else 0
        return Rendering(
            self._table.schema,
            safe_mode,
            load_bytes,
            loadable=frozenset(self._loadable),
            checked_types=self._checked_types,
            by_transaction=self.counts.by_transaction,
        )

    def _transact_unless_refused(self, step: Advance, source: StatementSource, *, may_load: bool) -> None:
        try:
            self._transact(step, source, self._rendering(may_load=may_load))
        except LoadRefusedError as refusal:
            self._loadable.discard(refusal.table)
            self.session().rollback()
            self._transact(step, source, self._rendering())

    def _transact(self, step: Advance, source: StatementSource, rendering: Rendering) -> None:
        try:
            self._send(step, source, rendering, in_exchanges)
        except UnnamedWarningError:
            self.session().rollback()
            self._send(step, source, rendering, one_by_one)

    def _send(
        self,
        step: Advance,
        source: StatementSource,
        rendering: Rendering,
        grouped: Callable[[Iterable[Statement]], Iterator[list[Statement]]],
    ) -> None:
        self.phases.enter(Phase.SERVER)
        session = self.session()
        if step.pending:
            self._runner.check_size(self._ownership.control, step.pending)
        session.begin()
        self._trace("begun")
        if not self._table.advance(session, self._ownership.epoch, step):
            self._raise_fenced(session, step)
        self._trace("advanced")
        self._volume = Volume()
        statements = Ahead(self._timed(source, rendering))
        for exchange in grouped(statements):
            for statement in exchange:
                self._volume = Volume(self._volume.statements + 1, self._volume.size + statement.size)
            if len(exchange) == 1:
                execute_statement(session, exchange[0], safe_mode=rendering.safe_mode, meanwhile=statements.make)
            else:
                execute_together(session, exchange, safe_mode=rendering.safe_mode)
            self._trace("statement")
        self.phases.enter(Phase.COMMIT)
        self._trace("before commit")
        self._outcome_unknown = True
        self._ownership.committing(step)
        session.commit()
        self._outcome_unknown = False
        self.phases.enter(Phase.FOLDING)
        self._trace("committed")

    def _timed(self, source: StatementSource, rendering: Rendering) -> Iterator[Statement]:
        """Gives the statements, and tells the time of making them from the time that their user takes."""
        self.phases.enter(Phase.FOLDING)
        statements = source(rendering)
        self.phases.enter(Phase.RENDERING)
        for statement in statements:
            self.phases.enter(Phase.SERVER)
            yield statement
            self.phases.enter(Phase.RENDERING)

    def _raise_fenced(self, session: Session, step: Advance) -> NoReturn:
        progress = self._table.read(session, lock=True)
        session.rollback()
        if progress is None or progress.epoch != self._ownership.epoch:
            raise self._ownership.lost_error()
        raise ApplyError(
            f"progress on the target is at {progress.applied_ts}, not at {step.old_ts}, where this bridge left it",
            where=f"pipeline {self._table.name}",
            fix="somebody changed the progress row by hand; restart the bridge to go on from there",
        )

    def _is_committed(self, step: Advance) -> bool:
        """Tells whether a COMMIT without an answer succeeded.  FOR UPDATE waits for a commit that is still in
        flight."""
        session = self.session()
        session.begin()
        progress = self._table.read(session, lock=True)
        session.commit()
        self._outcome_unknown = False
        if progress is None or progress.epoch != self._ownership.epoch:
            raise self._ownership.lost_error()
        return step.new_ts != step.old_ts and progress.applied_ts == step.new_ts

    def _enter_safe_mode(self, step: Advance, error: MySQLError) -> None:
        self.session().rollback()
        self.counts.safe_mode += 1
        log.warning(
            "safe_mode",
            why="a unique value was still taken on the target",
            commit_ts_from=step.old_ts,
            commit_ts_to=step.new_ts,
            server=server_words(error),
        )

    def _retry(self, work: Callable[[], AnswerT]) -> AnswerT:
        """Does it, again while the target fails.  A schema change may take hours; what counts is how long the target
        has been failing."""
        return self.end.retried(work, "applying", TRANSIENT, trouble, self._timeout_error)

    def _timeout_error(self, error: BaseException) -> TargetError:
        check = "check that the server runs, is reachable and takes writes"
        return TargetError(
            f"the target did not take a transaction within {self.end.retry_seconds:g} s: {server_words(error)}",
            where=str(self._target),
            fix=f"{LOCK_FIX if is_lock_wait(error) else check}, then start the bridge again",
        )
