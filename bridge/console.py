"""Prints results to stdout, and everything else to stderr.

Besides, only `cli/output.py` prints: tables and pages.  Text may come from messages, servers and files, so it goes
through `foreign_text.visible`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TextIO

import orjson

from bridge.foreign_text import redacted, visible

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


def print_json(document: object) -> None:
    """Prints one JSON document on stdout."""
    print(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
