"""Rules on schema changes of shards by what the journal says of the others."""

from __future__ import annotations

from typing import Final

from bridge.ddl.by_table.shard_statements import ShardStatement, shard_statement
from bridge.ddl.by_table.shard_track import Fate, Ruling, Track
from bridge.filters.routes import Routes
from bridge.model import SchemaChange, TableName
from bridge.mysql.connection.session import Session
from bridge.mysql.state.ddl_journal import Journal, JournalState

_FATES: Final = {
    JournalState.DONE: Fate.RAN,
    JournalState.CONFIRMED: Fate.CONFIRMED,
    JournalState.SKIPPED: Fate.SKIPPED,
}


class ShardJournal:
    """Follows the journal of one pipeline.  It reads each row once, as long as schema changes come in the journal's
    order; otherwise, or when the target went back, it reads all of them again.  So it says what it would say after a
    restart."""

    def __init__(self, journal: Journal, routes: Routes) -> None:
        self._journal, self._routes, self._begun_ts = journal, routes, 0
        self._forget()

    def _forget(self) -> None:
        self._tracks: dict[TableName, Track] = {}
        self._last_ts = 0
        self._of_last_ts: set[str] = set()

    def begin(self, change: SchemaChange) -> None:
        """Notes that a schema change, which is not in the journal as finished, comes next."""
        is_in_order = min(self._begun_ts, change.commit_ts) >= self._last_ts
        is_known = change.commit_ts == self._last_ts and change.statement_hash in self._of_last_ts
        if is_known or not is_in_order:
            self._forget()
        self._begun_ts = change.commit_ts

    def ruling(self, session: Session, change: ShardStatement) -> Ruling:
        """Rules on the schema change that comes next."""
        for commit_ts, statement_hash, schema, statement, state in self._journal.fates(session, _FATES, self._last_ts):
            if commit_ts > self._last_ts:
                self._last_ts, self._of_last_ts = commit_ts, set()
            if statement_hash in self._of_last_ts:
                continue
            self._of_last_ts.add(statement_hash)
            one = shard_statement(statement, schema, self._routes)
            if one is not None:
                self._track(one.target).note(one, _FATES[state])
        return self._track(change.target).ruling(change)

    def _track(self, target: TableName) -> Track:
        return self._tracks.setdefault(target, Track())
