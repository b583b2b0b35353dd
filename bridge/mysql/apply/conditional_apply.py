"""Applies row changes that were quarantined, if the target's rows are still as the changes found them."""

from __future__ import annotations

from collections.abc import Iterable

from bridge.events import SEP, Event, Kind
from bridge.model import Table
from bridge.mysql.apply.run_statement import execute_statement
from bridge.mysql.connection.session import Session
from bridge.quoting import quote_name
from bridge.rows.net_changes import Image, NetChanges, choose_key
from bridge.rows.sql.conditions import binary_match
from bridge.rows.sql.render import render, update_of_row
from bridge.rows.sql.statement import Rendering, Statement


def apply_if_unchanged(session: Session, net: NetChanges, change: Event, rendering: Rendering) -> str:
    """Applies one row change, whose net changes are `net`, in the session's open transaction.  Gives "" when it did, or
    the reason why it must not.

    The row must equal the change's before-image, and must be absent for an insert; it is locked until the
    transaction ends.  Raises ApplyError when the target lacks a column, refuses the row or would keep other values,
    MySQLError for locks and lost connections.
    """
    reason = _changed_since(session, net.table, change)
    if reason:
        return reason
    for statement in _statements(net, change, rendering):
        execute_statement(session, statement, safe_mode=True)
    return ""


def _statements(net: NetChanges, change: Event, rendering: Rendering) -> Iterable[Statement]:
    """Gives the statements of a change.  The row of an update exists and is updated in place, so that columns which the
    message lacks keep their values."""
    key = _key_of(net.table, change)
    if change.kind is not Kind.UPDATE or not key:
        return render(net, rendering)
    assert change.before is not None
    assert change.after is not None
    condition = _key_match(net.table, change, change.before, key)
    return [update_of_row(net.table, Image(change.columns or "", change.after), condition)]


def _changed_since(session: Session, table: Table, change: Event) -> str:
    """Says what shows that the row was changed since; "" when nothing does."""
    key = _key_of(table, change)
    return _why_not_as_before(session, table, change, key) or _why_not_free(session, table, change, key)


def _why_not_as_before(session: Session, table: Table, change: Event, key: tuple[str, ...]) -> str:
    """Says why the target does not have the row that the change found; "" when it has, or when none was there."""
    if change.before is None:
        is_first = change.kind is Kind.INSERT
        reason = "the message does not hold the old row, so nothing tells whether the target's row is still the same"
        return "" if is_first else reason
    if _finds(session, table, binary_match(table, Image(change.columns or "", change.before))):
        return ""
    if key and not _finds(session, table, _key_match(table, change, change.before, key)):
        return (
            f"{table.name} has no row of this key any more: a later change deleted it, or took a unique value"
            " that it still held (safe_mode in the log); `bridge verify` tells, and writes it if it is missing"
        )
    return f"the row of {table.name} is not on the target as it was before this change"


def _why_not_free(session: Session, table: Table, change: Event, key: tuple[str, ...]) -> str:
    """Says that another row has the key that the change gives its row; "" when none has, or when it keeps its key."""
    if change.after is None:
        return ""
    other = ""
    if change.before is not None:
        if _key_values(change, change.before, key) == _key_values(change, change.after, key):
            return ""
        # To the target, the key may be the same in another spelling.
        other = f" AND NOT ({_key_match(table, change, change.before, key)})" if key else ""
    if _finds(session, table, _key_match(table, change, change.after, key) + other):
        return f"{table.name} has a row of this key, which was not there before this change"
    return ""


def _key_of(table: Table, change: Event) -> tuple[str, ...]:
    return choose_key(table, change.columns or "", change.key or "")


def _key_values(change: Event, image: str, key: tuple[str, ...]) -> list[str]:
    literals = dict(zip((change.columns or "").lower().split(SEP), image.split(SEP), strict=True))
    return [literals[part] for part in key] if key else list(literals.values())


def _key_match(table: Table, change: Event, image: str, key: tuple[str, ...]) -> str:
    if not key:
        return binary_match(table, Image(change.columns or "", image))
    values = zip(key, _key_values(change, image, key), strict=True)
    return " AND ".join(f"{quote_name(table.columns[part].name)}={literal}" for part, literal in values)


def _finds(session: Session, table: Table, condition: str) -> bool:
    sql = f"SELECT 1 FROM {quote_name(*table.name)} WHERE {condition} LIMIT 1 FOR UPDATE"
    return bool(session.rows(sql))
