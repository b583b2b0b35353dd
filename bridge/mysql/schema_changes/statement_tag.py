"""Tags every schema change with a comment, by which a statement that outlived its client is found on the server."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

import structlog

from bridge.model import SchemaChange
from bridge.mysql import tidb
from bridge.mysql.connection.session import Session

_POLL_SECONDS: Final = 0.5
_SAY_SECONDS: Final = 10.0

log = structlog.get_logger()


def pipeline_tag(pipeline: str) -> str:
    """Gives the text that all tags of a pipeline begin with."""
    return f"/* bridge {re.sub(r'[^A-Za-z0-9_.-]', '_', pipeline)} "


def statement_tag(pipeline: str, change: SchemaChange) -> str:
    """Gives the tag of one schema change."""
    return f"{pipeline_tag(pipeline)}{change.commit_ts} {change.statement_hash[:12]} */"


def wait_while_running(
    session: Session, tag: str, *, connection: int | None = None, stop: Callable[[], bool] = lambda: False
) -> bool:
    """Waits until no statement that begins with `tag` runs on another connection (or on `connection`, if it is given).

    A server goes on with an ALTER TABLE whose client is gone; if it were sent again, it would run twice.  Gives False
    when `stop` became true first.
    """
    said_at = 0.0
    while (running := _running(session, tag, connection)) is not None:
        if stop():
            return False
        if time.monotonic() - said_at > _SAY_SECONDS:
            said_at = time.monotonic()
            log.info("schema_change_still_runs", connection=running[0], seconds=running[1])
        time.sleep(_POLL_SECONDS)
    return True


def _running(session: Session, tag: str, connection: int | None) -> tuple[int, int] | None:
    """Gives the connection and the seconds of a running statement that begins with the tag; None when there is none."""
    if session.is_tidb:
        return next(iter(tidb.running(session, tag)), None)
    rows = session.rows(
        "SELECT id, time FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND INSTR(info, %s) = 1"
        + ("" if connection is None else " AND id = %s"),
        (tag,) if connection is None else (tag, connection),
    )
    return (int(rows[0][0]), int(rows[0][1])) if rows else None
