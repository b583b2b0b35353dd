"""Compares what the target's user may do with the least that a pipeline needs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from bridge.commands.check import Finding, fail, ok, warn
from bridge.ddl.rule import Flavour
from bridge.model import quote_name
from bridge.mysql.connection.session import Session

_GRANT: Final = re.compile(
    r"(?P<verb>GRANT|REVOKE) (?P<privileges>.+?) ON (?:TABLE )?"
    r"(?P<schema>\*|`(?:``|[^`])+`|\"(?:\"\"|[^\"])+\")\.(?P<table>\*|`(?:``|[^`])+`|\"(?:\"\"|[^\"])+\") (?:TO|FROM) ",
    re.DOTALL,
)
_COLUMNS: Final = re.compile(r"\([^)]*\)")
_ALL: Final = frozenset({"ALL", "ALL PRIVILEGES"})


class Need(NamedTuple):
    """A privilege, and what it is for.  without: what happens without it; "" when no pipeline can do without."""

    privilege: str
    purpose: str
    without: str = ""


REPLICATED: Final = (
    Need("SELECT", "rows are found by their keys"),
    Need("INSERT", "rows"),
    Need("UPDATE", "rows"),
    Need("DELETE", "rows"),
    Need("CREATE", "CREATE DATABASE, CREATE TABLE, RENAME"),
    Need("ALTER", "ALTER TABLE, RENAME"),
    Need("DROP", "DROP, TRUNCATE, RENAME"),
    Need("INDEX", "CREATE INDEX, DROP INDEX"),
    Need("REFERENCES", "foreign keys", "schema changes with a foreign key stop the pipeline"),
    Need("CREATE VIEW", "views", "CREATE VIEW stops the pipeline"),
    Need("SHOW VIEW", "views", "schema changes of views stop the pipeline"),
    Need("TRIGGER", "triggers are seen", "the bridge cannot see triggers, which would change rows by themselves"),
)
"""What is needed on each replicated database."""
OWN: Final = (
    *(Need(privilege, "progress, ownership, quarantine") for privilege in ("SELECT", "INSERT", "UPDATE", "DELETE")),
    Need("CREATE", "the bridge's tables are made"),
    Need("ALTER", "schema changes are tried on copies of tables"),
    Need("CREATE TEMPORARY TABLES", "values of rows in parts, verify"),
)
"""What is needed on the bridge's own database."""
SERVER: Final = (
    Need(
        "PROCESS",
        "ids of tables",
        "after a crash in an EXCHANGE PARTITION the bridge cannot tell whether it ran, and holds it for the operator",
    ),
)
"""What is needed on `*.*`; TiDB's ids are there for everybody."""


@dataclass(frozen=True)
class GrantFacts:
    """user: as the server knows the account, such as 'bridge'@'%'.  lines: what SHOW GRANTS prints."""

    user: str
    lines: tuple[str, ...]


def gather(session: Session) -> GrantFacts:
    """Asks the server what the session's user may do, by its active roles too."""
    name, _, host = str(session.value("SELECT CURRENT_USER()")).rpartition("@")
    return GrantFacts(f"'{name}'@'{host}'", tuple(str(row[0]) for row in session.rows("SHOW GRANTS")))


def judge(facts: GrantFacts, flavour: Flavour, own: str, replicated: Collection[str]) -> Iterator[Finding]:
    """Compares the grants, one by one, with the least that is needed.

    own: the bridge's database.  replicated: the databases that are replicated, as far as they are known.
    """
    held = read_grants(facts.lines)
    yield from _judge_scope(held, facts.user, own, OWN)
    for database in sorted(replicated):
        yield from _judge_scope(held, facts.user, database, REPLICATED)
    if flavour is not Flavour.TIDB:
        yield from _judge_scope(held, facts.user, None, SERVER)


def _judge_scope(held: Sequence[Granted], user: str, database: str | None, needs: Iterable[Need]) -> Iterator[Finding]:
    needs = tuple(needs)
    missing = [need for need in needs if not allow(held, need.privilege, database)]
    where = "*.*" if database is None else f"{quote_name(database)}.*"
    hard = [need for need in missing if not need.without]
    if hard:
        lacks = ", ".join(f"{need.privilege} ({need.purpose})" for need in hard)
        yield fail("grants", f"the user lacks on {where}: {lacks}", _statement(hard, where, user))
    for need in missing:
        if need.without:
            yield warn(
                "grants", f"the user lacks {need.privilege} on {where}: {need.without}", _statement([need], where, user)
            )
    if not missing:
        yield ok("grants", f"the user has on {where}: {', '.join(need.privilege for need in needs)}")


def _statement(needs: Iterable[Need], where: str, user: str) -> str:
    return f"GRANT {', '.join(need.privilege for need in needs)} ON {where} TO {user}"


class Granted(NamedTuple):
    """A line of SHOW GRANTS.  schema: the name or pattern of the database, None for all."""

    revokes: bool
    privileges: frozenset[str]
    schema: str | None

    def names(self, privilege: str) -> bool:
        return bool(privilege in self.privileges or _ALL & self.privileges)


def read_grants(lines: Iterable[str]) -> Sequence[Granted]:
    """Reads what SHOW GRANTS prints; grants on single tables, columns and routines do not count."""
    return [granted for line in lines if (granted := _read_line(line))]


def allow(grants: Sequence[Granted], privilege: str, database: str | None) -> bool:
    """Tells whether an account has a privilege on all of a database; None: on all databases.

    Of grants on databases only those with the closest name count, as in the server: one by its very name hides those by
    a pattern.
    """
    everywhere = [line for line in grants if line.schema is None]
    exact = [line for line in grants if line.schema is not None and _unescaped(line.schema) == database]
    revoked = any(line.revokes and line.names(privilege) for line in exact)
    if any(line.names(privilege) for line in everywhere if not line.revokes):
        return not revoked
    granted = [line for line in exact if not line.revokes]
    if database is not None and not granted:
        granted = [line for line in grants if line.schema is not None and _matches(line.schema, database)]
    return any(line.names(privilege) for line in granted)


def _read_line(line: str) -> Granted | None:
    found = _GRANT.match(line)
    if not found or found["table"] != "*":
        return None
    privileges = (part.strip().upper() for part in _COLUMNS.sub("(", found["privileges"]).split(","))
    name = found["schema"]
    schema = None if name == "*" else name[1:-1].replace(name[0] * 2, name[0])
    return Granted(found["verb"] == "REVOKE", frozenset(part for part in privileges if "(" not in part), schema)


def _unescaped(pattern: str) -> str | None:
    r"""Gives the one name that a pattern means (`my\_shop`); None where it means several."""
    plain = re.sub(r"\\([_%\\])", "", pattern)
    return None if "%" in plain else re.sub(r"\\([_%\\])", r"\1", pattern)


def _matches(pattern: str, database: str) -> bool:
    wild = {"%": ".*", "_": "."}
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    text = "".join(
        re.escape(part[1:]) if part[0] == "\\" and len(part) > 1 else wild.get(part, re.escape(part)) for part in parts
    )
    return re.fullmatch(text, database, re.DOTALL) is not None
