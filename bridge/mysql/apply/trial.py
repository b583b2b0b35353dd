"""Finds the row changes that the target refuses: each is a statement of its own, so that the one that fails tells."""

from __future__ import annotations

from typing import NamedTuple

from bridge.errors import RefusedRowsError
from bridge.mysql.apply.run_statement import check_size, execute_statement
from bridge.mysql.connection.session import Session
from bridge.rows.net_changes import OrderedChanges
from bridge.rows.sql.in_order import Change, Moment, moments
from bridge.rows.sql.statement import Rendering, Stage


class Refused(NamedTuple):
    """A row change, or its half that takes the row away or brings it, and why the target refuses it."""

    change: Change
    why: RefusedRowsError


class _Failure(NamedTuple):
    number: int
    stage: Stage
    why: RefusedRowsError


def refused_changes(session: Session, net: OrderedChanges, rendering: Rendering, *, only_first: bool) -> list[Refused]:
    """Applies row changes in the session's open transaction, without those that the target refuses, and gives these.

    Raises ApplyError for what is the fault of no row, MySQLError for what a retry may cure.
    """
    found: list[Refused] = []
    for moment in moments(net, rendering):
        session.execute("SAVEPOINT moment")
        while moment.changes and (failure := _failure(session, moment, rendering)):
            session.execute("ROLLBACK TO SAVEPOINT moment")
            moment, change = moment.without(failure.number, failure.stage)
            found.append(Refused(change, failure.why))
            if only_first:
                return found
    return found


def _failure(session: Session, moment: Moment, rendering: Rendering) -> _Failure | None:
    for number, statement in moment.statements(rendering, is_single=True):
        try:
            check_size(session, statement)
            execute_statement(session, statement, safe_mode=True)
        except RefusedRowsError as refusal:
            return _Failure(number, statement.stage, refusal)
    return None
