"""Checks of the upstream server itself, where one is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from pymysql.err import MySQLError

from bridge.commands.check import Finding, fail, ok, warn
from bridge.commands.check.protocol import Decoded
from bridge.commands.check.server import Encryption, judge_encryption
from bridge.config import Settings
from bridge.ddl.collation_tables import SOURCES, SourceDefaults, is_tidb
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import TRANSIENT
from bridge.mysql.table_definition import FIX, ExtraKey


@dataclass(frozen=True)
class UpstreamFacts:
    """The upstream server.

    variables: global variables, in lower case; those that it does not have are missing.
    new_collations: of TiDB, whether it compares as collations say; None where that cannot be read.
    """

    version: str
    is_tidb: bool
    encryption: Encryption
    variables: Mapping[str, str]
    new_collations: bool | None = None


def gather(upstream: Target) -> UpstreamFacts:
    """Asks the upstream."""
    with closing(upstream.connect(autocommit=True)) as session:
        return UpstreamFacts(
            str(session.value("SELECT VERSION()")),
            session.is_tidb,
            Encryption(session.encryption, session.is_encrypted),
            session.variables("GLOBAL", _VARIABLES),
            _new_collations(session) if session.is_tidb else None,
        )


_OF_ROWS: Final = {
    "binlog_format": ("ROW", "its binlog lacks changes of rows"),
    "binlog_row_image": ("FULL", "messages hold parts of rows"),
    "binlog_transaction_compression": ("OFF", "nothing tells which rows of a transaction the sender sends again"),
    "binlog_row_value_options": ("", "Debezium passes over updates of JSON"),
    "log_bin_compress": ("OFF", "Debezium passes over rows"),
}
"""Variables of how the binlog holds rows: what they have to be, and what is lost otherwise."""
_VARIABLES: Final = ("log_bin", "collation_server", "character_set_collations", *_OF_ROWS)


def _new_collations(session: Session) -> bool | None:
    """Asks TiDB whether it began with collations (TiDB manual, "Character Set and Collation").  None where the user may
    not read that."""
    try:
        setting = session.value("SELECT variable_value FROM mysql.tidb WHERE variable_name = 'new_collation_enabled'")
    except MySQLError as error:
        if isinstance(error, TRANSIENT):
            raise
        return None
    return None if setting is None else str(setting).lower() == "true"


def judge(facts: UpstreamFacts, place: str, settings: Settings) -> Iterator[Finding]:
    """Judges the server itself; `place` is its address without secrets."""
    yield ok("upstream", f"the upstream answers: {facts.version} at {place}")
    yield judge_encryption("upstream", facts.encryption, settings.upstream)
    if facts.is_tidb:
        yield _judge_collations(facts, settings.ddl.source)


def _judge_collations(facts: UpstreamFacts, source: str) -> Finding:
    is_old = source == "tidb-old-collations"
    if facts.new_collations is None:
        return warn(
            "upstream-collations",
            "whether the upstream's collations compare bytes cannot be read (mysql.tidb, new_collation_enabled)",
            "GRANT SELECT ON mysql.tidb to the user of --upstream there, and check again",
        )
    if facts.new_collations is is_old:
        fix = (
            'set ddl.source = "tidb", and make tables that are there anew, with the collations that they have upstream'
            if is_old
            else 'set ddl.source = "tidb-old-collations" before tables are made or copied; give those that are there'
            " collations that compare bytes"
        )
        compares = "as their names say" if facts.new_collations else "bytes, whatever their names say"
        what = f"the upstream's collations compare {compares}, and ddl.source is {source}"
        return fail("upstream-collations", what, fix)
    compares = "bytes" if is_old else "as their names say"
    return ok("upstream-collations", f"the upstream's collations compare {compares}, as ddl.source = {source} has it")


def judge_messages(facts: UpstreamFacts, decoded: Decoded, settings: Settings) -> Iterator[Finding]:
    """Judges whether the server can give, and log, what the messages need."""
    if facts.is_tidb:
        return
    cut = sum(row.cut is not None for row in decoded.rows)
    if cut:
        what = "the upstream is not TiDB: rows of which messages hold only the key cannot be read back"
        fix = "point --upstream at the TiDB that the changefeed reads"
        yield fail("upstream-history", f"{what}; the sample holds {cut} of them", fix)
    if decoded.is_mysql_born and decoded.events:
        yield from _judge_binlog(facts.variables)
        if not is_tidb(settings.ddl.source):  # which is wrong itself, and takes no defaults
            yield _judge_defaults(facts.variables, SOURCES[settings.ddl.source].but(settings.ddl.defaults))


def _judge_binlog(variables: Mapping[str, str]) -> Iterator[Finding]:
    if variables.get("log_bin", "OFF").upper() not in {"ON", "1"}:
        return  # a copy, or a replica, of the server whose binlog is read
    wrong = [name for name, (right, _) in _OF_ROWS.items() if variables.get(name, "").upper() not in {right, "", "0"}]
    for name in wrong:
        right, loss = _OF_ROWS[name]
        what, fix = f"the upstream's {name} is {variables[name]}: {loss}", f"SET GLOBAL {name} = '{right}' there"
        yield fail("upstream-binlog", what, fix) if name == "binlog_format" else warn("upstream-binlog", what, fix)
    if not wrong:
        yield ok("upstream-binlog", "the upstream's binlog holds whole rows")


def _judge_defaults(variables: Mapping[str, str], defaults: SourceDefaults) -> Finding:
    """Judges what statements that name no collation mean upstream, which no message tells."""
    pairs = (pair.partition("=") for pair in variables.get("character_set_collations", "").split(",") if pair)
    by_charset = {charset.strip(): collation.strip() for charset, _, collation in pairs}
    server = variables.get("collation_server", defaults.collation)
    diffs = {name: collation for name, collation in by_charset.items() if defaults.by_charset.get(name) != collation}
    diffs |= {"server": server} if server != defaults.collation else {}
    if not diffs:
        return ok("upstream-defaults", "statements without a collation mean upstream what ddl.source says")
    return warn(
        "upstream-defaults",
        "statements without a collation mean another one upstream than ddl.source says: rows that differ upstream could"
        " be one on the target",
        f"set {', '.join(f'ddl.defaults.{name} = {collation!r}' for name, collation in sorted(diffs.items()))}",
    )


def judge_keys(extra: Sequence[ExtraKey]) -> Iterator[Finding]:
    """Judges unique keys that only the target has."""
    for key in extra:
        yield warn("unique-keys", str(key), FIX)
    if not extra:
        yield ok("unique-keys", "the target has no unique key that the upstream lacks")
