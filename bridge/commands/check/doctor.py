"""Puts the checks in order: looks at one place after the other, and judges what was found.

A place that does not answer is one line; the lines that need it are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import TypeVar

from pymysql.err import MySQLError

from bridge.commands.check import Finding, fail, failed, grants, kafka, ok, protocol, server, tables, upstream
from bridge.commands.check.kafka import SourceFacts
from bridge.commands.check.protocol import Decoded
from bridge.commands.check.server import ServerFacts
from bridge.commands.check.upstream import UpstreamFacts
from bridge.commands.connections import extra_keys, source_of, target_of, upstream_of
from bridge.config import Settings
from bridge.errors import BridgeError, UsageError
from bridge.events import DdlStatement, RowChange
from bridge.filters.table_filter import ReservedSchemas
from bridge.mysql.server_errors import server_words
from bridge.mysql.state import schema as own_tables
from bridge.mysql.state.progress import Progress
from bridge.mysql.state.routes_record import require_kept_rules
from bridge.tso import parse_moment

T = TypeVar("T")


class Doctor:
    """Checks everything.  accepts_change: the start would have --accept-change."""

    def __init__(self, settings: Settings, *, accepts_change: bool) -> None:
        self._settings, self._accepts_change = settings, accepts_change
        self._decoded: Decoded | None = None
        self._source_facts: SourceFacts | None = None
        self._has_target = False

    def findings(self, *, create: bool) -> Iterator[Finding]:
        """Gives all lines, in the order of the way of the data: source, target, both, upstream.  Nothing is written to
        the target unless `create` asks for the bridge's own tables."""
        settings = self._settings
        begin = parse_moment(settings.begin)
        yield ok("settings", f"settings can be read; pipeline {settings.name!r}, begins at {begin or 'the earliest'}")
        yield from _of("source", lambda: kafka.gather(source_of(settings)), self._source)
        yield from _of("target", lambda: self._look_at_target(create=create), self._target)
        if settings.upstream.url:
            yield from _of("upstream", lambda: upstream.gather(upstream_of(settings)), self._upstream)

    def _look_at_target(self, *, create: bool) -> ServerFacts:
        target = target_of(self._settings)
        if create:
            with closing(target.connect(autocommit=True)) as session:
                own_tables.make(session, self._settings.target.schema_name)
        return server.gather(target, self._settings)

    def _source(self, facts: SourceFacts) -> Iterator[Finding]:
        self._source_facts = facts
        yield from kafka.judge(facts)
        if not facts.heads:
            return
        if (schemas := self._settings.source.registry.registry()) is not None:
            try:
                yield from protocol.judge_registry(facts, schemas)
                facts = protocol.in_plain_json(facts, schemas)
            except BridgeError as error:
                yield failed("registry", error)
                return
        finding = protocol.judge_protocol(facts, self._settings)
        yield finding
        if finding.ok:
            name = protocol.guess(facts)[0] if self._settings.protocol == "auto" else self._settings.protocol
            self._decoded = protocol.decode(facts, self._settings, name)
            yield from protocol.judge(facts, self._decoded, self._settings)

    def _target(self, facts: ServerFacts) -> Iterator[Finding]:
        settings, target, decoded = self._settings, target_of(self._settings), self._decoded
        self._has_target = True
        yield from server.judge(facts, str(target), settings)
        if facts.progress:
            yield from self._rules(facts.progress)
        if self._source_facts and facts.progress:
            yield from kafka.judge_topics(self._source_facts, facts.progress)
        elif self._source_facts:
            yield from kafka.judge_beginning(self._source_facts, parse_moment(settings.begin))
        reserved = ReservedSchemas(settings.target.schema_name)
        changes = [event for event in decoded.events if isinstance(event, RowChange | DdlStatement)] if decoded else []
        names = {change.schema for change in changes if change.schema and not reserved.why(change.schema)}
        yield from grants.judge(facts.grants, settings.target.schema_name, names)
        if decoded:
            gather = partial(tables.gather, target, decoded, settings, is_known=facts.progress is not None)
            yield from _of("target", gather, lambda facts: tables.judge(facts, decoded, settings))

    def _rules(self, progress: Progress) -> Iterator[Finding]:
        """Says that a start would refuse the routes or the filters, since the pipeline ran with others."""
        settings = self._settings
        own, accepts = settings.target.schema_name, self._accepts_change
        with closing(target_of(settings).connect(autocommit=True)) as session:
            try:
                require_kept_rules(session, own, progress, settings.row_rules, accepts_change=accepts)
            except UsageError as refusal:
                yield failed("routes", refusal)

    def _upstream(self, facts: UpstreamFacts) -> Iterator[Finding]:
        settings, origin = self._settings, upstream_of(self._settings)
        yield from upstream.judge(facts, str(origin), settings)
        if self._decoded:
            yield from upstream.judge_messages(facts, self._decoded, settings)
        if self._has_target:
            routes = settings.table_routes
            yield from _of("target", lambda: extra_keys(target_of(settings), origin, routes), upstream.judge_keys)


def _of(place: str, gather: Callable[[], T], judge: Callable[[T], Iterator[Finding]]) -> Iterator[Finding]:
    """Gives the lines of a place, or the one that says why there are none."""
    try:
        yield from judge(gather())
    except BridgeError as error:
        yield failed(place, error)
    except (MySQLError, OSError) as error:
        flag = "--upstream" if place == "upstream" else "--target"
        yield fail(
            place, f"the {place} does not answer: {server_words(error)}", f"check {flag}, and that the server runs"
        )
