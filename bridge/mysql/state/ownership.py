"""Gives each pipeline one owner, by a server lock, an epoch and a heartbeat (internals, decision 7).

The lock is `GET_LOCK` on the control session, which also runs schema changes: when the server drops that session, the
lock is free, and no further statement can run on the session.  The epoch in the progress row keeps an owner that was
taken over from committing anything, however long it slept.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from threading import Thread
from typing import Final, NamedTuple

from pymysql.constants import ER
from pymysql.err import MySQLError

from bridge.ends import Abandoned
from bridge.errors import OwnedError, TargetError
from bridge.model import Advance, Positions, SchemaChange, quote_name
from bridge.mysql import tidb
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.probe import require_writable, writable
from bridge.mysql.schema_changes.ddl_runner import pipeline_tag, wait_while_running
from bridge.mysql.server_errors import LOCK_WAIT, LOST, LockConflictError
from bridge.mysql.state.progress import Progress, ProgressTable
from bridge.mysql.state.schema import pipeline_lock

STALE_SECONDS: Final = 30
"""A heartbeat older than this lets another bridge take over."""
_PATIENCE_SECONDS: Final = 3
"""How long to wait for the lock of a killed process: it is free as soon as the server notices, which may take a
moment."""
_KILL_SECONDS: Final = 10
"""How long a killed connection may take to give the lock back."""
_POLL_SECONDS: Final = 0.1
_CONTROL: Final = ":control"
"""The end of the name of a control session on TiDB."""
_BREAK_OFF_SECONDS: Final = 3.0
"""How long a target that does not answer may take to end connections at a stop."""
_LOCK_NAME: Final = 64


class Standing(NamedTuple):
    """What a transaction, or a schema change, leaves in the progress row; applied_ts alone does not tell one from the
    next where only partitions have an order, nor whether a schema change has run."""

    applied_ts: int
    positions: Positions
    pending: tuple[SchemaChange, ...]

    def __str__(self) -> str:
        return f"at commit ts {self.applied_ts}" + (", with schema changes still to run" if self.pending else "")


class TargetWentBack(Exception):  # noqa: N818  # not an error: the bridge reads again from the progress
    """Raised when the target lacks transactions that were committed, as after a failover to a server that lagged; the
    text says how far it is."""


class Ownership:
    """The right to write for one pipeline, held while the control session lives."""

    def __init__(self, target: Target, table: ProgressTable) -> None:
        self.target, self.table = target, table
        self.lock = pipeline_lock(table.schema, table.name)
        self.control = target.connect(autocommit=True)
        self.epoch = 0
        self._is_broken_off = False
        self._stands: tuple[Standing, ...] = ()

    def acquire(self, start_ts: int, *, take_over: bool, stop: Callable[[], bool] = lambda: False) -> None:
        """Takes the pipeline and raises its epoch.  An unknown pipeline is created and begins at start_ts (TSO).  It
        also creates or upgrades the bridge's own tables, with the errors of `schema.make`.

        It waits for a schema change that a dead owner has left running, until `stop` gives True.
        Raises OwnedError when a live bridge owns it and `take_over` is off, Abandoned when `stop` gave True,
        ReadOnlyError when the server takes no writes.
        """
        require_writable(self.control)
        if not self._try_lock(0 if take_over else _PATIENCE_SECONDS) or self._has_lapsed():
            self._evict(take_over=take_over, stop=stop)
        self._end_orphans()
        self._name_control()
        self.table.create(self.control)
        self.table.begin(self.control, start_ts)
        self.epoch = self.table.raise_epoch(self.control)
        self.control.execute(
            f"REPLACE INTO {self._owner_table} (name, epoch, host, pid, connections, started_at, heartbeat_at, state)"
            " VALUES (%s, %s, %s, %s, %s, NOW(3), NOW(3), '{}')",
            (self.table.name, self.epoch, socket.gethostname(), os.getpid(), str(self.control.connection_id)),
        )

    def reconnect(self) -> None:
        """Opens a new control session after the old one was cut, or its server became read-only: the address may lead
        to another one now.  Raises OwnedError when another bridge was faster, Abandoned after `break_off`."""
        if self._is_broken_off:
            raise Abandoned
        old = self.control.connection_id
        self.control.close()
        self.control = self.target.connect(autocommit=True)
        try:
            require_writable(self.control)
            if not self._try_lock(_PATIENCE_SECONDS) and not self._evict_myself(old):
                raise self.lost_error()
            self._name_control()
            self.check()
        except (MySQLError, OSError):
            self.control.close()  # the next attempt must not take it for one that holds the lock
            raise

    def _evict_myself(self, old: int) -> bool:
        """Ends the old control session: the server may still hold it, and its lock, although the network has cut it."""
        progress = self.table.read(self.control)
        if progress is None or progress.epoch != self.epoch:
            return False
        if self._killable(self._rival()) != {old}:
            return self._try_lock(0)  # it may have ended since
        wait_while_running(self.control, pipeline_tag(self.table.name), connection=old)
        _kill(self.control, old)
        return self._try_lock(_KILL_SECONDS)

    def revive(self) -> None:
        """Makes sure that the lock is held after a connection was cut, as by a restart of the server."""
        try:
            self.check()
        except (MySQLError, OSError) as error:
            if not isinstance(error, LOST):
                raise
            self.reconnect()

    def check(self) -> None:
        """Raises OwnedError unless this process still holds the lock and the epoch is its own, and what
        `check_progress` raises."""
        if self._holder(self.control) != self.control.connection_id:
            raise self.lost_error()
        self.check_progress(self.control)

    def check_progress(self, session: Session) -> None:
        """Raises OwnedError after a take-over, ReadOnlyError when the session's server takes no writes, Abandoned after
        `break_off`, and TargetWentBack when progress there is not as this process has left it, or first found it."""
        if self._is_broken_off:  # while the session was being opened, so that nobody cut it
            raise Abandoned
        require_writable(session)
        progress = self.table.read(session)
        if progress is not None and progress.epoch < self.epoch:
            raise TargetError(
                "the target does not know that this bridge has begun, as after a failover to a server that lagged",
                where=f"{self.target}, epoch {progress.epoch} instead of {self.epoch}",
                fix="start the bridge again: it goes on from what the target says",
            )
        if progress is None or progress.epoch != self.epoch:
            raise self.lost_error()
        standing = Standing(progress.applied_ts, progress.positions, progress.pending)
        expected, self._stands = self._stands, self._stands or (standing,)
        if expected and standing not in expected:
            self._stands = ()
            raise TargetWentBack(f"the target is {standing}, and was {expected[0]}")

    def committing(self, step: Advance) -> None:
        """Notes that progress may be moved by this step."""
        self._stands = (*self._stands[:1], Standing(step.new_ts, step.positions, step.pending))

    def committed(self, step: Advance) -> None:
        """Notes that progress was moved by this step."""
        self._stands = (Standing(step.new_ts, step.positions, step.pending),)

    def taking_off(self, rest: tuple[SchemaChange, ...]) -> None:
        """Notes that of the schema changes still to run only these may be left.  Call it after `check`."""
        self._stands = (self._stands[0], self._stands[0]._replace(pending=rest))

    def taken_off(self) -> None:
        """Notes that what `taking_off` said is so."""
        self._stands = self._stands[-1:]

    def progress(self) -> Progress:
        """Reads the progress; raises OwnedError where it is gone."""
        progress = self.table.read(self.control)
        if progress is None:
            raise self.lost_error()
        return progress

    def lost_error(self) -> OwnedError:
        """Makes the error of an owner that was taken over."""
        return OwnedError(
            f"another bridge has taken over the pipeline {self.table.name!r}",
            where=f"epoch {self.epoch}",
            fix="nothing to do here: the other bridge goes on; `bridge status` shows it",
        )

    def beat(self, session: Session, connections: list[int], state: str) -> None:
        """Writes heartbeat, connections and state (JSON) on a session that is never busy for long.  Raises OwnedError
        after a take-over, ReadOnlyError when its server takes no writes."""
        if self._is_broken_off:
            return
        matched = session.execute(
            f"UPDATE {self._owner_table} SET heartbeat_at = NOW(3), connections = %s, state = %s"
            f" WHERE name = %s AND epoch = %s AND {writable(session)}",
            (",".join(map(str, connections)), state, self.table.name, self.epoch),
        )
        if not matched:
            require_writable(session)
            epoch = session.value(f"SELECT epoch FROM {self._owner_table} WHERE name = %s", (self.table.name,))
            if epoch is not None and int(epoch) > self.epoch:
                raise self.lost_error()

    def end(self, connection: int) -> None:
        """Ends an earlier connection of this pipeline, which the server may still hold although the network has cut it.

        Afterwards its transaction is committed or rolled back, and nothing that is still on its way can follow: the
        server gives a connection's locks back last of all.  Raises LockConflictError when that takes too long.
        """
        if not self._marked(self.control, [connection]):
            return
        _kill(self.control, connection)
        mark = _mark_of(self.lock, connection)
        if self.control.value("SELECT GET_LOCK(%s, %s)", (mark, _KILL_SECONDS)) != 1:
            raise LockConflictError(LOCK_WAIT, f"the earlier connection {connection} does not end")
        self.control.value("SELECT RELEASE_LOCK(%s)", (mark,))

    def announce(self, session: Session, connections: list[int]) -> None:
        """Records connections as soon as they are open, so that a take-over finds a transaction left open on them; []
        gives the pipeline back."""
        session.execute(
            f"UPDATE {self._owner_table} SET connections = %s WHERE name = %s AND epoch = %s AND {writable(session)}",
            (",".join(map(str, connections)), self.table.name, self.epoch),
        )
        session.commit()

    def break_off(self, connections: list[int]) -> None:
        """Ends these connections on the server, so that it rolls back what they have in hand, and gives the pipeline
        back; a schema change that runs goes on there.  May be called from any thread, whatever the others wait for."""
        self._is_broken_off = True
        killing = Thread(target=self._end_all, args=(connections,), name="break off", daemon=True)
        killing.start()
        killing.join(_BREAK_OFF_SECONDS)
        self.control.cut()

    def _end_all(self, connections: list[int]) -> None:
        with suppress(MySQLError, OSError, TargetError), closing(self.target.connect(autocommit=True)) as session:
            for connection in self._marked(session, connections) | self.other_connections(session):
                _kill(session, connection)
            self.announce(session, [])

    def release(self) -> None:
        """Closes the control session, which frees the lock."""
        if not self._is_broken_off:
            with suppress(MySQLError, OSError):
                self.announce(self.control, [])
        self.control.close()

    @property
    def _owner_table(self) -> str:
        return quote_name(self.table.schema, "owner")

    def _try_lock(self, seconds: int) -> bool:
        return bool(self.control.value("SELECT GET_LOCK(%s, %s)", (self.lock, seconds)) == 1)

    def _holder(self, session: Session) -> int | None:
        """Gives the connection that holds the lock.  Of another's lock TiDB tells only that it is held (1)."""
        holder = session.value("SELECT IS_USED_LOCK(%s)", (self.lock,))
        return None if holder is None else int(holder)

    def _rival(self) -> int | None:
        """Gives the control session of another owner, or an earlier one of this owner; None when there is none."""
        if self.control.is_tidb:
            return next(iter(tidb.connections_named(self.control, self.lock + _CONTROL)), None)
        holder = self._holder(self.control)
        return None if holder == self.control.connection_id else holder

    def _name_control(self) -> None:
        """Has the control session recognised as the pipeline's, now that it holds the lock."""
        if self.control.is_tidb:
            tidb.set_name(self.control, self.lock + _CONTROL)
        else:
            mark_connection(self.control, self.lock)

    def _marked(self, session: Session, recorded: Iterable[int]) -> set[int]:
        """Finds which of these connections are the pipeline's: those that hold their mark.

        TiDB tells only that somebody holds a mark; there they must have the pipeline's name too.  Where a proxy has
        given the client other ids than the server's, none is found: KILL could hit anybody.
        """
        marks = {number: _mark_of(self.lock, number) for number in recorded}
        holders = {number: session.value("SELECT IS_USED_LOCK(%s)", (mark,)) for number, mark in marks.items()}
        if not session.is_tidb:
            return {number for number, holder in holders.items() if holder is not None and int(holder) == number}
        named = tidb.connections_named(session, self.lock) if marks else set()
        return {number for number, holder in holders.items() if holder is not None} | (named & marks.keys())

    def other_connections(self, session: Session) -> set[int]:
        """Finds all connections of the pipeline but control sessions: those of Spark's executors are not recorded."""
        if session.is_tidb:
            return tidb.connections_named(session, self.lock)
        rows = session.rows(
            "SELECT id FROM information_schema.processlist"
            f" WHERE IS_USED_LOCK(RIGHT(CONCAT(%s, ':', id), {_LOCK_NAME})) = id AND id <> %s",
            (self.lock, self._holder(session) or 0),
        )
        return {int(number) for (number,) in rows}

    def _has_lapsed(self) -> bool:
        """Tells whether the owner lives although its lock was free: TiDB takes locks away after an hour
        (`max-txn-ttl`).  An owner that has just died may be seen for a moment."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while is_alive := self.control.is_tidb and self._rival() is not None:
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
        return is_alive

    def _evict(self, *, take_over: bool, stop: Callable[[], bool]) -> None:
        host, pid, connections, age = self._current_owner()
        has_ended = age is not None and not connections  # it said so, and left a schema change that still runs
        if not take_over and not has_ended and age is not None and age <= STALE_SECONDS:
            raise OwnedError(
                f"the pipeline {self.table.name!r} belongs to another bridge",
                where=f"process {pid} on {host}, heartbeat {age} s old",
                fix="stop that bridge, or take over with --take-over",
            )
        rival = self._rival()
        if not wait_while_running(self.control, pipeline_tag(self.table.name), connection=rival, stop=stop):
            raise Abandoned
        for connection in (
            self._marked(self.control, connections) | self.other_connections(self.control) | self._killable(rival)
        ):
            _kill(self.control, connection)
        if not self._try_lock(_KILL_SECONDS):
            raise OwnedError(
                f"the pipeline {self.table.name!r} could not be taken over: its connections did not end, or their ids"
                " are not the server's own, as behind a proxy, so that none was killed",
                where=f"process {pid} on {host}",
                fix="stop that process; `bridge check` says whether its connections can be killed",
            )

    def _killable(self, rival: int | None) -> set[int]:
        """Gives the rival when KILL is certain to hit it: TiDB names it, other servers know it by its mark."""
        if rival is None:
            return set()
        return {rival} if self.control.is_tidb else self._marked(self.control, [rival])

    def _end_orphans(self) -> None:
        """Ends what an owner that is gone has left: its lock is free, but a transaction may still hold the row."""
        for connection in {*self._current_owner()[2], *self.other_connections(self.control)}:
            self.end(connection)

    def _current_owner(self) -> tuple[str, int, list[int], int | None]:
        if not self.table.is_known(self.control):  # the other bridge is about to create it
            return "?", 0, [], 0
        rows = self.control.rows(
            "SELECT host, pid, connections, TIMESTAMPDIFF(SECOND, heartbeat_at, NOW(3))"
            f" FROM {self._owner_table} WHERE name = %s",
            (self.table.name,),
        )
        if not rows:
            return "?", 0, [], 0
        host, pid, connections, age = rows[0]
        return host, pid, [int(part) for part in connections.split(",") if part], int(age)


def mark_connection(session: Session, lock: str) -> None:
    """Takes a lock on a connection, by which a take-over recognises the connection as the pipeline's: a restarted
    server uses the ids of connections again.  TiDB takes locks away after a time; there it gets a name, too."""
    session.value("SELECT GET_LOCK(%s, 0)", (_mark_of(lock, session.connection_id),))
    if session.is_tidb:
        tidb.set_name(session, lock)


def _mark_of(lock: str, connection: int) -> str:
    """Names the lock that only this connection takes; a name has 64 characters at most."""
    return f"{lock}:{connection}"[-_LOCK_NAME:]


def _kill(session: Session, connection: int) -> None:
    try:
        # A TiDB that cannot kill from afar takes no KILL without the word.
        session.execute(f"KILL {'TIDB ' if session.is_tidb else ''}{connection}")
    except MySQLError as error:
        if error.args[0] != ER.NO_SUCH_THREAD:
            raise
