r"""Go's quoting of bytes; TiCDC Open Protocol, Column type code: "invisible characters are escaped"."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.protocols import DecodeError
from bridge.protocols.open_protocol.types import unescaped
from tests.support.wire import go_quoted


@pytest.mark.parametrize(
    ("quoted", "content"),
    [
        ("", b""),
        ("test", b"test"),
        (r"\x89PNG\r\n\x1a\n", b"\x89PNG\r\n\x1a\n"),
        (r"\a\b\f\n\r\t\v\\\'\"", b"\a\b\f\n\r\t\v\\'\""),
        (r"\x00\xfF\xAb", b"\x00\xff\xab"),
        (r"\000\377\101", b"\x00\xffA"),
        (r"é\u00e9\U0001f600\ufffd", "éé😀\ufffd".encode()),
        (r"\\x41", b"\\x41"),
        (r"\x410", b"A0"),
        (r"a\x00", b"a\x00"),
    ],
)
def test_unquoted(quoted: str, content: bytes) -> None:
    r"""\x and octal are bytes, \u and \U are characters, the rest is itself."""
    assert unescaped(quoted) == content


@pytest.mark.parametrize(
    "quoted", ["\\", "a\\", r"\x", r"\x4", r"\xzz", r"\q", r"\400", r"\8", r"\01", r"\u12", r"\ud800", r"\U00110000"]
)
def test_refused(quoted: str) -> None:
    """What strconv.Unquote calls a syntax error is refused."""
    with pytest.raises(DecodeError):
        unescaped(quoted)


@given(st.binary() | st.text().map(str.encode))
def test_round_trip(content: bytes) -> None:
    """Any bytes survive Go's quoting."""
    assert unescaped(go_quoted(content)) == content


def test_every_byte() -> None:
    """Each byte by itself survives Go's quoting."""
    assert [unescaped(go_quoted(bytes([byte]))) for byte in range(256)] == [bytes([byte]) for byte in range(256)]
