r"""Defines statements that write rows, and how they are rendered.

Decides which rows may be sent by LOAD DATA LOCAL INFILE ... REPLACE, and gives them its form.

LOAD DATA costs the server about a quarter less than INSERT ... ON DUPLICATE KEY UPDATE, since nothing is parsed as
SQL.  It reads the literals of row images as they are, or by an expression.  Fields end at SEP, which no literal holds;
rows end at a line feed, which texts hold only within their quotation marks.  LOAD DATA and SQL share the escapes
``\\``, ``\'`` and ``\0``, and `protocols.values.literals` writes no others.  The rules are by column, by row and by
table; rows that they do not allow are written by INSERT.

Writes conditions by keys and by whole rows, and chooses the columns that are written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.errors import ApplyError
from bridge.events import SEP
from bridge.model import Column, Table, TableName, quote_name
from bridge.rows.gathering import Bools, lines
from bridge.rows.key_spellings import spelled_texts
from bridge.rows.literal_offsets import TEXT, joined, parts_of, runs, separators, wrapped
from bridge.rows.sql import members
from bridge.rows.sql.members import member_names
from bridge.rows.type_check import CheckedTypes

MIN_BYTES: Final = 128 * 1024
"""Fewer bytes are written by INSERT, which takes one round trip instead of two and then costs no more (measured)."""

_NUMBER: Final = re.compile(
    r"(?:(?:tiny|small|medium|big)?int|decimal|float|double)(?:\(\d+(?:,\d+)?\))?(?: unsigned)?(?: zerofill)?"
)
_MOMENT: Final = re.compile(r"date|(?:datetime|timestamp|time)(?:\(\d\))?")
_TEXT: Final = re.compile(r"(?:var)?char\(\d+\)|(?:tiny|medium|long)?text|json")
_NAMES: Final = re.compile(r"(?:enum|set)\(.*\)", re.DOTALL)
_BYTES: Final = re.compile(r"(?:var)?binary\(\d+\)|(?:tiny|medium|long)?blob")
_COUNTED: Final = re.compile(r"bit\(\d+\)|year\(4\)|year")
_EXACT_NUMBER: Final = re.compile(r"(?:(?:tiny|small|medium|big)?int|decimal)\b.*")
_POSITIVE, _OTHER_NUMERAL, _QUOTED, _HEX, _NULL = 1, 2, 4, 8, 16
_NUMERAL: Final = _POSITIVE | _OTHER_NUMERAL
_KINDS: Final = np.zeros(256, np.uint8)
"""Kinds of literals by their first character; 0 for any other."""
_KINDS[np.frombuffer(b"123456789", np.uint8)] = _POSITIVE
_KINDS[np.frombuffer(b"-0", np.uint8)] = _OTHER_NUMERAL
_KINDS[ord("'")], _KINDS[ord("x")], _KINDS[ord("N")] = _QUOTED, _HEX, _NULL
_BEGINNING_CHARACTERS = 300
_BETWEEN_ROWS = "),("
STATEMENT_BYTES = 512 * 1024
"""Statements are cut at about this many bytes; longer ones are no faster on MariaDB (measured)."""


class Load(NamedTuple):
    """The input of a LOAD DATA statement: `rows` rows of a table."""

    table: Table
    rows: int
    body: pa.Buffer


def may_load(table: Table, key: tuple[str, ...], names: Sequence[str]) -> bool:
    """Tells whether rows of these columns may be loaded, if the target accepts loads into the table at all
    (`Rendering.loadable`).

    REPLACE writes whole rows, and deletes rows by any unique key: all columns must be there, and `key` alone unique.
    """
    columns = table.columns
    return (
        len(table.uniques) == 1
        and _is_exact([columns[part] for part in key])
        and len(names) == len(columns)
        and all(map(_is_read_alike, columns.values()))
    )


def _is_exact(key: Sequence[Column]) -> bool:
    """Tells whether equal keys are equal values.  Two spellings may be one text, of which ON DUPLICATE KEY UPDATE keeps
    the first; two times may form a period (WITHOUT OVERLAPS)."""
    moments = sum(_MOMENT.fullmatch(column.type) is not None for column in key)
    numbers = sum(_EXACT_NUMBER.fullmatch(column.type) is not None for column in key)
    return moments <= 1 and moments + numbers == len(key)


def _is_read_alike(column: Column) -> bool:
    """Tells whether LOAD reads a type as SQL does, some with the help of an expression."""
    if column.generated:
        return False
    if column.charset is None:
        return column.type == "json" or any(
            pattern.fullmatch(column.type) for pattern in (_NUMBER, _MOMENT, _BYTES, _COUNTED)
        )
    return column.charset != "binary" and any(pattern.fullmatch(column.type) for pattern in (_TEXT, _NAMES))


def _readable_kinds(column: Column) -> int:
    """Tells which literals LOAD reads as SQL does.  A number in a text column would become its digits as written; NULL,
    where it is not allowed, would become 0 or the time of writing; the number 0 of an ENUM would not be refused."""
    if _NUMBER.fullmatch(column.type) or _COUNTED.fullmatch(column.type):
        plain = _NUMERAL
    elif _BYTES.fullmatch(column.type):
        plain = _HEX
    elif _NAMES.fullmatch(column.type) and not any(map(_may_be_number, member_names(column.type))):
        plain = _QUOTED | _POSITIVE
    else:
        plain = _QUOTED
    return plain | (_NULL if column.nullable else 0)


def _may_be_number(name: str) -> bool:
    """Tells whether some collation may take the name of an ENUM or a SET for a number.  LOAD then stores what has that
    name, and only otherwise what has that number.  No collation takes an ASCII letter for nothing, or for a digit."""
    return not any(letter.isascii() and letter.isalpha() for letter in name)


def readable(images: pa.Array, columns: Sequence[Column]) -> Bools:
    """Tells which images hold only literals that LOAD reads as SQL does, into columns for which `may_load` is true.  No
    image is null, and `type_check` has accepted all of them.

    SQL reads -0.00 as a DECIMAL, which has no negative zero; LOAD reads it as the column's type.
    """
    offsets = np.frombuffer(images.buffers()[1], np.int64)[images.offset : images.offset + len(images) + 1]
    characters = np.frombuffer(images.buffers()[2], np.uint8)[: offsets[-1]]
    inner = separators(characters, offsets, len(images) * (len(columns) - 1)).reshape(len(images), len(columns) - 1)
    begins = np.column_stack([offsets[:-1], inner + 1])
    kinds = np.array([_readable_kinds(column) for column in columns], np.uint8)
    is_readable: Bools = np.all(_KINDS[characters[begins]] & kinds, axis=1)
    for i in (i for i, column in enumerate(columns) if column.type.startswith(("float", "double"))):
        sign, digit = (characters.take(begins[:, i] + at, mode="clip") for at in (0, 1))
        is_readable &= (sign != ord("-")) | (digit != ord("0"))
    return is_readable


def load_of(table: Table, images: pa.Array) -> Load:
    """Gives images the form that LOAD DATA reads."""
    return Load(table, len(images), lines(images))


def load_statement(table: Table, names: Sequence[str]) -> bytes:
    """Gives the statement that reads a load.  The name of the file means nothing: the client sends the rows, whatever
    file the server asks for."""
    fields, settings = [], []
    for number, name in enumerate(names):
        expression = _expression(table.columns[name.lower()].type, f"@field{number}")
        fields.append(f"@field{number}" if expression else quote_name(name))
        settings += [f"{quote_name(name)}={expression}"] if expression else []
    return (
        f"LOAD DATA LOCAL INFILE 'rows' REPLACE INTO TABLE {quote_name(*table.name)} CHARACTER SET utf8mb4"
        r" FIELDS TERMINATED BY '\0' OPTIONALLY ENCLOSED BY '\'' ESCAPED BY '\\' LINES TERMINATED BY '\n'"
        f" ({','.join(fields)}){' SET ' * bool(settings)}{','.join(settings)}"
    ).encode()


def _expression(column_type: str, field: str) -> str:
    """Writes the expression that makes the value of a field where LOAD alone would read another one than SQL; "" where
    it would not.  Bytes come as x'..', and LOAD reads the number of a BIT as text, and the YEAR 0 as 2000."""
    if _BYTES.fullmatch(column_type):
        return f"UNHEX(SUBSTR({field},3,CHAR_LENGTH({field})-3))"
    return f"CAST({field} AS UNSIGNED)" if _COUNTED.fullmatch(column_type) else ""


class Stage(IntEnum):
    """When a statement runs within its transaction."""

    DELETE = 0
    WRITE = 1


class Statement(NamedTuple):
    """One statement.

    sql: in UTF-8, as it is sent; of many rows it is made without a Python object for each.
    expect: how many rows it must match, None when any number is right.  0: it is a query, and a row that it finds has a
        key spelled otherwise than the messages have it.
    is_once: whether only the transaction that moves progress may run it, since it would have another effect the second
        time.
    load: the rows of a LOAD DATA, None for other statements.
    joins: whether it may be sent together with others, in one exchange: any number of rows is right.
    otherwise: the statements that are tried one after the other where this one, and those before, match no row.
    is_part: whether the messages hold only parts of its rows.
    """

    stage: Stage
    table: TableName
    sql: bytes
    expect: int | None = None
    is_once: bool = True
    load: Load | None = None
    is_part: bool = False
    otherwise: tuple[bytes, ...] = ()
    joins: bool = False

    @property
    def beginning(self) -> str:
        """The first characters, for an error message."""
        return self.sql[:_BEGINNING_CHARACTERS].decode(errors="replace")

    @property
    def size(self) -> int:
        """About how many bytes are sent for it."""
        return len(self.sql) + (self.load.body.size if self.load else 0)


class NotWritten(NamedTuple):
    """Why statements were not committed by the process that has their rows.

    fix: what to do about it, "" where there is nothing.
    refused_load: the table that refused a load.  cannot_connect: whether the process cannot reach the target.
    waits: whether another transaction holds their rows, and has for as long as the server waits.
    """

    why: str
    fix: str = ""
    refused_load: TableName | None = None
    cannot_connect: bool = False
    waits: bool = False


class NotWrittenError(Exception):
    """Raised when other processes have not written all that they were to write."""

    def __init__(self, reason: NotWritten) -> None:
        super().__init__(reason)  # it is pickled
        self.reason = reason


WritePart = Callable[[Sequence[Statement]], NotWritten | None]
"""Commits statements in one transaction, and tells why not when it cannot; it may be sent to another process."""


@dataclass(frozen=True)
class Rendering:
    """How statements are rendered.

    scratch_schema: the database of temporary tables.
    safe_mode: whether rows with a unique value that is about to be written are deleted first (for a target that is
        ahead of the log).
    load_bytes: about how many bytes one LOAD DATA sends, where it does what INSERT does; 0: no loads.
    in_order: tables that go by transaction in any case (`rows.grains`).
    loadable: the tables into which the target accepts loads.
    checked_types: the column lists whose types were found to fit.
    by_transaction: the tables that have gone by transaction, and why; rendering adds to it.
    """

    scratch_schema: str
    safe_mode: bool = False
    load_bytes: int = 0
    loadable: frozenset[TableName] = frozenset()
    in_order: frozenset[TableName] = frozenset()
    checked_types: CheckedTypes = field(default_factory=CheckedTypes, compare=False)
    by_transaction: dict[str, str] = field(default_factory=dict, compare=False)


PLAIN: Final = Rendering("")


def cut_to_rows(images: pa.Array) -> Iterator[bytes]:
    """Joins images, in order, to the rows of statements: what stands between the first and the last bracket behind
    VALUES; about STATEMENT_BYTES each."""
    for run in runs(images, STATEMENT_BYTES):
        rows = pc.binary_join_element_wise(run, pa.scalar("", TEXT), pa.scalar(_BETWEEN_ROWS, TEXT))
        size = int(np.frombuffer(rows.buffers()[1], np.int64)[len(rows)]) - len(_BETWEEN_ROWS)
        yield rows.buffers()[2][:size].to_pybytes().replace(SEP.encode(), b",")


def cut_to_statements(texts: pa.Array, separator: str, count_limit: int | None = None) -> Iterator[str]:
    """Joins texts, in order, to bodies of statements: about STATEMENT_BYTES each, of at most so many texts."""
    return (separator.join(run.to_pylist()) for run in runs(texts, STATEMENT_BYTES, count_limit))


KEYS_PER_DELETE = 2000
_VALUES_PER_GUARD: Final = 200


class WrittenColumns(NamedTuple):
    """The columns of a column list that are written: those of the target, their names, and positions in the image."""

    columns: tuple[Column, ...]
    names: tuple[str, ...]
    positions: tuple[int, ...] | None
    """None when the whole image is written."""

    @classmethod
    def of(cls, table: Table, columns: str) -> WrittenColumns:
        """Chooses the columns of a column list that are written.  Raises ApplyError when the target lacks one."""
        message_names = columns.split(SEP)
        missing = [name for name in message_names if name.lower() not in table.columns]
        if missing:
            raise ApplyError(
                f"the target's table lacks the column {missing[0]}",
                where=str(table.name),
                fix="a schema change is missing on the target; add the column as it is upstream, or begin later"
                " (--from)",
            )
        columns_sent = [table.columns[name.lower()] for name in message_names]
        positions = [i for i, column in enumerate(columns_sent) if not column.generated]
        columns_written = tuple(columns_sent[i] for i in positions)
        names = tuple(column.name for column in columns_written)
        return cls(columns_written, names, None if len(positions) == len(columns_sent) else tuple(positions))

    def with_zeros(self, images: pa.Array) -> pa.Array:
        """Gives images of the columns that are written with the literals by which ENUM's error values are written."""
        return members.with_zeros(images, [column.type for column in self.columns])

    def literals_of(self, image: Sequence[str]) -> Sequence[str]:
        """Gives the literals of an image that are written."""
        return image if self.positions is None else [image[at] for at in self.positions]


