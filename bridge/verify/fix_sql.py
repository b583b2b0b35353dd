"""Turns differences into the statements that fix them: the writer's own statements, in one transaction.

The file is for `mysql < file`.  In batch mode the clients of MySQL and MariaDB turn CR LF into LF, even inside texts,
stop at a NUL, and read backslashes and quotes by a character set of their own.  So texts are escaped, and a statement
that cannot be escaped is sent as hex.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from bridge.console import visible
from bridge.errors import UsageError, counted
from bridge.events import SEP
from bridge.model import Table
from bridge.mysql.connection.session import SESSION_SETTINGS
from bridge.rows.key_steps import other_uniques
from bridge.rows.literal_offsets import TEXT
from bridge.rows.net_changes import Image, KeyedChanges, KeylessChanges, NetChanges, WrittenRows
from bridge.rows.sql.in_order import update_of_row
from bridge.rows.sql.render import render
from bridge.rows.sql.statement import Rendering, Stage, Statement
from bridge.verify.compare.checksums import KeyValues, any_of, key_parts, literal_of
from bridge.verify.compare.row_diff import ComparedColumns, Difference, DifferenceKind

_QUOTED: Final = re.compile(r"""`[^`]*`|'[^'\\]*(?:(?:\\.|'')[^'\\]*)*'""", re.DOTALL)
_CONTROL: Final = re.compile(r"\\?([\0\n\r\x1a])|\\.", re.DOTALL)
_ESCAPES: Final = {"\0": r"\0", "\n": r"\n", "\r": r"\r", "\x1a": r"\Z"}
_NO_TEXT: Final = re.compile("[\ud800-\udfff]")
_ESCAPED: Final = re.compile(rb"\\(.)|''", re.DOTALL)
_UNESCAPES: Final = {b"0": b"\0", b"b": b"\b", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"Z": b"\x1a"}
_UNSENDABLE: Final = re.compile(r"[\0\r\x1a\\]")
"""Characters that a name cannot be sent with, since nothing can be escaped inside a name; old clients take a backslash
in a name for an escape."""
_SECOND_BYTES_OF_ASCII: Final = ("big5", "cp932", "gb18030", "gbk", "sjis")
"""Character sets in which a backslash or a backtick may be half of a character."""

OPTIONS: Final = "--default-character-set=utf8mb4 --max-allowed-packet=1G"
"""What the client should be called with."""
GUARD: Final = (
    "-- An error here means: call the client with --default-character-set=utf8mb4.",
    "SET @`bridge fix` = IF(@@character_set_client IN ("
    + ",".join(f"'{name}'" for name in _SECOND_BYTES_OF_ASCII)
    + "), 'the client needs --default-character-set=utf8mb4', 'DO 0');",
    "PREPARE `bridge fix` FROM @`bridge fix`;",
    "EXECUTE `bridge fix`;",
)
"""Executes words, which are an error, for a client of another character set.  A subquery that is an error would be one
on TiDB whatever the condition says."""


def sendable(statements: Iterable[str]) -> Iterator[str]:
    """Gives the statements as lines of a file.  Each is one line, but a CREATE TABLE keeps its own lines."""
    for statement in statements:
        plain = _QUOTED.sub(lambda match: _plain(match[0]), statement)
        names = (match[0] for match in _QUOTED.finditer(plain) if match[0][0] == "`")
        if any(map(_UNSENDABLE.search, names)):
            yield f"SET @`bridge fix` = _utf8mb4 x'{plain.encode().hex()}';"
            yield "PREPARE `bridge fix` FROM @`bridge fix`;"
            yield "EXECUTE `bridge fix`;"
        else:
            yield f"{plain};"


def _plain(quoted: str) -> str:
    """Gives a text escaped.  Bytes that are not UTF-8 (surrogates) are written in hex."""
    if quoted[0] == "`":
        return quoted
    if _NO_TEXT.search(quoted):
        content = quoted[1:-1].encode("utf-8", "surrogateescape")
        bare = _ESCAPED.sub(lambda match: b"'" if match[1] is None else _UNESCAPES.get(match[1], match[1]), content)
        return f"x'{bare.hex()}'"
    return _CONTROL.sub(lambda match: _ESCAPES.get(match[1], match[0]), quoted)


def commented(words: str) -> str:
    """Gives the words as comment lines."""
    return "\n".join(f"-- {visible(line)}" for line in re.split(r"[\0\r\n\x1a]+", words))


