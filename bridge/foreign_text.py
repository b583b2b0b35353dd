"""Makes text from messages, servers, files and the command line safe to print."""

from __future__ import annotations

import re
from typing import Final

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
