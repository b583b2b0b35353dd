"""Makes text from elsewhere - messages, servers, files, the command line - fit to be shown to people."""

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
    """Whether the text can be encoded.  Python holds arguments that are not UTF-8 as lone surrogates."""
    return not any("\ud800" <= c <= "\udfff" for c in text)


def redacted(text: str) -> str:
    """The text, in whose URLs the password before the host and the query are hidden."""
    return _QUERY.sub(r"\1***", _LOGIN.sub(_without_password, text)) if ":/" in text else text


def keep_secret(secret: str) -> None:
    """Remembers a password, so that no traceback ever shows it."""
    if secret:
        _SECRETS.update((secret, repr(secret)[1:-1]))


def without_secrets(text: str) -> str:
    """The text without the secrets of URLs and without remembered passwords."""
    for secret in sorted(_SECRETS, key=len, reverse=True):
        text = text.replace(secret, "***")
    return redacted(text)


def _without_password(login: re.Match[str]) -> str:
    user, colon, _ = login[0].partition(":")
    return f"{user}:***@" if colon else login[0]
