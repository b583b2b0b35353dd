"""Names the databases that no row change is ever written to: the server's own, and the bridge's.

A row of `mysql.global_priv` would create an account.  A row of `_bridge.progress`, which the target of one bridge sends
when it is the upstream of another, would overwrite the other bridge's progress.  TiDB's tools leave out the same
schemas (TiDB, Table Filter).  TiCDC's own database, tidb_cdc, is not among them: to a server it is a database like any
other, and TiCDC never sends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT_SCHEMA: Final = "_bridge"
SYSTEM_SCHEMAS: Final = frozenset(
    {"mysql", "information_schema", "performance_schema", "sys", "metrics_schema", "inspection_schema"}
)
_AS_IT_IS: Final = "#mysql50#"
"""Begins a name that is written as its folder on the disk is called (MySQL 5.7, Mapping of Identifiers to File Names;
MariaDB still)."""
_DOT_ABOVE: Final = "\u0307"
"""What Python leaves of U+0130 in lower case; the servers leave a plain i."""


def plain_name(schema: str) -> str:
    """Gives a database's name as a server may understand it: in lower case (lower_case_table_names), and without the
    blanks, backquotes and prefixes that a name may have around it.  Tried on MariaDB 11.4, MySQL 5.7 and 8.0."""
    name = schema.lower().replace(_DOT_ABOVE, "").strip().strip("`").strip()
    return plain_name(name.removeprefix(_AS_IT_IS)) if name.startswith(_AS_IT_IS) else name


@dataclass(frozen=True)
class ReservedSchemas:
    """The server's own databases and the bridge's.  Those are `own` and the default one, which another pipeline may
    use."""

    own: str = DEFAULT_SCHEMA

    def why(self, schema: str) -> str:
        """Tells why nothing is written to a database; "" when rows may be written to it."""
        name = plain_name(schema)
        if name in SYSTEM_SCHEMAS:
            return "it is in one of the server's own databases"
        return "it is in the bridge's own database" if name in {plain_name(self.own), DEFAULT_SCHEMA} else ""
