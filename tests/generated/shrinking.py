"""Makes a failing run as small as it stays failing in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from tests.generated.cases import Case
from tests.generated.dimensions import DIMENSIONS, FREE, fits, is_sound
from tests.generated.failures import Failure

SECONDS: Final = 20.0

Fails = Callable[[Case], Failure | None]


def shrunk(case: Case, failure: Failure, fails: Fails, seconds: float = SECONDS) -> tuple[Case, Failure]:
    """The smallest run found in so many seconds, and its failure."""
    deadline = time.monotonic() + seconds
    goes_on = True
    while goes_on:
        goes_on = False
        for smaller in _smaller(case):
            if time.monotonic() > deadline:
                return case, failure
            found = fails(smaller)
            if found is not None and found.kind == failure.kind:
                case, failure, goes_on = smaller, found, True
                break
    return case, failure


def _smaller(case: Case) -> Iterator[Case]:
    """Halves, then quarters and so on, of the transactions left out; then statements, loaded rows, and what is special
    in how it runs."""
    size = len(case.transactions)
    while size >= 1:
        for start in range(0, len(case.transactions), size):
            kept = case.transactions[:start] + case.transactions[start + size :]
            yield replace(case, transactions=kept)
        size //= 2
    for name in FREE:
        if case.choice[name] != DIMENSIONS[name][0]:
            yield from _simpler(case, name)
    for number in range(len(case.loaded)):
        yield replace(case, loaded=case.loaded[:number] + case.loaded[number + 1 :])
    for number, transaction in enumerate(case.transactions):
        for at in range(len(transaction.statements) if len(transaction.statements) > 1 else 0):
            rest = replace(transaction, statements=transaction.statements[:at] + transaction.statements[at + 1 :])
            yield replace(case, transactions=(*case.transactions[:number], rest, *case.transactions[number + 1 :]))


def _simpler(case: Case, name: str) -> Iterator[Case]:
    """With the simplest value of a dimension that the others allow."""
    for value in DIMENSIONS[name]:
        if value == case.choice[name]:
            return
        choice = {**case.choice, name: value}
        if fits((name, value), {n: v for n, v in choice.items() if n != name}) and is_sound(choice):
            yield replace(case, choice=choice)
            return
