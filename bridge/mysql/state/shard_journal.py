"""Rules on a schema change of a shard by what the journal says of the others."""

from __future__ import annotations

from typing import Final

from bridge.ddl.by_table.shard_statements import ShardStatement, shard_statement
from bridge.ddl.by_table.shard_track import Fate, Ruling, Track
from bridge.filters.routes import Routes
from bridge.mysql.connection import Session
from bridge.mysql.state.ddl_journal import Journal, JournalState

_FATES: Final = {
    JournalState.DONE: Fate.RAN,
    JournalState.CONFIRMED: Fate.CONFIRMED,
    JournalState.SKIPPED: Fate.SKIPPED,
}


def ruling_by_journal(session: Session, journal: Journal, change: ShardStatement, routes: Routes) -> Ruling:
    """Rules on a schema change that is not in the journal as finished."""
    entries = journal.entries(session, _FATES)
    past = [(shard_statement(entry.statement, entry.schema, routes), _FATES[entry.state]) for entry in entries]
    return Track((one, fate) for one, fate in past if one is not None and one.target == change.target).ruling(change)
