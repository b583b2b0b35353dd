"""`bridge check`: looks for everything that would stop a pipeline; one line each, with the fix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from pymysql.err import MySQLError

from bridge.commands.extra_unique_keys import extra_keys
from bridge.config import Settings, TargetSection, UpstreamSection, parse_moment
from bridge.errors import BridgeError
from bridge.events import Event, Kind
from bridge.filters.table_filter import TableFilter
from bridge.mysql import tidb
from bridge.mysql.apply.load_data import server_objection
from bridge.mysql.connection import Session, Target
from bridge.mysql.reach import find_limits
from bridge.mysql.server_errors import server_words
from bridge.mysql.target_only_keys import FIX
from bridge.mysql.triggers_and_cascades import find_side_effects
from bridge.mysql.writability import writable
from bridge.protocols import decode_message, is_mysql_born, make_decoder, recognise
from bridge.quoting import quote_name
from bridge.sources.boundary_probe import BoundaryProbe, probe_boundaries
from bridge.sources.source import KeyAndValue, Source
from bridge.tso import tso_time

SAMPLE_MESSAGES: Final = 200
_FEW_MESSAGES: Final = 20
"""So many messages show which product sent them."""
_WANTED_PRIVILEGES: Final = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "INDEX")
_SMALL_PACKET_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True)
class CheckResult:
    """The result of one check; `fix` is empty when there is nothing to do."""

    ok: bool
    what: str
    fix: str = ""


def check_all(
    settings: Settings, target: Callable[[], Target], source: Callable[[], Source], upstream: Callable[[], Target]
) -> list[CheckResult]:
    """Checks settings, target, source and, if one is given, the upstream, in this order.

    When one part fails, the others are checked all the same.
    """
    parts = (
        lambda: _check_settings(settings),
        lambda: _check_target(target(), settings),
        lambda: _check_source(source(), settings),
        lambda: _check_side_effects(target(), source(), settings),
        lambda: _check_upstream(upstream(), source(), settings) if settings.upstream.url else iter(()),
        lambda: _check_keys(target(), upstream(), settings) if settings.upstream.url else iter(()),
    )
    return [finding for part in parts for finding in _run_part(part)]


def _run_part(part: Callable[[], Iterator[CheckResult]]) -> Iterator[CheckResult]:
    try:
        yield from part()
    except BridgeError as error:
        yield CheckResult(False, error.what + (f" ({error.where})" if error.where else ""), error.fix)
    except (MySQLError, OSError) as error:
        yield CheckResult(
            False, f"the target does not answer: {server_words(error)}", "check --target, and that the server runs"
        )


def _check_settings(settings: Settings) -> Iterator[CheckResult]:
    settings.ddl_rules()
    begin = parse_moment(settings.begin)
    yield CheckResult(True, f"settings can be read; pipeline {settings.name!r}, begins at {begin or 'the earliest'}")
    if settings.timezone is None:
        yield CheckResult(
            True,
            "--timezone is not given: the first TIMESTAMP column of Canal-JSON or Open Protocol will stop the bridge,"
            " and so will the first row of ckafka",
            "give the zone that the sender runs with, such as UTC or Asia/Shanghai",
        )


def _check_target(target: Target, settings: Settings) -> Iterator[CheckResult]:
    session = target.connect(autocommit=True)
    try:
        yield CheckResult(True, f"the target answers: {session.value('SELECT VERSION()')} at {target}")
        yield _encryption(session, "target", settings.target)
        yield from _check_privileges(session, settings.target.schema_name)
        yield from _check_server(session)
        yield from _check_reach(session, target)
    finally:
        session.close()


def _encryption(session: Session, section: str, server: TargetSection | UpstreamSection) -> CheckResult:
    """Reports the encryption that is in use, which can differ from the one in the settings."""
    fix = f'set {section}.tls = "verify-identity"'
    if not session.is_encrypted:
        fix = f"if others can read the network, switch TLS on at the server and {fix}"
    return CheckResult(
        True,
        f'the connection to the {section}: {session.encryption} ({section}.tls = "{server.tls}")',
        fix if server.tls in {"preferred", "required"} else "",
    )


def _check_privileges(session: Session, schema: str) -> Iterator[CheckResult]:
    try:
        session.execute(f"CREATE DATABASE IF NOT EXISTS {quote_name(schema)}")
        session.execute(f"CREATE TEMPORARY TABLE {quote_name(schema, 'check')} (a INT PRIMARY KEY)")
        session.execute(f"DROP TEMPORARY TABLE {quote_name(schema, 'check')}")
        yield CheckResult(True, f"the user may create and write the database {schema}")
    except MySQLError as error:
        yield CheckResult(
            False,
            f"the user cannot write the bridge's database {schema}: {server_words(error)}",
            f"GRANT ALL ON `{schema}`.* TO the user",
        )
    grants = " ".join(str(row[0]).upper() for row in session.rows("SHOW GRANTS"))
    missing = [name for name in _WANTED_PRIVILEGES if name not in grants and "ALL PRIVILEGES" not in grants]
    if missing:
        yield CheckResult(
            False, f"the user lacks the privileges {', '.join(missing)}", "grant them on the replicated databases"
        )
    if "TRIGGER" not in grants and "ALL PRIVILEGES" not in grants:
        yield CheckResult(
            True,
            "the user lacks the privilege TRIGGER: the bridge cannot see triggers on the target",
            "GRANT TRIGGER ON *.* TO the user",
        )
    if "PROCESS" not in grants and "ALL PRIVILEGES" not in grants:
        yield CheckResult(
            True,
            "the user lacks the privilege PROCESS: after a crash in an EXCHANGE PARTITION the bridge cannot tell"
            " whether it ran",
            "GRANT PROCESS ON *.* TO the user",
        )


def _check_reach(session: Session, target: Target) -> Iterator[CheckResult]:
    """Names set-ups in which a lock or a KILL does not reach every bridge."""
    second = target.connect(autocommit=True)
    try:
        yield from (CheckResult(not limit.is_fatal, limit.what, limit.fix) for limit in find_limits(session, second))
    finally:
        second.close()


def _check_server(session: Session) -> Iterator[CheckResult]:
    packet = int(session.value("SELECT @@max_allowed_packet"))
    yield CheckResult(
        packet >= _SMALL_PACKET_BYTES,
        f"max_allowed_packet is {packet:,} bytes",
        "" if packet >= _SMALL_PACKET_BYTES else "set it to 64M, so that the largest row fits",
    )
    engine = session.value("SELECT @@default_storage_engine")
    transactional = str(engine).lower() == "innodb"
    yield CheckResult(transactional, f"default_storage_engine is {engine}", "" if transactional else "set it to InnoDB")
    if not session.value(f"SELECT {writable(session)}"):
        yield CheckResult(False, "the target is read-only", "point --target at the primary")
    if session.is_tidb:
        yield CheckResult(True, f"the target is TiDB; the bridge's sessions set {', '.join(tidb.SETTINGS)}")
    if why := server_objection(session):
        fix = "switch it on: writing then costs about a quarter less" if "local_infile" in why else ""
        yield CheckResult(True, f"rows are written with INSERT, not with LOAD DATA LOCAL: {why}", fix)


def _check_source(source: Source, settings: Settings) -> Iterator[CheckResult]:
    sample = source.sample(SAMPLE_MESSAGES)
    if not sample:
        yield CheckResult(True, f"{source} holds no message yet")
        return
    yield CheckResult(True, f"{source} can be read: {len(sample)} messages were sampled")
    protocol, reason = recognise(sample) if settings.protocol == "auto" else (settings.protocol, "as --protocol says")
    yield CheckResult(True, f"protocol {protocol}: {reason}")
    yield from _check_events(_decoded(sample, protocol, settings))
    yield _check_order(
        probe_boundaries(
            source,
            protocol,
            settings.decode_options(),
            without_boundaries=settings.debezium.without_boundaries,
        )
    )


def _decoded(sample: list[KeyAndValue], protocol: str, settings: Settings) -> list[Event]:
    options = settings.decode_options(TableFilter(settings.filter))
    decoder = make_decoder(protocol, replace(options, cut_rows=bool(settings.upstream.url)))
    return [event for key, value in sample for event in decode_message(decoder, key, value)]


def _check_side_effects(target: Target, source: Source, settings: Settings) -> Iterator[CheckResult]:
    cascades = is_mysql_born(source.sample(_FEW_MESSAGES))
    tables = TableFilter(settings.filter)
    session = target.connect(autocommit=True)
    try:
        found = [effect for effect in find_side_effects(session, cascades=cascades) if tables(*effect.table)]
    finally:
        session.close()
    what = "the target would change rows by itself"
    yield from (CheckResult(False, f"{what}: {effect.what}", effect.fix) for effect in found)
    if not found:
        yield CheckResult(
            True, "no trigger" + (" or cascading foreign key" if cascades else "") + " on the target's tables"
        )


def _check_upstream(upstream: Target, source: Source, settings: Settings) -> Iterator[CheckResult]:
    try:
        session = upstream.connect(autocommit=True)
        version = str(session.value("SELECT VERSION()"))
        encryption = _encryption(session, "upstream", settings.upstream)
        history = session.value("SELECT @@GLOBAL.tidb_gc_life_time") if session.is_tidb else None
        session.close()
    except (MySQLError, OSError) as error:
        yield CheckResult(
            False, f"the upstream does not answer: {server_words(error)}", "check --upstream, and that the server runs"
        )
        return
    yield CheckResult(True, f"the upstream answers: {version} at {upstream}")
    yield encryption
    if history is not None:
        yield CheckResult(
            True,
            f"the upstream shows the last {history} (tidb_gc_life_time), at the moments of verify and of rows that were"
            " cut to their key",
            "raise it above the time that the bridge may be behind, or that a verification takes",
        )
    else:
        count = _count_cut_rows(source, settings)
        yield CheckResult(
            count == 0,
            "the upstream is not TiDB: rows of which messages hold only the key cannot be read back at their commit ts"
            + (f"; the sample holds {count} of them" if count else ""),
            "if there are such rows, point --upstream at the TiDB that the changefeed reads",
        )


def _count_cut_rows(source: Source, settings: Settings) -> int:
    sample = source.sample(SAMPLE_MESSAGES)
    if not sample:
        return 0
    protocol = recognise(sample)[0] if settings.protocol == "auto" else settings.protocol
    return sum(event.kind <= Kind.UPDATE and event.text is not None for event in _decoded(sample, protocol, settings))


def _check_keys(target: Target, upstream: Target, settings: Settings) -> Iterator[CheckResult]:
    for found in extra_keys(target, upstream, TableFilter(settings.filter)):
        yield CheckResult(True, str(found), FIX)


def _check_events(events: list[Event]) -> Iterator[CheckResult]:
    bad = [event.text for event in events if event.kind is Kind.BAD]
    if bad:
        yield CheckResult(
            False,
            f"the sample holds {len(bad)} messages that cannot be decoded; the first: {bad[0]}",
            "fix what the reason names",
        )
    rows = sum(event.kind <= Kind.DELETE for event in events)
    boundaries = [event.commit_ts for event in events if event.kind is Kind.BOUNDARY]
    first = f", the first at {tso_time(min(boundaries))}" if boundaries else ""
    yield CheckResult(True, f"the sample holds {rows} row changes and {len(boundaries)} boundaries{first}")


def _check_order(probe: BoundaryProbe) -> CheckResult:
    """Tells which order and which guarantees the topic allows."""
    if probe.by_partition:
        return CheckResult(
            True,
            f"{probe.why}: each partition is applied in its order, every change exactly once; a reader may see a"
            " transaction of several partitions in parts, and when rows swap their keys in one transaction, one of them"
            " may be lost (bridge verify --against upstream shows it)",
            "for whole transactions, set enable-tidb-extension=true in TiCDC's sink-uri; others send no boundaries",
        )
    if probe.by_partition is None:
        return CheckResult(
            True,
            f"{probe.why}: nothing is applied before the first boundary comes",
            "for Canal-JSON and Debezium set enable-tidb-extension=true in TiCDC's sink-uri: else there are none",
        )
    return CheckResult(True, f"{probe.why}: transactions are applied whole, in commit order, exactly once")
