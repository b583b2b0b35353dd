"""What flavours of servers are sent: names and helpers for tables of statements."""

from __future__ import annotations

from bridge.ddl.collation_tables import SOURCES, CollationRules
from bridge.ddl.parser import Refused
from bridge.ddl.rewrite import Rewritten, rewrite
from bridge.ddl.rule import Site, UnsupportedError, named_capabilities

M11, M10, MY8, MY57, TIDB = "mariadb-11.4", "mariadb-10.11", "mysql-8.0", "mysql-5.7", "tidb-8.5"
ALL = (M11, M10, MY8, MY57, TIDB)
SAME = "as it came"
NOTHING = "nothing to run"
HELD = "held"
NOT_TIDB = (M11, M10, MY8, MY57)
MARIADB = (M11, M10)


def on(flavour: str, statement: str, schema: str = "app", source: str = "tidb") -> Rewritten | Refused:
    """The statement in a flavour's words."""
    rules = CollationRules(SOURCES[source])
    return rewrite(statement, schema, Site(named_capabilities(flavour), rules, source))


def words(flavour: str, statement: str, source: str = "tidb") -> str:
    """What a flavour is sent, or SAME, NOTHING, HELD."""
    try:
        found = on(flavour, statement, source=source)
    except UnsupportedError:
        return HELD
    assert isinstance(found, Rewritten), found
    return NOTHING if found.text is None else SAME if found.text == statement else found.text


def flavours(text: str, *names: str) -> dict[str, str]:
    """The same words for several flavours."""
    return dict.fromkeys(names, text)
