"""Reads a schema change just far enough: what class it is, and which tables it touches.

Works on tokens of the statement as it came; nothing is ever printed back from a parsed form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from bridge.target.catalog import TableName

SYSTEM_SCHEMAS: Final = frozenset({"mysql", "information_schema", "performance_schema", "sys"})

_TOKEN = re.compile(
    r"""(?P<space>\s+|--(?=[\s]|$)[^\n]*|\#[^\n]*)
      | (?P<executable>/\*M?!\d*)
      | (?P<comment>/\*.*?(?:\*/|$))
      | (?P<close>\*/)
      | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<word>[A-Za-z0-9_$\u0080-\U0010ffff]+)
      | (?P<mark>.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,  # to the server only ASCII white space is white
)


class Token(NamedTuple):
    """A token that the server reads: `text` as written, `span` its place in the statement."""

    kind: str
    text: str
    span: tuple[int, int]

    @property
    def word(self) -> str:
        """Upper-case keyword, "" for anything but a bare word."""
        return self.text.upper() if self.kind == "word" else ""

    @property
    def name(self) -> str | None:
        """The identifier this token spells, None for anything else."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        return self.text if self.kind == "word" else None


def tokens(statement: str) -> list[Token]:
    """The tokens that a MySQL-compatible server reads: comments are left out, the body of `/*! ... */` is kept,
    TiDB's `/*T! ... */` is a comment."""
    return [
        Token(match.lastgroup or "", match.group(), match.span())
        for match in _TOKEN.finditer(statement)
        if match.lastgroup not in {"space", "comment", "executable", "close"}
    ]


class ChangeClass(StrEnum):
    """Classes of schema changes that the bridge runs."""

    CREATE_DATABASE = "create database"
    ALTER_DATABASE = "alter database"
    DROP_DATABASE = "drop database"
    CREATE_TABLE = "create table"
    ALTER_TABLE = "alter table"
    EXCHANGE_PARTITION = "exchange partition"
    DROP_TABLE = "drop table"
    RENAME_TABLE = "rename table"
    TRUNCATE_TABLE = "truncate table"
    RECOVER_TABLE = "recover table"
    CREATE_VIEW = "create view"
    DROP_VIEW = "drop view"
    CREATE_INDEX = "create index"
    DROP_INDEX = "drop index"


_FILES: Final = {("DATA", "DIRECTORY"), ("INDEX", "DIRECTORY"), ("IMPORT", "TABLESPACE"), ("DISCARD", "TABLESPACE")}
_ENGINES_ELSEWHERE: Final = frozenset({"CONNECT", "FEDERATED", "FEDERATEDX", "S3", "SPIDER"})
"""Storage engines whose tables are files or other servers."""

DATABASE_CLASSES: Final = frozenset(
    {ChangeClass.CREATE_DATABASE, ChangeClass.ALTER_DATABASE, ChangeClass.DROP_DATABASE}
)


@dataclass(frozen=True)
class Classified:
    """A schema change that was understood.

    tables: every table it touches, old and new names of a rename, in order.
    database: the database of a database-level change, "" otherwise.
    name_span: where the name of the created or altered table or view stands in the statement.
    """

    change_class: ChangeClass
    tables: tuple[TableName, ...] = ()
    database: str = ""
    name_span: tuple[int, int] | None = None


class Refused(NamedTuple):
    """A statement that is not a schema change the bridge runs; `reason` is for the operator."""

    reason: str


