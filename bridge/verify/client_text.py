r"""Writes statements as a file for `mysql < file`, such that the client sends exactly what was meant.  Pure.

In batch mode the clients of MySQL and MariaDB turn CR LF into LF, even inside texts, stop at a NUL, and read
backslashes and quotes by a character set of their own.  So texts are escaped, and a statement that cannot be escaped is
sent as hex.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from bridge.foreign_text import visible

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
        plain = plain_sql(statement)
        if any(map(_UNSENDABLE.search, _names(plain))):
            yield f"SET @`bridge fix` = _utf8mb4 x'{plain.encode().hex()}';"
            yield "PREPARE `bridge fix` FROM @`bridge fix`;"
            yield "EXECUTE `bridge fix`;"
        else:
            yield f"{plain};"


def _names(statement: str) -> Iterator[str]:
    return (match[0] for match in _QUOTED.finditer(statement) if match[0][0] == "`")


def plain_sql(statement: str) -> str:
    """Gives the statement with its texts escaped.  Bytes that are not UTF-8 (surrogates) are written in hex."""
    return _QUOTED.sub(lambda match: _plain(match[0]), statement)


def _plain(quoted: str) -> str:
    if quoted[0] == "`":
        return quoted
    if _NO_TEXT.search(quoted):
        content = quoted[1:-1].encode("utf-8", "surrogateescape")
        return f"x'{_ESCAPED.sub(_unescaped, content).hex()}'"
    return _CONTROL.sub(lambda match: _ESCAPES.get(match[1], match[0]), quoted)


def _unescaped(match: re.Match[bytes]) -> bytes:
    return b"'" if match[1] is None else _UNESCAPES.get(match[1], match[1])


def commented(words: str) -> str:
    """Gives the words as comment lines."""
    return "\n".join(f"-- {visible(line)}" for line in re.split(r"[\0\r\n\x1a]+", words))