def keys_of(columns: str, images: pa.Array, key: tuple[str, ...]) -> pa.Array:
    """Gives the keys of images of one column list."""
    names = columns.lower().split(SEP)
    return joined(parts_of(images, [names.index(part) for part in key]))


def key_conditions(table: Table, key: tuple[str, ...], keys: pa.Array) -> Iterator[str]:
    """Gives conditions that find the rows of these keys, each as long as a statement may be."""
    names = [quote_name(table.columns[part].name) for part in key]
    if len(names) == 1:
        for body in cut_to_statements(keys, ",", KEYS_PER_DELETE):
            yield f"{names[0]} IN ({body})"
        return
    template = [f"({names[0]}=", *(f" AND {name}=" for name in names[1:]), ")"]
    yield from cut_to_statements(wrapped(template, parts_of(keys, range(len(names)))), " OR ", KEYS_PER_DELETE)


def guards(
    table: Table, unique: tuple[str, ...], values: Sequence[Sequence[str]], exclusion: str = ""
) -> Iterator[str]:
    """Gives queries of rows whose values of a unique key are one with these to the server, and whose texts have other
    bytes: such a row must not be overwritten.  exclusion: a further condition.

    The bounds are two, as TiDB would take a text that equals a literal for the literal, bytes included.
    """
    texts, lengths = spelled_texts(table, unique), table.prefixes.get(unique, (None,) * len(unique))
    names = [quote_name(table.columns[part].name) for part in unique]

    def is_other(literals: Sequence[str]) -> str:
        equal, same_bytes = list[str](), list[str]()
        for part, name, literal, length in zip(unique, names, literals, lengths, strict=True):
            column, value = (f"LEFT({name},{length})", f"LEFT({literal},{length})") if length else (name, literal)
            if part in texts:
                own = column if literal.startswith("x'") else f"CONVERT({column} USING utf8mb4)"
                equal.append(f"{column}>={value} AND {column}<={value}")
                same_bytes.append(f"CAST({own} AS BINARY)=CAST({value} AS BINARY)")
            else:
                equal.append(f"{column}={value}")
        return f"({' AND '.join(equal)} AND NOT ({' AND '.join(same_bytes)}))"

    for start in range(0, len(values), _VALUES_PER_GUARD):
        batch = values[start : start + _VALUES_PER_GUARD]
        firsts = [literals[0] for literals in batch]
        if len(unique) == 1 and len(batch) > 1 and not any(lengths) and all(text[0] == "'" for text in firsts):
            body = ",".join(firsts)
            where = f"{names[0]} IN ({body}) AND CAST(CONVERT({names[0]} USING utf8mb4) AS BINARY) NOT IN ({body})"
        else:
            where = f"({' OR '.join(map(is_other, batch))})"
        yield f"SELECT {','.join(names)} FROM {quote_name(*table.name)} WHERE {where}{exclusion} LIMIT 1"


