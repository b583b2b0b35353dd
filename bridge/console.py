"""Prints results to stdout, and everything else to stderr.

Besides, only `cli/output.py` prints: tables and pages.  Text may come from messages, servers and files, so it goes
through `foreign_text.visible`.
"""

from __future__ import annotations

import sys

import orjson

from bridge.foreign_text import redacted, visible


def note(text: str) -> None:
    """Prints one line on stderr."""
    print(f"bridge: {visible(redacted(text))}", file=sys.stderr, flush=True)


def detail(text: str) -> None:
    """Prints a line that belongs to the note before it.  It is indented, so that it cannot be mistaken for a line of
    the log."""
    print(f"  | {visible(text)}", file=sys.stderr)


def flush() -> None:
    """Flushes stdout; raises OSError when it cannot be written."""
    print(end="", flush=True)


def line(text: str) -> None:
    """Prints one line on stdout."""
    print(visible(text))


def print_json(document: object) -> None:
    """Prints one JSON document on stdout."""
    print(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
