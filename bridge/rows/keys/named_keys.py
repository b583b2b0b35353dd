"""Compares the keys that messages name with those of the target's tables.

Where the target has a key that the upstream does not have, rows that differ upstream are one row on the target.  Pure.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from bridge.errors import ApplyError
from bridge.events import NO_KEY, NO_PRIMARY_KEY, SEP, Position, key_names
from bridge.model import Table

_KEY_FIX: Final = (
    "give the target's table the keys that the upstream's has at this point (ALTER TABLE ... DROP PRIMARY KEY, ADD"
    " PRIMARY KEY), and start the bridge again; bridge ddl list shows a schema change that was left out. Where a"
    " setting of the sender chose the key of the messages (Debezium's message.key.columns, or a transform), take it"
    " back for this table"
)


def key_conflict(table: Table, columns: str, key: str) -> str:
    """Says why rows that differ upstream may be one row in `table`; "" when the message does not show it.

    That is so where the target identifies rows by columns of the message among which there is no key of the upstream: a
    message names the upstream's key, or says that there is none (`Event.key`).  Names that the row does not have are
    not the upstream's key: Debezium's transforms may add some.
    """
    present = set(columns.lower().split(SEP))
    usable = [candidate for candidate in table.keys if present.issuperset(candidate)]
    primary = table.primary if table.primary in usable else ()
    if not key or not usable or (key == NO_PRIMARY_KEY and not primary):
        return ""
    judged = [primary] if primary else usable
    if key in {NO_KEY, NO_PRIMARY_KEY}:
        said = "has no primary key" if key == NO_PRIMARY_KEY else "has no key"
    else:
        named = set(key_names(key.lower()))
        if not named <= present or any(named.issubset(candidate) for candidate in judged):
            return ""
        said = f"has the key ({', '.join(key_names(key))})"
    which = "primary key" if primary else "unique key"
    return f"by its message, the upstream's table {said}, but the target's has the {which} ({', '.join(judged[0])})"


def require_key(table: Table, columns: str, key: str, changes: pa.Table, first: int) -> None:
    """Raises ApplyError when rows of a message may overwrite others (`key_conflict`).

    columns, key: what the message names.  first: the number, among `changes`, of its first row change.
    """
    if why := key_conflict(table, columns, key):
        change = changes.slice(first, 1).to_pylist()[0]
        position = Position(change["topic"], change["partition"], change["offset"])
        raise ApplyError(
            f"rows that differ upstream would overwrite each other: {why}",
            where=f"{position}, {table.name}, commit ts {change['commit_ts']}",
            fix=_KEY_FIX,
        )