def binary_match(written: WrittenColumns, image: Sequence[str]) -> str:
    """Gives the condition that finds rows with exactly the values of an image (its literals)."""
    return " AND ".join(map(_match, written.columns, written.literals_of(image)))


def set_by_themselves(table: Table) -> Iterator[str]:
    """Gives the columns that an UPDATE may change without naming them (ON UPDATE CURRENT_TIMESTAMP)."""
    for column in table.columns.values():
        if not column.generated and column.type.startswith(("timestamp", "datetime")):
            yield column.name


def _match(column: Column, literal: str) -> str:
    name, literal = quote_name(column.name), members.compared_literal(column, literal)
    if column.type == "json" and literal != "NULL":  # JSON of MySQL and TiDB; MariaDB's is text
        document = f"CAST({literal} AS JSON)"
        return f"{name}<=>{document} AND CAST({name} AS BINARY)<=>CAST({document} AS BINARY)"  # 1 = 1.0
    plain = f"{name}<=>{literal}"
    if column.charset is None or literal[0] not in "'x":  # NULL, or the number of an ENUM or SET value
        return plain
    # Equal under the column's collation (which an index supports), and equal byte for byte in its character set.
    return f"{plain} AND CAST({name} AS BINARY)<=>CAST(CONVERT({literal} USING {column.charset}) AS BINARY)"
