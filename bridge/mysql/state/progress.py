"""Reads and writes the progress row, which alone tells how far a pipeline is (internals, decision 1) and who owns it
(decision 7).

All tables are in one database of the target, `_bridge` by default:
progress         one row per pipeline; every target transaction starts with a compare-and-set on it
owner            who runs the pipeline, its connections and heartbeat (apart from `progress`, whose row a long
                 transaction holds locked)
schema_changes   what ran, when, with which outcome
quarantine       what was quarantined (`mysql.state.quarantine`)
controls         what the operator has set with `bridge ctl` (`mysql.state.controls`)
routes           the routes and filters that the pipeline ran with (`mysql.state.routes_record`)
version          which form these tables have (`mysql.state.schema`)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from bridge.filters.table_filter import DEFAULT_SCHEMA
from bridge.model import Advance, PartitionStart, Positions, SchemaChange, quote_name
from bridge.mysql.connection.session import Session
from bridge.mysql.probe import read_only, require_writable, writable
from bridge.mysql.state import quarantine, schema


@dataclass(frozen=True)
class Progress:
    """The progress row as read."""

    name: str
    epoch: int
    applied_ts: int
    start_ts: int
    positions: Positions
    pending: tuple[SchemaChange, ...]
    applying_ts: int = 0
    """Up to where several connections are writing, or were when the bridge ended; not above applied_ts if none."""
    topics: Mapping[str, str] = field(default_factory=dict)
    """The ids of the topics in `positions`, as far as they are known."""

    @property
    def in_parts(self) -> bool:
        """Whether the target may hold parts of what is at or above applied_ts."""
        return self.applying_ts > self.applied_ts


class ProgressTable:
    """Reads and writes the bridge's own tables for one pipeline.  The caller gives the sessions."""

    def __init__(self, name: str, schema: str = DEFAULT_SCHEMA) -> None:
        self.name = name
        self.schema = schema
        self._progress = quote_name(schema, "progress")

    def create(self, session: Session) -> None:
        """Creates the bridge's own database and tables where they are missing (`schema.make`, with its
        errors)."""
        schema.make(session, self.schema)

    def exists(self, session: Session) -> bool:
        """Tells whether the bridge's tables exist (not whether this pipeline is known).  Raises TargetError when
        another version made them."""
        return schema.are_usable(session, self.schema)

    def is_known(self, session: Session) -> bool:
        """Tells whether the pipeline has a row, in any form of the tables."""
        if not schema.are_made(session, self.schema):
            return False
        return bool(session.value(f"SELECT COUNT(*) FROM {self._progress} WHERE name = %s", (self.name,)))

    def begin(self, session: Session, start_ts: int) -> None:
        """Creates the pipeline, beginning at start_ts (TSO); a known pipeline stays as it is."""
        if self.is_known(session):
            return  # INSERT IGNORE would wait for an owner's open transaction, which holds the row
        session.execute(
            f"INSERT IGNORE INTO {self._progress}"
            " (name, epoch, applied_ts, applying_ts, start_ts, positions, topics, pending)"
            " VALUES (%s, 0, %s, %s, %s, '{}', '{}', '[]')",
            (self.name, start_ts, start_ts, start_ts),
        )

    def read(self, session: Session, *, lock: bool = False) -> Progress | None:
        """Reads the progress row, None when the pipeline is unknown.  With `lock` it waits for a commit in flight."""
        rows = session.rows(
            "SELECT epoch, applied_ts, start_ts, positions, pending, applying_ts, topics"
            f" FROM {self._progress} WHERE name = %s" + (" FOR UPDATE" if lock else ""),
            (self.name,),
        )
        if not rows:
            return None
        epoch, applied_ts, start_ts, positions, pending, applying_ts, topics = rows[0]
        return Progress(
            self.name,
            int(epoch),
            int(applied_ts),
            int(start_ts),
            load_positions(positions),
            tuple(SchemaChange(**change) for change in orjson.loads(pending)),
            int(applying_ts),
            orjson.loads(topics),
        )

    def raise_epoch(self, session: Session) -> int:
        """Fences every earlier owner, and gives the new epoch.  It waits for a transaction that holds the row."""
        with session.transaction():
            self._update(session, "epoch = epoch + 1 WHERE name = %s", (self.name,))
            return int(session.value(f"SELECT epoch FROM {self._progress} WHERE name = %s", (self.name,)))

    def advance(self, session: Session, epoch: int, step: Advance) -> bool:
        """Does the compare-and-set at the start of every target transaction, and writes the step's quarantine
        entries.  What `mark` has recorded holds until progress has passed it.  Gives False when the row is not as
        expected.  Raises ProgressOrderError, ReadOnlyError."""
        step.check()
        is_current = self._update(
            session,
            "applied_ts = %s, applying_ts = GREATEST(applying_ts, %s), positions = %s, pending = %s"
            " WHERE name = %s AND epoch = %s AND applied_ts = %s",
            (
                step.new_ts,
                step.new_ts,
                dump_positions(step.positions),
                _dump_pending(step.pending),
                self.name,
                epoch,
                step.old_ts,
            ),
        )
        if is_current:
            quarantine.add_entries(session, self.schema, self.name, step.quarantined)
        return is_current

    def mark(self, session: Session, epoch: int, step: Advance) -> int | None:
        """Records that changes below step.new_ts are being written in parts, and gives the commit_ts (TSO) up to which
        the target may hold parts now: a step that was interrupted before may end later.  Gives None when the row is not
        as expected.  Raises ProgressOrderError, ReadOnlyError."""
        step.check()
        is_current = self._update(
            session,
            "applying_ts = GREATEST(applying_ts, %s) WHERE name = %s AND epoch = %s AND applied_ts = %s",
            (step.new_ts, self.name, epoch, step.old_ts),
        )
        if not is_current:
            return None
        return int(session.value(f"SELECT applying_ts FROM {self._progress} WHERE name = %s", (self.name,)))

    def standing(self, session: Session, lock: str) -> tuple[int, int, int] | None:
        """Gives the epoch, the applied ts and what `mark` has recorded, and keeps them from changing until the
        session's transaction ends; None when the pipeline is unknown.  lock: the clause that locks the row.  Raises
        ReadOnlyError."""
        rows = session.rows(
            f"SELECT epoch, applied_ts, applying_ts, {writable(session)} FROM {self._progress} WHERE name = %s {lock}",
            (self.name,),
        )
        if not all(is_writable for *_, is_writable in rows):
            raise read_only()
        return (int(rows[0][0]), int(rows[0][1]), int(rows[0][2])) if rows else None

    def set_pending(self, session: Session, epoch: int, pending: Iterable[SchemaChange]) -> bool:
        """Replaces the list of schema changes still to run; gives False when another owner has taken over."""
        return self._set(session, epoch, pending=_dump_pending(pending))

    def set_topics(self, session: Session, epoch: int, topics: Mapping[str, str]) -> bool:
        """Replaces the ids of the topics; gives False when another owner has taken over."""
        return self._set(session, epoch, topics=orjson.dumps(dict(topics)).decode())

    def forget_topic(self, session: Session, epoch: int, topic: str) -> bool:
        """Removes a topic; gives False when another owner has taken over."""
        progress = self.read(session)
        if progress is None or progress.epoch != epoch:
            return False
        positions = {where: start for where, start in progress.positions.items() if where[0] != topic}
        topics = {name: id_ for name, id_ in progress.topics.items() if name != topic}
        return self._set(session, epoch, positions=dump_positions(positions), topics=orjson.dumps(topics).decode())

    def _set(self, session: Session, epoch: int, **values: str) -> bool:
        """Sets columns of the row, in a transaction of its own; gives False when another owner has taken over."""
        columns = ", ".join(f"{column} = %s" for column in values)
        with session.transaction():
            return self._update(
                session, f"{columns} WHERE name = %s AND epoch = %s", (*values.values(), self.name, epoch)
            )

    def _update(self, session: Session, what: str, args: tuple[object, ...]) -> bool:
        """Alters the one row that is meant, if it is as expected.  Raises ReadOnlyError when the server takes no
        writes: what this user might write there all the same would be lost to the primary."""
        matched = session.execute(f"UPDATE {self._progress} SET {what} AND {writable(session)}", args)
        if matched != 1:
            require_writable(session)
        return matched == 1

    def forget(self, session: Session) -> bool:
        """Deletes the rows of the pipeline; gives False when it was unknown."""
        is_deleted = session.execute(f"DELETE FROM {self._progress} WHERE name = %s", (self.name,)) == 1
        session.execute(f"DELETE FROM {quote_name(self.schema, 'owner')} WHERE name = %s", (self.name,))
        for journal in ("schema_changes", "quarantine", "controls", "routes"):
            session.execute(f"DELETE FROM {quote_name(self.schema, journal)} WHERE name = %s", (self.name,))
        return is_deleted


def dump_positions(positions: Positions) -> str:
    """Writes positions as the progress row holds them."""
    by_topic: dict[str, dict[str, list[int | str | None]]] = {}
    for (topic, partition), start in positions.items():
        count = 10 if start.place or start.again else 8 if start.seen else 5 if start.begin else 4
        by_topic.setdefault(topic, {})[str(partition)] = list(start[:count])
    return orjson.dumps(by_topic).decode()


def load_positions(text: str) -> dict[tuple[str, int], PartitionStart]:
    """Reads what `dump_positions` wrote."""
    by_topic: dict[str, dict[str, list[Any]]] = orjson.loads(text)
    return {
        (topic, int(partition)): PartitionStart(*start)
        for topic, partitions in by_topic.items()
        for partition, start in partitions.items()
    }


def _dump_pending(pending: Iterable[SchemaChange]) -> str:
    return orjson.dumps(list(pending)).decode()
