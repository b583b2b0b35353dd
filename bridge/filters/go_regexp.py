"""Regular expressions as Go reads them (pkg.go.dev/regexp/syntax): RE2, from whose authors Go has its own."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import re2

_OPTIONS: Final = re2.Options()
_OPTIONS.case_sensitive = False
_OPTIONS.log_errors = False


class GoRegexpError(ValueError):
    """Raised for a text that is no regular expression of Go's; the message says why."""


class GoPattern:
    """A regular expression, without regard to case."""

    def __init__(self, pattern: str) -> None:
        try:
            self._pattern, self._compiled = pattern, re2.compile(pattern, _OPTIONS)
        except re2.error as error:
            reason = error.args[0] if error.args else error
            raise GoRegexpError(
                reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
            ) from error

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return compiled, (self._pattern,)

    def search(self, text: str) -> bool:
        """Tells whether it is found anywhere in a text."""
        return self._compiled.search(text) is not None


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> GoPattern:
    """Gives the pattern.  Raises GoRegexpError."""
    return GoPattern(pattern)