def net_changes(table: Table, shape: ComparedColumns, differences: Sequence[Difference]) -> NetChanges:
    """Turns differences into the net changes that the writer would write.

    A row that is written is deleted first in two cases: it is in the target under another spelling of its key, or the
    table has other unique keys, whose values rows may have taken from one another.
    """
    if not shape.key:
        return _keyless(table, shape, differences)
    key = tuple(shape.actual[i].name.lower() for i in shape.key)
    in_the_way = [d.actual for d in differences if d.actual and _is_in_the_way(shape, d)]
    keys = [SEP.join(literal_of(shape.actual[i], row[i]) for i in shape.key) for row in in_the_way]
    images: tuple[list[str], list[str]] = [], []
    has_others = table.writes_anew or bool(other_uniques(table, key))
    for difference in differences:
        if difference.expected is not None:
            is_freed = has_others or _is_in_the_way(shape, difference)
            images[is_freed].append(_image(shape, difference.expected).literals)
    names = SEP.join(column.name for column in shape.actual)
    rows_written = (WrittenRows(names, *(pa.array(group, TEXT) for group in images)),) if any(images) else ()
    return KeyedChanges(table, key, pa.array(keys, TEXT), rows_written)


def _is_in_the_way(shape: ComparedColumns, difference: Difference) -> bool:
    """Tells whether the target's row must go: it is extra, or has another spelling of the key."""
    return difference.actual is not None and (
        difference.finding is DifferenceKind.EXTRA
        or shape.identity(shape.key_of(difference.actual)) != shape.identity(difference.key)
    )


def _statements(table: Table, shape: ComparedColumns, differences: Sequence[Difference]) -> Iterator[Statement]:
    """Makes the statements of a table.  Where the target has columns of its own, a row that is there is updated:
    deleted and written anew, it would lose what it has there."""
    if shape.key and not table.written_names.issubset(column.name.lower() for column in shape.actual):
        columns = [shape.actual[i] for i in shape.key]
        parts = key_parts(columns, columns)
        for difference in differences:
            if difference.expected and difference.actual:
                condition = any_of(parts, [shape.key_of(difference.actual)])
                yield update_of_row(table, _image(shape, difference.expected), condition)
        differences = [difference for difference in differences if not (difference.expected and difference.actual)]
    yield from render(net_changes(table, shape, differences), Rendering(table.name.schema))


def _keyless(table: Table, shape: ComparedColumns, differences: Iterable[Difference]) -> KeylessChanges:
    copies: dict[Image, int] = {}
    for difference in differences:
        row = difference.expected or difference.actual
        assert row is not None
        image, count = _image(shape, row), difference.copies if difference.expected else -difference.copies
        copies[image] = copies.get(image, 0) + count
    return KeylessChanges(table, {image: count for image, count in copies.items() if count})


def _image(shape: ComparedColumns, row: KeyValues) -> Image:
    names = SEP.join(column.name for column in shape.actual)
    return Image(names, SEP.join(map(literal_of, shape.actual, row)))


class FixFile:
    """Collects the statements that fix the target, then writes them; schema changes are outside of the transaction."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before: list[str] = []
        self._after: list[str] = []
        self._cannot: dict[str, None] = {}
        self._differing: list[tuple[Table, ComparedColumns, Sequence[Difference]]] = []
        try:
            path.touch()
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}", fix="see --fix-sql") from error

    def add_schema(self, before: Sequence[str], after: Sequence[str] = ()) -> None:
        """Takes schema changes that come before the rows, and those that come after them."""
        self._before += before
        self._after += after

    def add_impossible(self, words: str) -> None:
        """Takes a difference that no statement of the file fixes, and the reason."""
        self._cannot[words] = None

    def add_rows(self, table: Table, shape: ComparedColumns, differences: Sequence[Difference]) -> None:
        """Takes the differing rows of a table."""
        self._differing.append((table, shape, differences))

    def write(self, outcome: str, moment: int) -> str:
        """Writes the file; says how many statements it holds.  outcome: what it makes; moment: of `Report`."""
        statements = [
            statement
            for table, shape, differences in self._differing
            for statement in _statements(table, shape, differences)
        ]
        texts = [statement.sql.decode() for stage in Stage for statement in statements if statement.stage is stage]
        at = f", at applied_ts {moment}" if moment else ""
        lines = self._lines(f"makes {outcome}{at}", texts)
        self._path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
        return f"{counted(len(self._before) + len(texts) + len(self._after), 'statement')} in {self._path}"

    def _lines(self, heading: str, rows: Sequence[str]) -> Iterator[str]:
        yield commented(heading)
        yield f"-- Read it first, then run: mysql {OPTIONS} ... < this file.  Nothing in it has been run."
        yield from map(commented, self._cannot)
        yield from GUARD
        yield "SET NAMES utf8mb4;"
        yield from (f"{setting};" for setting in SESSION_SETTINGS)
        yield from sendable(self._before)
        yield "START TRANSACTION;"
        yield from sendable(rows)
        yield "COMMIT;"
        yield from sendable(self._after)
