"""Text from elsewhere - messages, servers, files, the command line - as it is shown to people."""

from __future__ import annotations

import re
from typing import Final

_LOGIN: Final = re.compile(r"(?<=:/)/?\S*@")
_SECRETS: Final[set[str]] = set()
_QUERY: Final = re.compile(r"(:/[^\s?]*\?)[^\s;,)]+")


def visible(text: str) -> str:
    """Text as one line that leaves the terminal as it is: characters that would steer it, end the line, turn the
    direction of reading or cannot be encoded stand as Python writes them."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def is_text(text: str) -> bool:
    """Whether it can be encoded: Python has arguments that are not UTF-8 as lone surrogates."""
    return not any("\ud800" <= c <= "\udfff" for c in text)


def redacted(text: str) -> str:
    """Text whose URLs have lost what may be a secret: the password in front of the host, and the query."""
    return _QUERY.sub(r"\1***", _LOGIN.sub(_without_password, text)) if ":/" in text else text


def keep_secret(secret: str) -> None:
    """Takes a password out of every traceback that is ever shown."""
    if secret:
        _SECRETS.update((secret, repr(secret)[1:-1]))


def without_secrets(text: str) -> str:
    """Text without URLs' secrets and what was to be kept secret."""
    for secret in sorted(_SECRETS, key=len, reverse=True):
        text = text.replace(secret, "***")
    return redacted(text)


def _without_password(login: re.Match[str]) -> str:
    user, colon, _ = login[0].partition(":")
    return f"{user}:***@" if colon else login[0]
