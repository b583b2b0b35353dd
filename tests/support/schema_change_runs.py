"""Schema changes that a pipeline without Spark comes to."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from bridge.commands.ddl import release
from bridge.ddl.policy import DdlRules
from bridge.errors import HeldError
from bridge.model import SchemaChange
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.schema_changes.ddl_plan import Planner
from bridge.mysql.schema_changes.ddl_session import DdlSession
from bridge.mysql.state.ddl_journal import Journal, JournalState
from bridge.mysql.state.progress import ProgressTable
from bridge.tso import ms_tso
from tests.support.pipelines import run_all
from tests.support.upstreams import boundary, in_one_partition, schema_change

TS = ms_tso(1_700_000_000_000)
MOMENT = datetime.fromtimestamp(1_700_000_000, UTC).replace(tzinfo=None)


def run(url: str, *statements: str, ts: int = TS, **options: Any) -> None:
    """A pipeline that comes to these statements, all of one commit_ts, and to its end."""
    run_all(url, in_one_partition([*(schema_change(ts, text) for text in statements), boundary(ts + 1)]), **options)


def outcome(session: Session) -> tuple[str, str]:
    """State and words of the one schema change that was recorded."""
    ((state, words),) = session.rows("SELECT state, outcome FROM _bridge.schema_changes")
    return str(state), str(words)


def decide(target: str, session: Session, state: JournalState) -> None:
    """The operator's decision on the one open schema change."""
    open_one = session.value("SELECT commit_ts FROM _bridge.schema_changes WHERE state IN ('held', 'refused')")
    release(Target(target), ProgressTable("bridge"), str(open_one), state)


class Decisions:
    """What a pipeline with these rules decides about schema changes, which do not run."""

    def __init__(self, session: Session, rules: DdlRules) -> None:
        ProgressTable("bridge").create(session)
        own = replace(rules, own_schema="_bridge")
        self._session, self._planner = session, Planner(Journal("bridge", "_bridge"), own, DdlSession(own))

    def why(self, statement: str, place: str = "", ts: int = TS) -> str:
        """Why a statement in the database m is held; "" where it would run.  place: of the message."""
        try:
            self._planner.plan(self._session, SchemaChange(ts, "m", "t", statement, "cdc/0/0", place), None)
        except HeldError as held:
            return held.what
        return ""
