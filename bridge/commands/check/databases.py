"""Checks that the databases exist in which the sample makes tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from bridge.commands.check.finding import Finding, fail
from bridge.commands.check.protocol import Decoded
from bridge.config import Settings
from bridge.ddl.classes import StatementKind
from bridge.ddl.parser import Classified, classify
from bridge.ddl.policy import Verdict
from bridge.events import Event, Kind
from bridge.mysql.connection.session import Session
from bridge.tso import parse_moment


def existing(session: Session) -> frozenset[str]:
    """Asks the target for its databases; their names in small letters."""
    found = session.rows("SELECT LOWER(schema_name) FROM information_schema.schemata")
    return frozenset(str(name) for (name,) in found)


def judge(there: Collection[str], found: Decoded, settings: Settings) -> Iterator[Finding]:
    """Names the databases that the target lacks, and that no schema change makes before a table in them."""
    lacking = sorted({name for name in _needed(found, settings) if name.lower() not in there})
    if lacking:
        yield fail(
            "databases",
            f"the target lacks databases in which schema changes of the sample make tables: {', '.join(lacking)}",
            "CREATE DATABASE there, with the character set and the collation that it has upstream",
        )


def _needed(found: Decoded, settings: Settings) -> Iterator[str]:
    begin, made = parse_moment(settings.begin), set[str]()
    for event in sorted(found.events, key=lambda event: event.commit_ts):
        change = _change_in(event)
        if change is None or event.commit_ts < begin:
            continue
        if change.kind is StatementKind.CREATE_DATABASE:
            made.add(change.database.lower())
        elif change.kind is StatementKind.CREATE_TABLE and _runs(change, event, settings):
            for table in change.tables:
                if table.schema.lower() not in made:
                    yield settings.table_routes.target(table).schema


def _change_in(event: Event) -> Classified | None:
    if event.kind is not Kind.SCHEMA_CHANGE or not event.text:
        return None
    change = classify(event.text, event.schema)
    return change if isinstance(change, Classified) else None


def _runs(change: Classified, event: Event, settings: Settings) -> bool:
    return settings.ddl_rules().decide(change, event.text or "").verdict is Verdict.ALLOW
