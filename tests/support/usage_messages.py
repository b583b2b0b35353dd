"""The table of the manual that names every message of wrong usage (exit code 2), made from the source:

uv run python -m tests.support.usage_messages
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bridge.errors import UsageError
from tests.support.error_messages import FILLED, PAGE, entries, is_named, messages

_TABLE = re.compile(r"(?<=<!-- usage -->\n).*?(?=<!-- /usage -->)", re.DOTALL)


def table() -> str:
    """The table of those that have no entry of their own, sorted by the words of the messages."""
    by_hand = entries(_TABLE.sub("", PAGE.read_text(encoding="utf-8")))
    rows: dict[str, dict[str, None]] = {}
    for message in messages():
        if message.kind == UsageError.__name__ and not any(is_named(message.text, entry) for entry in by_hand):
            rows.setdefault(message.text, {}).update(dict.fromkeys(_said(message.fixes)))
    lines = (f"| {text} | 2 | {_cell('; or '.join(fixes)) or 'the message says it'} |" for text, fixes in rows.items())
    ordered = sorted(lines, key=lambda line: re.sub(r"[^a-z ]", "", line.lower()).lstrip())
    return "\n".join(["| it says | exit code | what to do |", "| --- | --- | --- |", *ordered, ""])


def _cell(text: str) -> str:
    """Keeps signs of Markdown from being read as such, but for backticks and what is between them."""
    parts = text.split("`")
    return "`".join(re.sub(r"([*<|])", r"\\\1", part) if number % 2 == 0 else part for number, part in enumerate(parts))


def _said(fixes: tuple[str, ...]) -> Iterator[str]:
    yield from (fix for fix in fixes if len(fix.replace(FILLED, "").split()) > 1)


def shown() -> str:
    """The table as the page has it."""
    found = _TABLE.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None, f"{PAGE.name} has no table of usage"
    return found[0]


if __name__ == "__main__":
    PAGE.write_text(_TABLE.sub(lambda _: table(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