def classify(statement: str, schema: str) -> Classified | Refused:
    """What `statement` does, with `schema` as the current database."""
    reader = _Reader(tokens(statement), schema)
    if any(token.kind == "mark" and token.text == ";" for token in reader.tokens[:-1]):
        return Refused("it holds several statements")
    try:
        result = _classify(reader)
    except _NotUnderstood:
        return Refused("it is not a schema change that the bridge knows")
    schemas = {table.schema.lower() for table in result.tables} | {result.database.lower()}
    if (schemas | set(_qualifiers(reader.tokens))) & SYSTEM_SCHEMAS:
        return Refused("it touches a system schema")
    words = [token.word for token in reader.tokens]
    if result.change_class is ChangeClass.CREATE_TABLE and "SELECT" in words:
        return Refused("it fills a table from a query")
    if "OUTFILE" in words or "LOAD_FILE" in words or _FILES & set(pairwise(words)):
        return Refused("it reaches for files of the server")
    if set(_engines(reader.tokens)) & _ENGINES_ELSEWHERE:
        return Refused("it makes a table of files or of another server")
    return result


def _qualifiers(found: list[Token]) -> Iterator[str]:
    """What stands before a dot: schemas, among them those that a view or a foreign key looks into."""
    for token, following in pairwise(found):
        if following.text == "." and token.name is not None:
            yield token.name.lower()


def _engines(found: list[Token]) -> Iterator[str]:
    for i, token in enumerate(found):
        if token.word == "ENGINE":
            named = found[i + 2 : i + 3] if found[i + 1 : i + 2] and found[i + 1].text == "=" else found[i + 1 : i + 2]
            yield from (name.text.strip("'\"`").upper() for name in named)


class _NotUnderstood(Exception):  # noqa: N818  # never leaves this module
    pass


