"""Writes a part of a step in a transaction that can only be committed while the step is being written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bridge.mysql.apply import load_data
from bridge.mysql.apply.run_statement import check_matched, matched_rows
from bridge.mysql.apply.writer import no_trace
from bridge.mysql.connection.session import Session
from bridge.mysql.state.progress import ProgressTable
from bridge.rows.sql.statement import Statement


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
