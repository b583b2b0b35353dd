"""Writes with `parallel` consistency: Spark's executors write the net changes of a large step, each of their tasks over
a connection of its own, and progress moves after all of them (internals, decision 3).

Every task commits its part on its own, so a reader may see one part of a step before another.  Nothing is lost or
applied twice: tasks write the last images of keys, which give the same result when they are written again, and after a
crash all of them are written again.  Rows without a key, which must not be written twice, and tables whose rows have to
do with each other (`is_alone`) are part of the transaction that moves progress.  A small step is one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import structlog
from pymysql.err import MySQLError

from bridge.errors import BridgeError, StoppedError
from bridge.model import Advance, Table, TableName
from bridge.mysql.apply import load_data
from bridge.mysql.apply.load_data import LoadRefusedError
from bridge.mysql.apply.run_statement import check_matched, matched_rows
from bridge.mysql.apply.writer import StatementSource, Writer, no_statements, no_trace
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import LOCK_WAIT, LOST, LockConflictError, is_lock_wait, server_words
from bridge.mysql.state.ownership import Ownership, mark_connection
from bridge.mysql.state.progress import ProgressTable
from bridge.phases import Phase
from bridge.rows.key_spellings import is_alone
from bridge.rows.net_changes import odd_tables
from bridge.rows.order_and_slices import RowChanges, RowStatements
from bridge.rows.sql.statement import PLAIN, NotWritten, NotWrittenError, Rendering, Statement, WritePart

_ATTEMPTS: Final = 5
"""How often a part is begun anew after a deadlock or a lost connection, before one connection writes the whole step."""

_sessions: Final[dict[tuple[str, int, str], Session]] = {}
"""The session of this process, by the lock of its pipeline, the epoch and the server that the driver writes to: after a
failover, the server before it may go on, with the progress of that time."""


class FencedError(Exception):
    """Raised when a step is no longer written by this owner, or is done."""


@dataclass(frozen=True)
class Fence:
    """Tells by the progress row whether a step is still being written: its owner has the epoch, progress is where the
    step begins, and the row is marked as it was for the step.  A step that begins again with other changes, as after
    the loss of an executor, mostly ends elsewhere.

    marked_ts: what `ProgressTable.mark` gave for the step: its end, or that of a longer step that was interrupted
    before.
    """

    table: ProgressTable
    epoch: int
    old_ts: int
    marked_ts: int

    def hold(self, session: Session, lock: str) -> None:
        """Keeps the progress row as it is until the session's transaction ends: nobody can take over meanwhile, and the
        step cannot end.  Raises FencedError when either has happened."""
        if self.table.standing(session, lock) != (self.epoch, self.old_ts, self.marked_ts):
            raise FencedError("progress is not where the step begins, or is to go elsewhere")


def write_part(
    session: Session, fence: Fence, statements: Iterable[Statement], trace: Callable[[str], None] = no_trace
) -> None:
    """Runs statements in one transaction.

    TiDB has no shared lock: there the connections take turns, one COMMIT long.
    """
    session.begin()
    if not session.is_tidb:
        fence.hold(session, "LOCK IN SHARE MODE")
    trace("part begun")
    for statement in statements:
        if statement.load is not None:
            load_data.run(session, statement.sql, statement.load)
        else:
            check_matched(statement, matched_rows(session, statement))
    if session.is_tidb:
        fence.hold(session, "FOR UPDATE")
    trace("before part commit")
    session.commit()
    trace("part committed")


@dataclass(frozen=True)
class ExecutorWriter:
    """Writes parts of one step; it is sent to tasks.

    lock: the name of the pipeline's lock, by which others recognise its connections.
    server: the driver's, which alone knows what the progress row is, and has the locks on it; "" for a TiDB, whose
        servers are one.
    trace: told the name of each step (tests crash there).
    """

    target: Target
    fence: Fence
    lock: str
    server: str
    trace: Callable[[str], None] = no_trace

    def __call__(self, statements: Sequence[Statement]) -> NotWritten | None:
        """Commits the statements in one transaction; tells why not when it cannot."""
        outcome: NotWritten | None = None
        for _ in range(_ATTEMPTS):
            try:
                session = self._session()
            except (MySQLError, OSError, BridgeError) as error:
                return _not_written(error)._replace(cannot_connect=True)
            outcome, may_help = self._attempt(session, statements)
            if outcome is None or not may_help:
                break
        return outcome

    def _attempt(self, session: Session, statements: Sequence[Statement]) -> tuple[NotWritten | None, bool]:
        """Returns why the statements are not committed, and whether another attempt may help."""
        try:
            write_part(session, self.fence, statements, self.trace)
        except LoadRefusedError as refusal:
            self.close()
            return NotWritten(str(refusal), refused_load=refusal.table), False
        except (MySQLError, OSError, BridgeError, FencedError) as error:
            if isinstance(error, LockConflictError):
                with suppress(MySQLError, OSError):
                    session.rollback()
            else:
                self.close()
            may_help = isinstance(error, (LockConflictError, *LOST)) and not is_lock_wait(error)
            return _not_written(error), may_help
        except BaseException:
            self.close()
            raise
        return None, False

    def _session(self) -> Session:
        key = (self.lock, self.fence.epoch, self.server)
        if key not in _sessions:
            self.close()
            session = self.target.connect()
            if self.server not in ("", session.server):
                session.close()
                raise ConnectionError(f"the address leads to {session.server}, and to {self.server} from the driver")
            mark_connection(session, self.lock)
            _sessions[key] = session
        return _sessions[key]

    @staticmethod
    def close() -> None:
        """Ends the session of this process; an open transaction is rolled back."""
        while _sessions:
            _sessions.popitem()[1].close()


def _not_written(error: Exception) -> NotWritten:
    if isinstance(error, BridgeError):
        return NotWritten(error.what, error.fix)
    if is_lock_wait(error):
        return NotWritten(str(error.args[-1]), waits=True)
    return NotWritten(server_words(error) if isinstance(error, MySQLError) else str(error))


_NO_FIX: Final = "nothing is lost: one connection writes these rows"

_UNREACHED: Final = 3
"""After so many steps, one after the other, that executors could not connect for, they are asked no more."""

INTERLEAVED: Final = 2
"""The value of innodb_autoinc_lock_mode with which loads do not lock the whole table."""

log = structlog.get_logger()


class Executors(Protocol):
    """Those who write large steps."""

    def write(self, rows: RowChanges) -> bool:
        """Tells whether executors write these rows: the driver does not hold them, or there are more than one
        transaction should hold."""

    def write_apart(self, source: RowStatements, rendering: Rendering, write: WritePart, connections: int) -> None:
        """Has executors fold, render and write the rows of a source over so many connections.

        All rows of a key go by one call of `write`.  Raises NotWrittenError when some may not be written.
        """


class ParallelWriter(Writer):
    """A writer that has executors write large steps.

    connections: how many tasks write at once, at most.
    options: those of `Writer`.
    """

    def __init__(self, ownership: Ownership, *, executors: Executors, connections: int, **options: Any) -> None:
        super().__init__(ownership, **options)
        self._executors, self._connections = executors, connections
        self._unreached, self._is_logged = 0, False
        self._marked_on: Session | None = None

    def apply(self, step: Advance, source: StatementSource = no_statements) -> None:
        """Moves progress from step.old_ts to step.new_ts after the statements have been committed.

        Raises what `Writer.apply` raises: if a task cannot write its part, one transaction writes the whole step, and
        its outcome counts.
        """
        if self._unreached < _UNREACHED and isinstance(source, RowStatements):
            divided = self._divided(source)
            source = source if divided is None else self._rest_of(step, source, *divided)
        super().apply(step, source)

    def writes_apart(self, rows: RowChanges) -> bool:
        """Tells whether executors will probably write these rows."""
        return self._executors.write(rows)

    def _divided(self, source: RowStatements) -> tuple[RowStatements, RowStatements] | None:
        """Divides a step into what executors write and the rest; None where it is one transaction."""
        rows, catalog = source.rows, source.catalog
        if not self._executors.write(rows):
            return None
        odd = odd_tables(catalog, rows.lists(), PLAIN)
        names = list(rows.tables())
        alone = [name for name in names if name not in odd and is_alone(catalog[name])]
        apart = rows.of_tables(alone)
        if not alone or not self._executors.write(apart):
            return None
        rest = rows.of_tables([name for name in names if name not in alone])
        return replace(source, rows=apart), replace(source, rows=rest)

    def _rest_of(
        self, step: Advance, source: RowStatements, apart: RowStatements, rest: RowStatements
    ) -> StatementSource:
        """Has executors write, and gives what is left for the transaction that moves progress."""
        is_written = self._retry(lambda: self._written_apart(step, apart))

        def statements(rendering: Rendering) -> Iterable[Statement]:
            if is_written and self._session is self._marked_on:
                return rest(rendering)
            # After a failover another server may answer, which lagged; and a load may have been what failed.
            return source(replace(rendering, load_bytes=0))

        return statements

    def _written_apart(self, step: Advance, source: RowStatements) -> bool:
        """Has executors write rows; False where one connection must write them.  Raises LockConflictError when another
        transaction holds them."""
        try:
            fence = self._mark(step)
            write = ExecutorWriter(self._target, fence, self._ownership.lock, self._server())
            rendering = self._rendering(may_load=True)
            self.phases.enter(Phase.SERVER)
            if not self._is_logged:
                log.info("executors_write", connections=self._connections)
                self._is_logged = True
            self._executors.write_apart(source, rendering, write, self._connections)
        except (MySQLError, OSError, StoppedError) as error:
            _tell(error)
        except NotWrittenError as error:
            if error.reason.waits:
                raise LockConflictError(LOCK_WAIT, error.reason.why) from error
            log.warning("written_again", why=error.reason.why, fix=error.reason.fix or _NO_FIX)
            self._note(error.reason)
        else:
            self._unreached = 0
            return True
        return False

    def _note(self, reason: NotWritten) -> None:
        if reason.refused_load is not None:
            self._loadable.discard(reason.refused_load)
        self._unreached = self._unreached + 1 if reason.cannot_connect else 0
        if self._unreached == _UNREACHED:
            log.warning(
                "executors_do_not_write",
                why=reason.why,
                fix="nothing is lost: the driver writes alone; let executors reach the target, and start the bridge"
                " again, if that is too slow",
            )

    def _find_loadable(self, tables: Mapping[TableName, Table]) -> Collection[TableName]:
        """Leaves out tables that a load would lock as a whole (innodb_autoinc_lock_mode, which is 1 on MariaDB)."""
        loadable = super()._find_loadable(tables)
        if int(self.session().value("SELECT @@innodb_autoinc_lock_mode")) == INTERLEAVED:
            return loadable
        return [name for name in loadable if not tables[name].counts]

    def _mark(self, step: Advance) -> Fence:
        with self._whole_or_closed() as session:
            session.begin()
            marked_ts = self._table.mark(session, self._ownership.epoch, step)
            if marked_ts is None:
                self._raise_fenced(session, step)
            session.commit()
        self._marked_on = session
        self._trace("marked")
        return Fence(self._table, self._ownership.epoch, step.old_ts, marked_ts)

    def _server(self) -> str:
        """Gives the server that progress is moved on, where parts have to be written; "" for a TiDB, whose servers are
        one."""
        session = self.session()
        return "" if session.is_tidb else session.server


def _tell(error: Exception) -> None:
    """Says that one connection writes, and why.  Raises the error instead where another transaction holds the rows, or
    the progress row: a single connection would wait as well, with all rows of the step in one transaction."""
    if is_lock_wait(error):
        raise error
    what, fix = (error.what, error.fix) if isinstance(error, StoppedError) else (str(error), "")
    log.warning("written_again", why=what, fix=fix or _NO_FIX)
