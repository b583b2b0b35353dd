"""Reads and writes the table `schema_changes`: every schema change of a pipeline, its outcome, and the operator's
decision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import orjson

from bridge.ddl.by_table.shards import ShardStatement, shard_statement
from bridge.ddl.rewrite import RewriteStep, Rewritten
from bridge.ddl.rule import OmittedObject
from bridge.filters.routes import Routes
from bridge.model import SchemaChange, quote_name
from bridge.mysql.connection.session import Session


class JournalState(StrEnum):
    """What became of a schema change.

    RUNNING: it was about to run, and its outcome is not recorded yet.  DONE: its effect is on the target.
    CONFIRMED: its effect is on the target since it ran for another shard of a merged table.
    IGNORED: left out by the policy.  SKIPPED: left out by the operator.
    HELD: it waits for the operator.  REFUSED: the bridge or the target refused it; the bridge has stopped.
    APPROVED, REPLACED: the operator lets it run, or another text in its place.
    """

    RUNNING = "running"
    DONE = "done"
    CONFIRMED = "confirmed"
    IGNORED = "ignored"
    SKIPPED = "skipped"
    HELD = "held"
    REFUSED = "refused"
    APPROVED = "approved"
    REPLACED = "replaced"


FINISHED: Final = frozenset({JournalState.DONE, JournalState.CONFIRMED, JournalState.IGNORED, JournalState.SKIPPED})
OPEN: Final = frozenset({JournalState.HELD, JournalState.REFUSED})
"""States that wait for `bridge ddl approve`, `skip`, `replace` or `done`."""
DONE_BY_HAND: Final = "its effect was on the target, as the operator says"
"""The outcome of a schema change that the operator calls done."""
NOTHING_TO_RUN: Final = "nothing to run: nothing of it is for this target"
UNREADABLE: Final = "(a schema change that cannot be read)"
"""Begins the statement of a schema change whose message cannot be decoded; the message follows."""


@dataclass(frozen=True)
class JournalEntry:
    """A row of the journal.  run_text: what was sent to the target, "" before that.  replacement: the operator's text,
    "" when there is none.  place: that of the `SchemaChange`."""

    commit_ts: int
    statement_hash: str
    schema: str
    statement: str
    position: str
    state: JournalState
    fingerprint: str
    classes: str
    run_text: str
    rewrites: tuple[RewriteStep, ...]
    replacement: str
    outcome: str
    started_at: datetime
    finished_at: datetime | None
    place: str = ""

    def document(self) -> dict[str, Any]:
        """Gives the entry as a JSON document."""
        return {
            "commit_ts": self.commit_ts,
            "id": self.id,
            "state": self.state.value,
            "classes": self.classes,
            "schema": self.schema,
            "statement": self.statement,
            "run_as": self.run_text or None,
            "rewrites": [step._asdict() for step in self.rewrites],
            "replacement": self.replacement or None,
            "outcome": self.outcome,
            "position": self.position,
            "started_at": self.started_at.isoformat(),
            "finished_at": self.finished_at and self.finished_at.isoformat(),
        }

    @property
    def is_unclear(self) -> bool:
        """Whether it is held since nothing shows whether it ran: others are held before anything is sent."""
        return self.state is JournalState.HELD and bool(self.fingerprint)

    @property
    def is_by_hand(self) -> bool:
        """Whether the operator says that its effect is on the target, and does not say by which statement."""
        return self.state is JournalState.DONE and self.outcome == DONE_BY_HAND and not self.replacement

    @property
    def id(self) -> str:
        """What the operator calls it."""
        return f"{self.commit_ts}-{self.statement_hash[:8]}"


_COLUMNS: Final = (
    "commit_ts, statement_hash, schema_name, statement, position, state, fingerprint, classes, run_text, rewrites,"
    " replacement, outcome, started_at, finished_at, place"
)
_ANEW: Final = ", ".join(
    f"{name} = VALUES({name})" for name in [*_COLUMNS.split(", "), "left_out"] if name != "replacement"
)


class Journal:
    """Reads and writes one pipeline's rows.  The caller gives the sessions, which have autocommit."""

    def __init__(self, pipeline: str, schema: str) -> None:
        self._pipeline = pipeline
        self._table = quote_name(schema, "schema_changes")

    def find(self, session: Session, change: SchemaChange) -> JournalEntry | None:
        """Gives the row of a schema change; None when there is none."""
        rows = self._select(
            session, "commit_ts = %s AND statement_hash = %s", (change.commit_ts, change.statement_hash)
        )
        return rows[0] if rows else None

    def between(self, session: Session, low: int, high: int) -> list[SchemaChange]:
        """Gives the schema changes with low <= commit_ts < high (TSO), whatever became of them, in the order in which
        the bridge came to them.  Their doubt is what became of them."""
        rows = session.rows(
            f"SELECT commit_ts, schema_name, statement, position, place, outcome FROM {self._table}"
            " WHERE name = %s AND commit_ts >= %s AND commit_ts < %s ORDER BY started_at, commit_ts",
            (self._pipeline, low, high),
        )
        return [SchemaChange(int(ts), schema, "", *others) for ts, schema, *others in rows]

    def entries(self, session: Session, states: Iterable[JournalState] = tuple(JournalState)) -> list[JournalEntry]:
        """Gives the rows in these states, in the order of the upstream."""
        values = [state.value for state in states]
        return self._select(session, f"state IN ({', '.join(['%s'] * len(values))})", values)

    def of_shards(self, session: Session, routes: Routes) -> Iterator[tuple[ShardStatement, bool]]:
        """Gives the finished schema changes of shards, in the order of the upstream, each with whether it ran."""
        states = (JournalState.DONE, JournalState.CONFIRMED, JournalState.SKIPPED)
        rows = session.rows(
            f"SELECT schema_name, statement, state FROM {self._table} WHERE name = %s AND state IN (%s, %s, %s)"
            " ORDER BY commit_ts, started_at",
            (self._pipeline, *(state.value for state in states)),
        )
        for schema, statement, state in rows:
            one = shard_statement(statement, schema, routes)
            if one is not None:
                yield one, state == JournalState.DONE

    def unreadable(self, session: Session) -> list[JournalEntry]:
        """Gives the rows of schema changes whose messages cannot be decoded, in the order in which they stopped the
        bridge."""
        return self._select(session, "statement LIKE %s", (f"{UNREADABLE}%",))

    def done(self, session: Session, classes: Sequence[str]) -> list[JournalEntry]:
        """Gives the rows of what has run, of schema changes with exactly these classes each, in the order of the
        upstream."""
        condition = f"state = %s AND classes IN ({', '.join(['%s'] * len(classes))})"
        return self._select(session, condition, (JournalState.DONE.value, *classes))

    def latest(self, session: Session, count: int) -> list[JournalEntry]:
        """Gives the last rows, the newest first."""
        rows = session.rows(
            f"SELECT {_COLUMNS} FROM {self._table} WHERE name = %s ORDER BY commit_ts DESC, started_at DESC LIMIT %s",
            (self._pipeline, count),
        )
        return [_entry(row) for row in rows]

    def counts(self, session: Session) -> dict[str, int]:
        """Counts the rows in each state."""
        query = f"SELECT state, COUNT(*) FROM {self._table} WHERE name = %s GROUP BY state"
        return dict(session.rows(query, (self._pipeline,)))

    def _select(self, session: Session, condition: str, args: Iterable[object]) -> list[JournalEntry]:
        rows = session.rows(
            f"SELECT {_COLUMNS} FROM {self._table} WHERE name = %s AND {condition} ORDER BY commit_ts, started_at",
            (self._pipeline, *args),
        )
        return [_entry(row) for row in rows]

    def record(
        self,
        session: Session,
        change: SchemaChange,
        state: JournalState,
        *,
        fingerprint: str = "",
        rewritten: Rewritten | None = None,
        outcome: str = "",
    ) -> None:
        """Writes a new row, or a row anew, for a state that a schema change enters before it runs or instead of
        running.  What the operator gave in its place stays."""
        session.execute(
            f"INSERT INTO {self._table} (name, {_COLUMNS}, left_out) VALUES"
            " (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, '', %s, NOW(3), IF(%s, NOW(3), NULL), %s, %s)"
            f" ON DUPLICATE KEY UPDATE {_ANEW}",
            (
                *(self._pipeline, change.commit_ts, change.statement_hash, change.schema, change.text),
                *(change.position, state.value, fingerprint),
                ", ".join(one.value for one in rewritten.classified.classes) if rewritten else "",
                (rewritten.text if rewritten else None) or "",
                _json(rewritten.steps if rewritten else ()),
                *(outcome, state in FINISHED, change.place),
                _json(rewritten.left_out if rewritten else ()),
            ),
        )

    def close(self, session: Session, change: SchemaChange, state: JournalState, outcome: str) -> None:
        """Writes the outcome of a schema change."""
        session.execute(
            f"UPDATE {self._table} SET state = %s, outcome = %s, finished_at = NOW(3)"
            " WHERE name = %s AND commit_ts = %s AND statement_hash = %s",
            (state.value, outcome, self._pipeline, change.commit_ts, change.statement_hash),
        )

    def release(
        self, session: Session, entry: JournalEntry, state: JournalState, outcome: str, replacement: str = ""
    ) -> bool:
        """Writes the operator's decision on an open schema change; gives False when it is not open any more.  What the
        operator gave in its place before stays, so that the decision is about that."""
        matched = session.execute(
            f"UPDATE {self._table} SET state = %s, outcome = %s, replacement = %s"
            " WHERE name = %s AND commit_ts = %s AND statement_hash = %s AND state = %s",
            (
                state.value,
                outcome,
                replacement or entry.replacement,
                self._pipeline,
                entry.commit_ts,
                entry.statement_hash,
                entry.state.value,
            ),
        )
        return matched == 1

    def left_out(self, session: Session) -> set[OmittedObject]:
        """Gives all objects that the target did not get."""
        rows = session.rows(
            f"SELECT left_out FROM {self._table} WHERE name = %s AND left_out <> '[]'", (self._pipeline,)
        )
        return {OmittedObject(*thing) for (document,) in rows for thing in orjson.loads(document)}


def _json(rows: Iterable[tuple[str, ...]]) -> str:
    return orjson.dumps([list(row) for row in rows]).decode()


def _entry(row: tuple[Any, ...]) -> JournalEntry:
    entry = JournalEntry(*row)
    rewrites: Any = entry.rewrites  # still a text
    steps = tuple(RewriteStep(*step) for step in orjson.loads(rewrites))
    return replace(entry, commit_ts=int(entry.commit_ts), state=JournalState(entry.state), rewrites=steps)
