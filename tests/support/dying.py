"""A pipeline that ends at a step, as a crash would end it: nothing of the bridge handles that."""

from __future__ import annotations

from collections.abc import Callable


class Died(BaseException):
    """The end of a process."""


def dying_at(doomed: str) -> Callable[[str], None]:
    """A trace that dies at the first step of this name."""

    def trace(step: str) -> None:
        if step == doomed:
            raise Died(step)

    return trace


class DyingAtNumber:
    """A trace that counts steps, and dies at the one of this number, the first being 1."""

    def __init__(self, number: int) -> None:
        self.steps, self._number = 0, number

    def __call__(self, step: str) -> None:
        self.steps += 1
        if self.steps == self._number:
            raise Died(step)
