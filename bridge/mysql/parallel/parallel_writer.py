"""Writes with `parallel` consistency: several connections write the net changes of one step, and progress moves after
all of them (internals, decision 3).

Every connection commits its part on its own, so a reader may see one part of a step before another.  Nothing is lost or
applied twice: connections write the last images of keys, which give the same result when they are written again, and
after a crash all of them are written again.  Rows that must not be written twice (rows without a key, and rows
completed from old ones that are deleted) are part of the transaction that moves progress.

The connections are the driver's, for rows that the driver has, or those of Spark's executors, for rows that they have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import structlog
from pymysql.err import MySQLError

from bridge.ends.phases import Phase
from bridge.errors import StoppedError
from bridge.model import Advance, Table, TableName
from bridge.mysql.apply.load_data import LoadRefusedError
from bridge.mysql.apply.writer import StatementSource, Writer, no_statements
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.parallel.begun_step import BegunStep
from bridge.mysql.parallel.executor_writer import ExecutorWriter
from bridge.mysql.parallel.fenced_part import Fence
from bridge.mysql.parallel.part_connection import PartConnection, all_of
from bridge.mysql.parallel.silent_executors import silence_told
from bridge.mysql.parallel.units import Unit, units
from bridge.mysql.server_errors import LOCK_WAIT, LockConflictError, is_lock_wait
from bridge.mysql.state.ownership import Ownership
from bridge.mysql.state.progress import ProgressTable
from bridge.rows.order_and_slices import RowStatements, WindowRows
from bridge.rows.sql.statement import NotWritten, NotWrittenError, Rendering, Sharing, Statement

MIN_BYTES: Final = 256 * 1024
"""A step with fewer bytes to write than this is one transaction: spreading it costs more for commits than it saves."""
LOAD_BYTES: Final = 1024 * 1024
"""How many bytes are loaded at once: fewer than by a single connection, so that there are parts for all connections."""
_NO_FIX: Final = "nothing is lost: one connection writes these rows"

_UNREACHED: Final = 3
"""After so many steps, one after the other, that executors could not connect for, they are asked no more."""

INTERLEAVED: Final = 2
"""The value of innodb_autoinc_lock_mode with which loads do not lock the whole table."""

log = structlog.get_logger()


class ParallelWriter(Writer):
    """A writer that spreads statements over connections where it can.

    writers: how many connections.
    min_bytes: one connection writes a step with fewer bytes.
    begun: the step that was interrupted before, None when there was none.
    only_begun: whether the consistency is `atomic`, so that only that step is written in parts.
    options: those of `Writer`.
    """

    load_bytes: int = LOAD_BYTES

    def __init__(
        self,
        target: Target,
        table: ProgressTable,
        ownership: Ownership,
        *,
        writers: int,
        min_bytes: int = MIN_BYTES,
        begun: BegunStep | None = None,
        only_begun: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(target, table, ownership, **options)
        self._min_bytes, self._begun, self._only_begun = min_bytes, begun, only_begun
        self._unreached, self._is_told = 0, False
        self._marked_on: Session | None = None
        self._others = [
            PartConnection(target, ownership, self._left, self._loadable.discard, self._trace) for _ in range(writers)
        ]

    @property
    def connections(self) -> list[int]:
        """The ids of the server connections in use, for a bridge that takes over."""
        return [*super().connections, *(other.connection_id for other in self._others if other.connection_id)]

    def apply(self, step: Advance, source: StatementSource = no_statements) -> None:
        """Moves progress from step.old_ts to step.new_ts after the statements have been committed.

        Raises what `Writer.apply` raises: if a connection cannot write its part, one transaction writes the whole step,
        and its outcome counts.
        """
        if self._only_begun and not self._has_begun(step):
            super().apply(step, source)
        elif isinstance(source, RowStatements) and source.rows.is_apart:
            super().apply(step, self._left_apart(step, source))
        else:
            self._apply_here(step, source)

    def _has_begun(self, step: Advance) -> bool:
        return self._begun is not None and step.old_ts < self._begun.end_ts

    def _left_apart(self, step: Advance, source: RowStatements) -> StatementSource:
        """Has executors write what they have, and gives what is left for the transaction that moves progress."""
        if self._unreached >= _UNREACHED:
            return source

        def again(rendering: Rendering) -> Iterable[Statement]:
            return source(replace(rendering, load_bytes=0))  # a load may be the cause

        left: WindowRows | None = None
        for attempt in self._retrying():
            with attempt:
                left = self._written_apart(step, source)
        if left is None:
            return again
        rest = replace(source, rows=left)
        return lambda rendering: rest(rendering) if self._has_parts else again(rendering)

    def _written_apart(self, step: Advance, source: RowStatements) -> WindowRows | None:
        """Has executors write what they have; gives what is left, None where one connection must write everything.
        Raises LockConflictError when another transaction holds the rows."""
        try:
            fence = self._mark(step)
            write = ExecutorWriter(self._target, fence, self._ownership.lock, self._server())
            rendering = self._rendering(may_load=True)
            self.phases.enter(Phase.SERVER)
            if not self._is_told:
                log.info("executors_write", connections=len(self._others))
                self._is_told = True
            with silence_told(self._target, self._ownership.others):
                left = source.rows.written_apart(source.catalog, rendering, write, len(self._others))
        except (MySQLError, OSError, StoppedError) as error:
            _tell(error)
        except NotWrittenError as error:
            if error.found.waits:
                raise LockConflictError(LOCK_WAIT, error.found.why) from error
            log.warning("written_again", why=error.found.why, fix=error.found.fix or _NO_FIX)
            self._note(error.found)
        else:
            self._unreached = 0
            return left
        return None

    @property
    def _has_parts(self) -> bool:
        """Whether the server is sure to have the parts that were committed: after a failover another one may answer,
        which lagged."""
        return self._session is self._marked_on

    def _note(self, found: NotWritten) -> None:
        if found.refused_load is not None:
            self._loadable.discard(found.refused_load)
        self._unreached = self._unreached + 1 if found.cannot_connect else 0
        if self._unreached == _UNREACHED:
            log.warning(
                "executors_do_not_write",
                why=found.why,
                fix="nothing is lost: the driver writes alone; let executors reach the target, and start the bridge"
                " again, if that is too slow",
            )

    def _apply_here(self, step: Advance, source: StatementSource) -> None:
        first = self._rendering(may_load=True)
        try:
            statements = self._all(source, first)
        except (MySQLError, OSError):
            super().apply(step, source)
            return
        shared = [statement for statement in statements if statement.sharing is not Sharing.ONCE]
        is_large = bool(shared) and sum(statement.size for statement in shared) >= self._min_bytes
        most_bytes = self._begun.part_bytes(source, shared) if self._begun and self._has_begun(step) else None
        is_done = is_large and self._spread(step, shared, most_bytes)

        def ready(rendering: Rendering) -> Iterable[Statement]:
            if is_large and (rendering.safe_mode or not is_done or not self._has_parts):  # a load may be the cause
                return source(replace(rendering, load_bytes=0))
            all_of_it = statements if rendering == first else source(rendering)
            return (one for one in all_of_it if one.sharing is Sharing.ONCE) if is_done else all_of_it

        super().apply(step, ready)

    def _all(self, source: StatementSource, rendering: Rendering) -> list[Statement]:
        """Gives the statements of a step, which may need answers of the server.  Retries, and raises errors that no
        retry cures."""
        found: list[Statement] = []
        for attempt in self._retrying():
            with attempt:
                try:
                    found = list(self._timed(source, rendering))
                    self.phases.enter(Phase.SERVER)
                except (MySQLError, OSError):
                    self.close()
                    raise
        return found

    def _find_loadable(self, tables: Mapping[TableName, Table]) -> Collection[TableName]:
        """Leaves out tables that a load would lock as a whole (innodb_autoinc_lock_mode, which is 1 on MariaDB)."""
        found = super()._find_loadable(tables)
        if int(self.session().value("SELECT @@innodb_autoinc_lock_mode")) == INTERLEAVED:
            return found
        return [name for name in found if not tables[name].counts]

    def cut(self) -> None:
        """Ends the connections under who waits for an answer."""
        super().cut()
        for other in self._others:
            other.cut()

    def close(self) -> None:
        """Ends the writing sessions; open transactions are rolled back."""
        super().close()
        for other in self._others:
            other.close()

    def _spread(self, step: Advance, shared: Sequence[Statement], most_bytes: int | None) -> bool:
        """Commits statements on several connections.  Gives False when one connection must write them instead.
        most_bytes: as of `PartConnection.write`."""
        is_done = False
        for attempt in self._retrying():
            with attempt:
                is_done = self._are_written(step, units(shared), most_bytes)
        return is_done

    def _are_written(self, step: Advance, waiting: deque[Unit], most_bytes: int | None) -> bool:
        """Raises LockConflictError when another transaction holds the rows."""
        try:
            fence = self._mark(step)
            self._open()
            all_of([partial(other.write, fence, waiting, most_bytes) for other in self._others])
        except (MySQLError, OSError, StoppedError, LoadRefusedError) as error:
            _tell(error)
            return False
        return True

    def _mark(self, step: Advance) -> Fence:
        session = self.session()
        session.begin()
        try:
            marked_ts = self._table.mark(session, self._ownership.epoch, step)
            if marked_ts is None:
                self._raise_fenced(session, step)
            session.commit()
        except (MySQLError, OSError):
            super().close()
            raise
        self._marked_on = session
        self._trace("marked")
        return Fence(self._table, self._ownership.epoch, step.old_ts, marked_ts)

    def _server(self) -> str:
        """Gives the server that progress is moved on, where parts have to be written; "" for a TiDB, whose servers are
        one."""
        session = self.session()
        return "" if session.is_tidb else session.server

    def _open(self) -> None:
        server = self._server()
        opened = [other.open(server) for other in self._others]
        if any(opened):
            self._ownership.announce(self.session(), self.connections)


def _tell(error: Exception) -> None:
    """Says that one connection writes, and why.  Raises the error instead where another transaction holds the rows, or
    the progress row: a single connection would wait as well, with all rows of the step in one transaction."""
    if is_lock_wait(error):
        raise error
    what, fix = (error.what, error.fix) if isinstance(error, StoppedError) else (str(error), "")
    log.warning("written_again", why=what, fix=fix or _NO_FIX)
