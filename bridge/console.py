"""Prints results to stdout, and everything else to stderr.

Besides, only `cli/output.py` prints: tables and pages.  Text may come from messages, servers and files, so it goes
through `visible` before it is printed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Final, TextIO

import orjson

_LOGIN: Final = re.compile(r"(?<=:/)/?\S*@")
_SECRETS: Final[set[str]] = set()
_QUERY: Final = re.compile(r"(:/[^\s?]*\?)[^\s;,)]+")


def visible(text: str) -> str:
    """Returns the text as one line that has no effect on a terminal.  Characters that control it, end the line, change
    the direction of reading or cannot be encoded are replaced with Python's escapes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def is_text(text: str) -> bool:
    """Tells whether the text can be encoded.  Python represents arguments that are not UTF-8 with lone surrogates."""
    return not any("\ud800" <= c <= "\udfff" for c in text)


def redacted(text: str) -> str:
    """Hides the password and the query of URLs in the text."""
    return _QUERY.sub(r"\1***", _LOGIN.sub(_without_password, text)) if ":/" in text else text


def keep_secret(secret: str) -> None:
    """Remembers a password, so that `without_secrets` hides it in tracebacks."""
    if secret:
        _SECRETS.update((secret, repr(secret)[1:-1]))


def without_secrets(text: str) -> str:
    """Hides the secrets of URLs and the remembered passwords in the text."""
    for secret in sorted(_SECRETS, key=len, reverse=True):
        text = text.replace(secret, "***")
    return redacted(text)


def _without_password(login: re.Match[str]) -> str:
    user, colon, _ = login[0].partition(":")
    return f"{user}:***@" if colon else login[0]


def readable(content: bytes | None, most: int = 2000) -> str:
    """Returns bytes as text in which everything but printable ASCII is escaped; "null" for None.

    most: how many bytes are shown at most.
    """
    if content is None:
        return "null"
    text = ascii(content[:most].decode("latin-1"))[1:-1]
    return f"{text} ({len(content):,} bytes)" if len(content) <= most else f"{text}... ({len(content):,} bytes)"


Notes = Callable[[str, str], object]
"""Takes the notes of commands: the name of the event, and the text."""
_notes: Notes | None = None


def send_notes_to(notes: Notes | None) -> None:
    """Hands the notes of commands to `notes` instead of printing them; None: prints them again."""
    global _notes
    _notes = notes


def note(text: str) -> None:
    """Prints one line on stderr."""
    _say("note", f"bridge: {visible(redacted(text))}", text)


def failure(text: str) -> None:
    """Prints why the command ends, as one line on stderr."""
    _say("failed", f"bridge: {visible(redacted(text))}", text)


def detail(text: str) -> None:
    """Prints a line that belongs to the note before it.  It is indented, so that it cannot be mistaken for a line of
    the log."""
    _say("detail", f"  | {visible(text)}", text)


def _say(event: str, line: str, text: str) -> None:
    if _notes is None:
        print(line, file=sys.stderr, flush=True)
    else:
        _notes(event, text)


def has_colours(stream: TextIO) -> bool:
    """Tells whether colours can be seen on a stream, and are wanted (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def flush() -> None:
    """Flushes stdout; raises OSError when it cannot be written."""
    print(end="", flush=True)


def line(text: str) -> None:
    """Prints one line on stdout."""
    print(visible(text))


def result(document: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Prints a result on stdout: as one JSON document, or as lines."""
    if as_json:
        print_json(document)
    else:
        for one in lines:
            line(one)


def print_json(document: object) -> None:
    """Prints one JSON document on stdout."""
    print(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
