"""The one error of the embedded servers."""

from __future__ import annotations


class LocalError(Exception):
    """Raised when an embedded server cannot be fetched, started or used.

    what: what happened, with the failing program's own last words where there are any.
    fix: what the user should do now.
    """

    def __init__(self, what: str, *, fix: str = "") -> None:
        super().__init__(what)
        self.what, self.fix = what, fix

    def __str__(self) -> str:
        return f"{self.what}; fix: {self.fix}" if self.fix else self.what
