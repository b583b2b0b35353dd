"""An end that is away while the pipeline starts: it is waited for as later, and said."""

from __future__ import annotations

from collections.abc import Iterator

from tenacity import AttemptManager

from bridge.ends.end import End, Ends
from bridge.errors import TargetError
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import TRANSIENT, server_words, trouble
from bridge.pipeline.watching.status import Status

_WORK = "starting"


def attempts_to_start(end: End, target: Target) -> Iterator[AttemptManager]:
    """Attempts at what the start wants of the target, until it answers and takes writes; raises TargetError when it was
    away for too long, and Abandoned when nobody waits any more."""

    def given_up(error: BaseException) -> TargetError:
        return TargetError(
            f"the target {trouble(error)}, and {end.retry_seconds:g} s are over: {server_words(error)}",
            where=str(target),
            fix="check --target, that the server runs, is reachable and takes writes, then start the bridge again",
        )

    return end.attempts(_WORK, TRANSIENT, trouble, given_up)


class StartReporter:
    """Makes the status while nothing can be read and applied yet."""

    def __init__(self, applied_ts: int, ends: Ends) -> None:
        self._applied_ts, self._ends = applied_ts, ends

    def status(self) -> Status | None:
        """Returns a status that says which end is away; None while both answer."""
        waiting_for = self._ends.waiting_for
        if not waiting_for:
            return None
        return Status(
            applied_ts=self._applied_ts,
            resolved_ts=0,
            source_lag=None,
            apply_lag=None,
            rows=0,
            rows_per_second=0.0,
            messages=0,
            messages_total=0,
            backlog_rows=0,
            late=0,
            repeated=0,
            left_out=0,
            quarantined=0,
            safe_mode=0,
            retries=self._ends.target.retries,
            target_away=round(self._ends.target.away_seconds, 1),
            source_away=round(self._ends.source.away_seconds, 1),
            phases={},
            waiting_for=waiting_for,
        )
