"""Gives JSON documents one spelling, by which rows of a table without a key are told apart.

Debezium's snapshot writes a document as the server prints it (`{"a": 1}`), a change as its own reader of the binlog
does (`{"a":1}`).  A server that has JSON as a type keeps neither.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from bridge.events import SEP
from bridge.model import Table
from bridge.protocols.values import literals
from bridge.protocols.values.column_types import unquoted

_PARTS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\s+|[,:]')
"""Texts, which stay; blanks, which go; and what the server writes a blank behind."""


def one_spelling(table: Table, columns: str) -> Callable[[str], str] | None:
    """Gives what brings images of a column list to one spelling; None where no column of the target is of the type
    JSON, as on MariaDB, whose JSON is text."""
    is_json = [name in table.columns and table.columns[name].type == "json" for name in columns.lower().split(SEP)]
    if not any(is_json):
        return None

    def spell(image: str) -> str:
        parts = zip(image.split(SEP), is_json, strict=True)
        return SEP.join(_spelled(literal) if json and literal[0] == "'" else literal for literal, json in parts)

    return spell


def _spelled(literal: str) -> str:
    return literals.text(_PARTS.sub(_part, unquoted(literal)))


def _part(found: re.Match[str]) -> str:
    part = found[0]
    return part if part[0] == '"' else part + " " if part in ",:" else ""