class _Reader:
    def __init__(self, found: list[Token], schema: str) -> None:
        self.tokens, self.schema, self.at = found, schema, 0

    def peek(self, ahead: int = 0) -> Token:
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else Token("end", "", (0, 0))

    def accept(self, *words: str) -> bool:
        """Skips these keywords when they come next, all of them or none."""
        if all(self.peek(i).word == word for i, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def identifier(self) -> str:
        name = self.peek().name
        if name is None:
            raise _NotUnderstood
        self.at += 1
        return name

    def table(self) -> TableName:
        first = self.identifier()
        if self.peek().text == ".":
            self.at += 1
            return TableName(first, self.identifier())
        return TableName(self.schema, first)

    def table_list(self) -> Iterator[TableName]:
        yield self.table()
        while self.peek().text == ",":
            self.at += 1
            yield self.table()


def _classify(reader: _Reader) -> Classified:
    if reader.accept("CREATE"):
        return _create(reader)
    if reader.accept("DROP"):
        return _drop(reader)
    if reader.accept("ALTER"):
        return _alter(reader)
    if reader.accept("RENAME", "TABLE"):
        return _rename(reader)
    if reader.accept("TRUNCATE"):
        reader.accept("TABLE")
        return Classified(ChangeClass.TRUNCATE_TABLE, (reader.table(),))
    if reader.accept("RECOVER", "TABLE") or reader.accept("FLASHBACK", "TABLE"):
        recovered = reader.table()
        return Classified(ChangeClass.RECOVER_TABLE, (recovered, *([reader.table()] if reader.accept("TO") else [])))
    raise _NotUnderstood


def _create(reader: _Reader) -> Classified:
    reader.accept("OR", "REPLACE")
    if reader.accept("DATABASE") or reader.accept("SCHEMA"):
        reader.accept("IF", "NOT", "EXISTS")
        return Classified(ChangeClass.CREATE_DATABASE, database=reader.identifier())
    reader.accept("GLOBAL", "TEMPORARY")  # a local one would hide a table from the bridge
    if reader.accept("TABLE"):
        reader.accept("IF", "NOT", "EXISTS")
        return _named(reader, ChangeClass.CREATE_TABLE)
    while reader.accept("UNIQUE") or reader.accept("FULLTEXT") or reader.accept("SPATIAL"):
        pass
    if reader.accept("INDEX"):
        reader.accept("IF", "NOT", "EXISTS")
        reader.identifier()
        _skip_to(reader, "ON")
        return _named(reader, ChangeClass.CREATE_INDEX)
    return _create_view(reader)


def _create_view(reader: _Reader) -> Classified:
    """ALGORITHM, DEFINER and SQL SECURITY may stand before VIEW; nothing else that is created may."""
    if reader.peek().word not in {"ALGORITHM", "DEFINER", "SQL", "VIEW"}:
        raise _NotUnderstood
    routine = {"PROCEDURE", "FUNCTION", "TRIGGER", "EVENT"}
    while reader.peek().word != "VIEW":
        if reader.peek().kind == "end" or reader.peek().word in routine:
            raise _NotUnderstood
        reader.at += 1
    reader.at += 1
    reader.accept("IF", "NOT", "EXISTS")
    return _named(reader, ChangeClass.CREATE_VIEW)


def _named(reader: _Reader, change_class: ChangeClass) -> Classified:
    start = reader.peek().span[0]
    table = reader.table()
    return Classified(change_class, (table,), name_span=(start, reader.peek(-1).span[1]))


def _drop(reader: _Reader) -> Classified:
    if reader.accept("DATABASE") or reader.accept("SCHEMA"):
        reader.accept("IF", "EXISTS")
        return Classified(ChangeClass.DROP_DATABASE, database=reader.identifier())
    if reader.accept("INDEX"):
        reader.accept("IF", "EXISTS")
        reader.identifier()
        _skip_to(reader, "ON")
        return Classified(ChangeClass.DROP_INDEX, (reader.table(),))
    change_class = ChangeClass.DROP_VIEW if reader.accept("VIEW") else ChangeClass.DROP_TABLE
    if change_class is ChangeClass.DROP_TABLE and not reader.accept("TABLE"):
        raise _NotUnderstood
    reader.accept("IF", "EXISTS")
    return Classified(change_class, tuple(reader.table_list()))


def _alter(reader: _Reader) -> Classified:
    if reader.accept("DATABASE") or reader.accept("SCHEMA"):
        option = {"CHARACTER", "CHARSET", "COLLATE", "DEFAULT"}
        named = reader.peek().word not in option
        return Classified(ChangeClass.ALTER_DATABASE, database=reader.identifier() if named else reader.schema)
    if not reader.accept("TABLE"):
        raise _NotUnderstood
    reader.accept("IF", "EXISTS")
    altered = _named(reader, ChangeClass.ALTER_TABLE)
    touched = list(altered.tables)
    change_class = ChangeClass.ALTER_TABLE
    while reader.peek().kind != "end":
        if reader.accept("EXCHANGE", "PARTITION"):
            change_class = ChangeClass.EXCHANGE_PARTITION
            _skip_to(reader, "TABLE")
            touched.append(reader.table())
        elif reader.accept("RENAME"):
            touched.extend(_alter_rename(reader))
        else:
            reader.at += 1
    return Classified(change_class, tuple(touched), name_span=altered.name_span)


def _alter_rename(reader: _Reader) -> Iterator[TableName]:
    """`RENAME [TO|AS|=] new_name`; RENAME COLUMN and RENAME INDEX are not renames of the table."""
    if reader.peek().word in {"COLUMN", "INDEX", "KEY"} and reader.peek(1).name is not None:
        return
    if not (reader.accept("TO") or reader.accept("AS")) and reader.peek().text == "=":
        reader.at += 1
    yield reader.table()


def _rename(reader: _Reader) -> Classified:
    touched: list[TableName] = []
    while True:
        touched.append(reader.table())
        if not reader.accept("TO"):
            raise _NotUnderstood
        touched.append(reader.table())
        if reader.peek().text != ",":
            return Classified(ChangeClass.RENAME_TABLE, tuple(touched))
        reader.at += 1


def _skip_to(reader: _Reader, word: str) -> None:
    while reader.peek().word != word:
        if reader.peek().kind == "end":
            raise _NotUnderstood
        reader.at += 1
    reader.at += 1
