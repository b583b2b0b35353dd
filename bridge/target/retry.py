"""Applies a row change that was put aside, if the target's row is still as the change found it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bridge.events import SEP, Event
from bridge.target.catalog import Table
from bridge.target.netchanges import Image, choose_key
from bridge.target.render import Statement, binary_match
from bridge.target.session import Session, quote_name


def apply_if_unchanged(
    session: Session, table: Table, change: Event, statements: Callable[[Event], Iterable[Statement]]
) -> str:
    """Applies one row change in the session's open transaction; gives why it must not be, "" when it was.

    The row must equal the change's before-image, and must be absent for an insert; it is locked until the
    transaction ends.  Raises ApplyError when the target lacks a column, MySQLError when it refuses the row.
    """
    reason = _changed_since(session, table, change)
    if reason:
        return reason
    for statement in statements(change):
        matched = session.execute(statement.sql)
        if statement.expect is not None and matched != statement.expect:
            return f"{matched} rows of {table.name} are as the message describes them, not {statement.expect}"
    return ""


def _changed_since(session: Session, table: Table, change: Event) -> str:
    columns = change.columns or ""
    key = choose_key(table, columns, change.key or "")
    if change.before is not None:
        if not _finds(session, table, binary_match(table, Image(columns, change.before))):
            return f"the row of {table.name} is not on the target as it was before this change"
    elif change.after is None or change.kind.name != "INSERT":
        return "the message does not hold the row as it was before, so it cannot be told whether it is so still"
    if change.after is None:
        return ""
    if change.before is not None and _key_values(change.before, columns, key) == _key_values(
        change.after, columns, key
    ):
        return ""
    if _finds(session, table, _key_match(table, columns, change.after, key)):
        return f"{table.name} has a row of this key, which was not there before this change"
    return ""


def _key_values(image: str, columns: str, key: tuple[str, ...]) -> list[str]:
    literals = dict(zip(columns.lower().split(SEP), image.split(SEP), strict=True))
    return [literals[part] for part in key] if key else list(literals.values())


def _key_match(table: Table, columns: str, image: str, key: tuple[str, ...]) -> str:
    if not key:
        return binary_match(table, Image(columns, image))
    values = zip(key, _key_values(image, columns, key), strict=True)
    return " AND ".join(f"{quote_name(table.columns[part].name)}={literal}" for part, literal in values)


def _finds(session: Session, table: Table, condition: str) -> bool:
    sql = f"SELECT 1 FROM {quote_name(*table.name)} WHERE {condition} LIMIT 1 FOR UPDATE"
    return bool(session.rows(sql))
