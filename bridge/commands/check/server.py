"""Checks of the target server: version, settings that matter, encryption, reach of locks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from bridge.commands.check import Finding, Level, fail, grants, ok, warn
from bridge.config import Settings, TargetSection, UpstreamSection
from bridge.ddl.collation_tables import is_tidb
from bridge.ddl.rule import Flavour, Version, read_version
from bridge.model import quote_name
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.probe import Reach, find_limits, writable
from bridge.mysql.state import schema as own_tables
from bridge.mysql.state.progress import Progress, ProgressTable

_VARIABLES: Final = ("log_bin", "binlog_format", "lower_case_table_names")
LEAST_VERSIONS: Final[Mapping[Flavour, Version]] = {
    Flavour.MARIADB: (10, 2),
    Flavour.MYSQL: (5, 7),
    Flavour.TIDB: (6, 1),
}
"""Without CHECK constraints that hold; without the JSON type and generated columns; with GET_LOCK that locks nothing
(TiDB's release notes of 6.1.0)."""


@dataclass(frozen=True)
class Encryption:
    """How a connection is protected: in words, and whether it has TLS."""

    words: str
    is_on: bool


@dataclass(frozen=True)
class ServerFacts:
    """The target server.

    variables: global variables, in lower case; those that it does not have are missing.
    own_tables: whether the bridge's own tables are there; why they cannot be used raises TargetError before.
    progress: of the pipeline, when it is known.
    """

    version: str
    encryption: Encryption
    is_writable: bool
    variables: Mapping[str, str]
    limits: tuple[Reach, ...]
    own_tables: bool
    grants: grants.GrantFacts
    progress: Progress | None = None

    @property
    def flavour(self) -> Flavour:
        """The family of the server."""
        return read_version(self.version)[0]


def gather(target: Target, settings: Settings) -> ServerFacts:
    """Asks the target, over two connections; writes nothing."""
    table = ProgressTable(settings.name, settings.target.schema_name)
    with closing(target.connect(autocommit=True)) as session:
        with closing(target.connect(autocommit=True)) as second:
            limits = tuple(find_limits(session, second))
        has_own_tables = _has_own_tables(session, table)
        return ServerFacts(
            version=str(session.value("SELECT VERSION()")),
            encryption=Encryption(session.encryption, session.is_encrypted),
            is_writable=bool(session.value(f"SELECT {writable(session)}")),
            variables=session.variables("GLOBAL", _VARIABLES),
            limits=limits,
            own_tables=has_own_tables,
            grants=grants.gather(session),
            progress=table.read(session) if has_own_tables else None,
        )


def _has_own_tables(session: Session, progress: ProgressTable) -> bool:
    if not progress.exists(session):
        return False
    own_tables.refuse_without_transactions(session, progress.schema)
    return True


def judge(facts: ServerFacts, place: str, settings: Settings) -> Iterator[Finding]:
    """Judges what the target is and how it is set; `place` is its address without secrets."""
    yield judge_version(facts.version, place)
    yield judge_encryption("target", facts.encryption, settings.target)
    yield _judge_writable(facts)
    yield from _judge_binlog(facts)
    yield from _judge_names(facts, settings)
    for limit in facts.limits:
        yield Finding("reach", Level.FAIL if limit.is_fatal else Level.WARN, limit.what, limit.fix)
    name = quote_name(settings.target.schema_name)
    presence = (
        "are there" if facts.own_tables else "are not there yet; the first start, or bridge check --create, makes them"
    )
    yield ok("own-tables", f"the bridge's own tables in {name} {presence}")


def judge_version(banner: str, place: str) -> Finding:
    """Judges whether a target is too old."""
    flavour, version = read_version(banner)
    answers = f"the target answers: {banner} at {place}"
    if version and version < LEAST_VERSIONS[flavour]:
        least = ".".join(map(str, LEAST_VERSIONS[flavour]))
        return fail("version", f"{answers}; it is too old", f"upgrade it to {least} or later")
    return ok("version", answers)


def judge_encryption(section: str, encryption: Encryption, server: TargetSection | UpstreamSection) -> Finding:
    """Judges the encryption that is in use, which can differ from the one in the settings."""
    what = f'the connection to the {section}: {encryption.words} ({section}.tls = "{server.tls}")'
    fix = f'set {section}.tls = "verify-identity"'
    if not encryption.is_on:
        fix = f"if others can read the network, switch TLS on at the server and {fix}"
    return warn("encryption", what, fix) if server.tls in {"preferred", "required"} else ok("encryption", what)


def _judge_binlog(facts: ServerFacts) -> Iterator[Finding]:
    """InnoDB refuses rows under READ COMMITTED that would be logged as statements (error 1665)."""
    is_logged = facts.variables.get("log_bin", "OFF").upper() in {"ON", "1"}
    if is_logged and facts.flavour is not Flavour.TIDB and facts.variables.get("binlog_format") == "STATEMENT":
        yield fail(
            "binlog",
            "binlog_format is STATEMENT: InnoDB refuses the bridge's transactions, which are READ COMMITTED",
            "SET GLOBAL binlog_format = 'ROW', and in the server's settings",
        )


def _judge_names(facts: ServerFacts, settings: Settings) -> Iterator[Finding]:
    """Warns of a server that may take two tables of the upstream for one.  TiDB, which always does, has no choice."""
    value = facts.variables.get("lower_case_table_names", "0")
    if value != "0" and facts.flavour is not Flavour.TIDB and not is_tidb(settings.ddl.source):
        yield warn(
            "names",
            f"the target does not tell names apart by the case of their letters (lower_case_table_names = {value}): to"
            " an upstream that does, a statement may mean one table, or none, that means another one here",
            "see that the upstream has the same setting; otherwise, that no two of its names differ in case only",
        )


def _judge_writable(facts: ServerFacts) -> Finding:
    if facts.is_writable:
        return ok("read-only", "the target takes writes")
    return fail("read-only", "the target is read-only", "point --target at the primary, or switch read_only off")
