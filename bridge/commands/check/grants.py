"""Compares what the target's user may do with the least that a pipeline needs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from bridge.commands.check import Finding, fail, ok, warn
from bridge.model import quote_name
from bridge.mysql.connection.session import Session

_GRANT: Final = re.compile(
    r"(?P<verb>GRANT|REVOKE) (?P<privileges>.+?) ON (?:TABLE )?"
    r"(?P<schema>\*|`(?:``|[^`])+`|\"(?:\"\"|[^\"])+\")\.(?P<table>\*|`(?:``|[^`])+`|\"(?:\"\"|[^\"])+\") (?:TO|FROM) ",
    re.DOTALL,
)
_COLUMNS: Final = re.compile(r"\([^)]*\)")
_ALL: Final = frozenset({"ALL", "ALL PRIVILEGES"})


Needs = Mapping[str, str]
"""Privileges, each with what happens without it; "" where no pipeline can do without."""
REPLICATED: Final[Needs] = {
    **dict.fromkeys(("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "INDEX"), ""),
    "REFERENCES": "schema changes with a foreign key stop the pipeline",
    "CREATE VIEW": "CREATE VIEW stops the pipeline",
    "SHOW VIEW": "schema changes of views stop the pipeline",
    "TRIGGER": "the bridge cannot see triggers, which would change rows by themselves",
}
"""What is needed on each replicated database."""
OWN: Final[Needs] = dict.fromkeys(
    ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "CREATE TEMPORARY TABLES"), ""
)
"""What is needed on the bridge's own database."""


@dataclass(frozen=True)
class GrantFacts:
    """user: as the server knows the account, such as 'bridge'@'%'.  lines: what SHOW GRANTS prints."""

    user: str
    lines: tuple[str, ...]


def gather(session: Session) -> GrantFacts:
    """Asks the server what the session's user may do, by its active roles too."""
    name, _, host = str(session.value("SELECT CURRENT_USER()")).rpartition("@")
    return GrantFacts(f"'{name}'@'{host}'", tuple(str(row[0]) for row in session.rows("SHOW GRANTS")))


def judge(facts: GrantFacts, own: str, replicated: Collection[str]) -> Iterator[Finding]:
    """Compares the grants, one by one, with the least that is needed.

    own: the bridge's database.  replicated: the databases that are replicated, as far as they are known.
    """
    grants = read_grants(facts.lines)
    yield from _judge_scope(grants, facts.user, own, OWN)
    for database in sorted(replicated):
        yield from _judge_scope(grants, facts.user, database, REPLICATED)


def _judge_scope(grants: Sequence[Grant], user: str, database: str, needs: Needs) -> Iterator[Finding]:
    where = f"{quote_name(database)}.*"
    missing = [privilege for privilege in needs if not allow(grants, privilege, database)]
    if hard := ", ".join(privilege for privilege in missing if not needs[privilege]):
        yield fail("grants", f"the user lacks on {where}: {hard}", f"GRANT {hard} ON {where} TO {user}")
    for privilege in missing:
        if without := needs[privilege]:
            what = f"the user lacks {privilege} on {where}: {without}"
            yield warn("grants", what, f"GRANT {privilege} ON {where} TO {user}")
    if not missing:
        yield ok("grants", f"the user has on {where}: {', '.join(needs)}")


class Grant(NamedTuple):
    """A line of SHOW GRANTS.  schema: the name or pattern of the database, None for all."""

    revokes: bool
    privileges: frozenset[str]
    schema: str | None

    def names(self, privilege: str) -> bool:
        return bool(privilege in self.privileges or _ALL & self.privileges)


def read_grants(lines: Iterable[str]) -> Sequence[Grant]:
    """Reads what SHOW GRANTS prints; grants on single tables, columns and routines do not count."""
    return [granted for line in lines if (granted := _read_line(line))]


def allow(grants: Sequence[Grant], privilege: str, database: str) -> bool:
    """Tells whether an account has a privilege on all of a database.

    Of grants on databases only those with the closest name count, as in the server: one by its very name hides those by
    a pattern.
    """
    everywhere = [line for line in grants if line.schema is None]
    exact = [line for line in grants if line.schema is not None and _unescaped(line.schema) == database]
    revoked = any(line.revokes and line.names(privilege) for line in exact)
    if any(line.names(privilege) for line in everywhere if not line.revokes):
        return not revoked
    granted = [line for line in exact if not line.revokes]
    if not granted:
        granted = [line for line in grants if line.schema is not None and _matches(line.schema, database)]
    return any(line.names(privilege) for line in granted)


def _read_line(line: str) -> Grant | None:
    match = _GRANT.match(line)
    if not match or match["table"] != "*":
        return None
    privileges = (part.strip().upper() for part in _COLUMNS.sub("(", match["privileges"]).split(","))
    name = match["schema"]
    schema = None if name == "*" else name[1:-1].replace(name[0] * 2, name[0])
    return Grant(match["verb"] == "REVOKE", frozenset(part for part in privileges if "(" not in part), schema)


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
