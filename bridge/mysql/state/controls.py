"""What the operator has set for a running pipeline with `bridge ctl`: one row for each kind.

The rows are not part of the progress row, which a long transaction holds locked.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from bridge.filters.table_filter import DEFAULT_SCHEMA
from bridge.model import quote_name
from bridge.mysql.connection.session import Session

CREATE_TABLE: Final = """CREATE TABLE IF NOT EXISTS {schema}.controls (
        name VARCHAR(128) COLLATE utf8mb4_bin NOT NULL,
        kind VARCHAR(16) CHARACTER SET ascii NOT NULL COMMENT 'pause, rate, throttle',
        value TEXT NOT NULL,
        set_by VARCHAR(255) NOT NULL,
        set_at TIMESTAMP(3) NOT NULL,
        PRIMARY KEY (name, kind)
    ) DEFAULT CHARSET = utf8mb4"""


class ControlKind(StrEnum):
    """What can be set."""

    PAUSE = "pause"
    RATE = "rate"
    THROTTLE = "throttle"


@dataclass(frozen=True)
class Control:
    """What is set.

    value: row changes a second, or limits as `Name=N,Name=N`; "" for a pause.
    by: user and machine.
    since: when it was set (UTC), by the target's clock.
    """

    kind: ControlKind
    value: str
    by: str
    since: datetime

    @property
    def words(self) -> str:
        """Says what is set, by whom and when."""
        what = {
            ControlKind.PAUSE: "paused",
            ControlKind.RATE: f"at most {self.value} row changes a second, set",
            ControlKind.THROTTLE: f"throttled above {self.value.replace(',', ', ')}, set",
        }[self.kind]
        return f"{what} by {self.by} since {self._since()}"

    def document(self) -> dict[str, Any]:
        """Returns it as a JSON document."""
        return {"value": self.value, "by": self.by, "since": self._since()}

    def _since(self) -> str:
        return self.since.isoformat(timespec="seconds").replace("+00:00", "Z")


Controls = dict[ControlKind, Control]


def as_document(controls: Controls) -> dict[str, Any]:
    """Returns what is set as a JSON document."""
    return {kind.value: control.document() for kind, control in controls.items()}


class ControlTable:
    """Reads and writes what is set for one pipeline.  The caller gives the sessions."""

    def __init__(self, name: str, schema: str = DEFAULT_SCHEMA) -> None:
        self._name, self._table = name, quote_name(schema, "controls")

    def read(self, session: Session) -> Controls:
        """Reads what is set."""
        rows = session.rows(
            f"SELECT kind, value, set_by, UNIX_TIMESTAMP(set_at) FROM {self._table} WHERE name = %s AND kind IN %s"
            " ORDER BY kind",
            (self._name, [kind.value for kind in ControlKind]),
        )
        controls = (
            Control(ControlKind(kind), value, by, datetime.fromtimestamp(float(at), UTC))
            for kind, value, by, at in rows
        )
        return {control.kind: control for control in controls}

    def set(self, session: Session, kind: ControlKind, value: str, by: str) -> None:
        """Sets one kind.  The same value again changes nothing, so that it stays known who set it first."""
        session.execute(
            f"INSERT INTO {self._table} (name, kind, value, set_by, set_at) VALUES (%s, %s, %s, %s, NOW(3))"
            " ON DUPLICATE KEY UPDATE set_at = IF(value = VALUES(value), set_at, VALUES(set_at)),"
            " set_by = IF(value = VALUES(value), set_by, VALUES(set_by)), value = VALUES(value)",
            (self._name, kind.value, value, by),
        )

    def lift(self, session: Session, kind: ControlKind) -> bool:
        """Lifts one kind; gives False when it was not set."""
        return session.execute(f"DELETE FROM {self._table} WHERE name = %s AND kind = %s", (self._name, kind.value)) > 0
