"""Translates tables and columns of the source for the target, as the pipeline itself would."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from bridge.ddl.collation_tables import SOURCES, CollationRules
from bridge.ddl.parser import Refused
from bridge.ddl.policy import DdlRules
from bridge.ddl.rewrite import rewrite
from bridge.ddl.rule import Site, UnsupportedError
from bridge.ddl.server_features import Capabilities, Flavour


def source_name(source: Capabilities) -> str:
    """Gives the name in `collation_tables.SOURCES` for such a server."""
    if source.flavour is Flavour.MYSQL:
        return "mysql-5.7" if source.version < (8,) else "mysql-8"
    if source.flavour is Flavour.TIDB and source.collations.compares_bytes:
        return "tidb-old-collations"
    return source.flavour.value


_JSON: Final = re.compile(
    r"(?P<name>`(?:[^`]|``)+`) longtext(?: CHARACTER SET \w+)?(?: COLLATE \w+)?"
    r"(?P<more>[^\n]*?) CHECK \(json_valid\((?P=name)\)\)"
)
"""A JSON column as MariaDB prints it."""


@dataclass(frozen=True)
class StatementTranslator:
    """Translates statements from one server to another.  rules: the operator's rules; only their collations are
    used."""

    source: Capabilities
    target: Capabilities
    rules: DdlRules

    @property
    def _collations(self) -> CollationRules:
        return CollationRules(SOURCES[source_name(self.source)], self.rules.collations.mapped)

    def collation(self, name: str) -> str:
        """Gives the collation of the target that one of the source becomes; itself where there is none."""
        return self._collations.on(self.target.collations, name) or name

    def translate(self, statement: str, schema: str) -> tuple[str | None, str]:
        """Gives a statement of the source in a form that the target accepts, or None and the reason."""
        name = source_name(self.source)
        if self.target.flavour is not Flavour.MARIADB:
            statement = _JSON.sub(r"\g<name> json\g<more>", statement)
        try:
            rewritten = rewrite(statement, schema, Site(self.target, self._collations, name))
        except UnsupportedError as unsupported:
            return None, str(unsupported)
        if isinstance(rewritten, Refused):
            return (statement, "") if self.source.flavour is self.target.flavour else (None, rewritten.reason)
        return rewritten.text, "" if rewritten.text else "the target has nothing like it"
