"""`bridge ddl`: lists schema changes, stores the operator's decisions, and shows how a statement would run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from bridge.commands.connections import open_session
from bridge.config import Settings
from bridge.ddl.by_table.routing import target_statement
from bridge.ddl.by_table.shards import shard_statement
from bridge.ddl.by_table.skipping import dropped_key, kept_key, wrong_without, wrong_without_unclear
from bridge.ddl.lexer import UnreadableError, statements
from bridge.ddl.parser import PassedOver, Refused, Unclear, classify
from bridge.ddl.policy import DdlRules, Verdict
from bridge.ddl.rewrite import RewriteStep, rewrite
from bridge.ddl.rule import Capabilities, Site, Surroundings, UnsupportedError, named_capabilities
from bridge.errors import BridgeError, UsageError
from bridge.events import DdlStatement
from bridge.filters.routes import Routes
from bridge.model import SchemaChange
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.probe import probe
from bridge.mysql.schema_changes.ddl_fingerprint import skipped_before
from bridge.mysql.schema_changes.ddl_plan import OnTarget
from bridge.mysql.schema_changes.ddl_session import UTC, session_zone
from bridge.mysql.state.ddl_journal import DONE_BY_HAND, OPEN, UNREADABLE, Journal, JournalEntry, JournalState
from bridge.mysql.state.progress import ProgressTable
from bridge.mysql.state.routes_record import read_rules
from bridge.protocols import DecodeOptions, decode_message, make_decoder
from bridge.protocols.values.event_time import is_of_connector

_DROPS: Final = re.compile(r"\s*(/\*.*?\*/\s*)*alter\b.*\bdrop\b", re.IGNORECASE | re.DOTALL)
"""What may drop a key, in a statement that is not understood."""


def entries(target: Target, table: ProgressTable) -> list[JournalEntry] | None:
    """Returns all schema changes of a pipeline, in the order of the upstream; None when the target holds no progress of
    any bridge."""
    with open_session(target) as session:
        return Journal(table.name, table.schema).entries(session) if table.exists(session) else None


def release(
    target: Target,
    table: ProgressTable,
    change: str,
    state: JournalState,
    replacement: str = "",
    *,
    settings: Settings = Settings(),  # noqa: B008  # immutable
) -> JournalEntry:
    """Stores the operator's decision about an open schema change, and returns its entry with its new state.

    To skip one of which nothing shows whether it ran says that it did: then it counts as run.

    change: the commit ts of the schema change, or the beginning of its id.  replacement: what runs, or was run by hand,
    in its place; with routes it names databases.
    Raises UsageError when `change` does not match exactly one, when the replacement is not a schema change, when it is
    not clear which tables it would change as it came, and when rows would be wrong in silence without what is to be
    skipped.
    """
    with open_session(target) as session:
        if not table.exists(session):
            raise _no_such(change, [])
        journal = Journal(table.name, table.schema)
        entry = _find(journal.entries(session, OPEN), change)
        record = read_rules(session, table.schema, table.name)
        routes = record.rules.routes if record else settings.table_routes
        if replacement or state is JournalState.REPLACED:
            statement = classify(replacement, "" if routes else entry.schema)
            if isinstance(statement, Refused):
                raise UsageError(
                    f"the replacement cannot run: {statement.reason}", fix="run it by hand, then say `bridge ddl done`"
                )
        elif state is JournalState.DONE and (what := _key_that_stays(session, table, entry, routes)):
            raise UsageError(
                f"{entry.id} is not done: {what}, and rows that differ upstream would overwrite each other",
                fix="drop the key on the target by hand, then say `bridge ddl done`; or `bridge ddl approve` it",
            )
        if state is JournalState.APPROVED:
            _refuse_unclear(entry)
        outcome = DONE_BY_HAND if state is JournalState.DONE else f"{state.value} by the operator"
        if state is JournalState.SKIPPED and entry.is_unclear:
            state, outcome = JournalState.DONE, DONE_BY_HAND
        elif state is JournalState.SKIPPED and (what := _wrong_without(session, table, entry, settings, routes)):
            raise UsageError(
                f"{entry.id} is not skipped, since then {what}, and nothing would tell",
                fix="make its change by hand, also to the rows, and say `bridge ddl done`; or `bridge ddl replace` it"
                " by what the table needs",
            )
        if not journal.release(session, entry, state, outcome, replacement):
            raise BridgeError(
                "somebody else has decided about this schema change meanwhile",
                where=entry.id,
                fix="look again with `bridge ddl list`",
            )
        return replace(entry, state=state)


def _key_that_stays(session: Session, table: ProgressTable, entry: JournalEntry, routes: Routes) -> str:
    text, schema = target_statement(entry.statement, entry.schema, routes) or ("", "")
    statement = classify(text, schema, is_certain=True)
    if isinstance(statement, Refused):
        return ""
    return dropped_key(text, statement, OnTarget(session, Journal(table.name, table.schema)).unique_keys)


def _refuse_unclear(entry: JournalEntry) -> None:
    """Raises UsageError for a statement that cannot run as it came, whoever approves it."""
    original = classify(entry.statement, entry.schema)
    if isinstance(original, Unclear):
        raise UsageError(
            f"{entry.id} is not approved, since the target may take other tables for those it changed upstream:"
            f" {original.reason}",
            fix="bridge ddl replace it by itself with the databases of all names; or make its change by hand, and say"
            " `bridge ddl done`",
        )
    if entry.statement.startswith(UNREADABLE):
        raise UsageError(
            f"{entry.id} is not approved, since nothing is known of it that could run",
            fix="bridge ddl replace it by what it changed upstream; or make its change by hand, and say `bridge ddl"
            " done`",
        )


def _wrong_without(
    session: Session, table: ProgressTable, entry: JournalEntry, settings: Settings, routes: Routes
) -> str:
    original = classify(entry.statement, entry.schema)
    if isinstance(original, Unclear):
        return wrong_without_unclear(original.classified)
    text, schema = target_statement(entry.statement, entry.schema, routes) or ("", "")
    statement = classify(text, schema, is_certain=True)
    journal = Journal(table.name, table.schema)
    if isinstance(statement, Refused):
        may_drop = isinstance(original, Refused) and _DROPS.match(entry.statement)
        return "rows that differ upstream would overwrite each other if it drops a unique key" if may_drop else ""
    change = SchemaChange(entry.commit_ts, entry.schema, "", entry.statement, entry.position)
    if skipped := skipped_before(journal, session, routes, change, text, statement):
        return f"rows that are there keep what they held before, as {skipped.id} was {skipped.state}"
    around = OnTarget(session, journal)
    if what := kept_key(text, statement, around.unique_keys, around.column_definition):
        return f"rows that differ upstream would overwrite each other: {what}"
    is_utc = session_zone(session, settings.ddl_rules().timezone) in {UTC, "UTC"}
    is_debezium = is_of_connector(entry.place)
    return wrong_without(
        text, statement, around.column_definition, around.is_there, is_utc=is_utc, is_debezium=is_debezium
    )


def _find(open_entries: list[JournalEntry], change: str) -> JournalEntry:
    matches = [entry for entry in open_entries if change == str(entry.commit_ts) or entry.id.startswith(change)]
    if len(matches) != 1:
        raise _no_such(change, open_entries)
    return matches[0]


def _no_such(change: str, open_entries: list[JournalEntry]) -> UsageError:
    ids = ", ".join(entry.id for entry in open_entries)
    return UsageError(
        f"{change!r} does not name exactly one schema change that is held or was refused",
        fix=f"choose one of: {ids}" if ids else "nothing has to be done: no schema change waits",
    )


@dataclass(frozen=True)
class Translation:
    """How a statement would run on the target.

    verdict: what the policy does with the statement.
    text: the statement as the target would run it; None when nothing would run.
    """

    statement: str
    schema: str
    verdict: str
    reason: str
    classes: tuple[str, ...] = ()
    text: str | None = None
    steps: tuple[RewriteStep, ...] = ()

    def document(self) -> dict[str, Any]:
        """Returns the translation as a JSON document."""
        return {
            **{"statement": self.statement, "schema": self.schema, "verdict": self.verdict, "reason": self.reason},
            **{"classes": list(self.classes), "text": self.text, "rewrites": [step._asdict() for step in self.steps]},
        }


def translate(statement: str, schema: str, rules: DdlRules, site: Site) -> Translation:
    """Tells how `statement`, with `schema` as the current database, would run."""
    parsed = classify(statement, schema)
    if isinstance(parsed, PassedOver):
        return Translation(statement, schema, Verdict.ALLOW, parsed.reason)
    classes = () if isinstance(parsed, Refused) else tuple(change.value for change in parsed.classes)
    try:
        rewritten = rewrite(statement, schema, site)
    except UnsupportedError as unsupported:
        return Translation(statement, schema, Verdict.HOLD, str(unsupported), classes)
    if isinstance(rewritten, Refused):
        return Translation(statement, schema, Verdict.REFUSE, rewritten.reason, classes)
    if reason := rules.forbids(rewritten.classified) or rules.forbids(rewritten.upstream):
        return Translation(statement, schema, Verdict.REFUSE, reason, classes)
    shard = shard_statement(statement, schema, rules.routes)
    if shard is not None and shard.why_never:
        return Translation(statement, schema, Verdict.HOLD, shard.why_never, classes)
    decision = rules.decide(rewritten.upstream, statement)
    return Translation(statement, schema, decision.verdict, decision.reason, classes, rewritten.text, rewritten.steps)


@contextmanager
def site_for(settings: Settings, target: Target | None, flavour: str | None) -> Iterator[tuple[DdlRules, Site]]:
    """Gives the rules of the settings, and the site to translate for: a live target, or a flavour by name."""
    rules = replace(settings.ddl_rules(), own_schema=settings.target.schema_name)
    if flavour is not None:
        yield rules, _site(rules, named_capabilities(flavour), Surroundings(), rules.timezone or UTC)
        return
    if target is None:
        raise UsageError("no target to translate for is given", fix="give --target, or --flavour mariadb-11.4")
    with open_session(target) as session:
        table = ProgressTable(settings.name, settings.target.schema_name)
        has_tables = table.exists(session)
        around: Surroundings = OnTarget(session, Journal(table.name, table.schema)) if has_tables else Surroundings()
        yield rules, _site(rules, probe(session), around, session_zone(session, rules.timezone))


def _site(rules: DdlRules, target: Capabilities, around: Surroundings, timezone: str | None) -> Site:
    return Site(target, rules.collations, rules.source, around, rules.routes, timezone=timezone)


def split(text: str) -> list[str]:
    """Splits a text into statements; UsageError when it cannot be read."""
    try:
        return statements(text)
    except UnreadableError as error:
        raise UsageError(
            f"the text cannot be split into statements: {error}", fix="check its quotes and comments"
        ) from error


def schema_changes(
    messages: Iterable[tuple[bytes | None, bytes | None]], protocol: str, options: DecodeOptions
) -> Iterator[tuple[str, str]]:
    """Yields (schema, statement) of each schema change in the messages; copies of one change count once."""
    decoder = make_decoder(protocol, options)
    identities = set()
    for key, value in messages:
        for event in decode_message(decoder, key, value):
            if isinstance(event, DdlStatement) and event[:5] not in identities:
                identities.add(event[:5])
                yield event.schema, event.statement
