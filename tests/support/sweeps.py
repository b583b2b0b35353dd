"""Processes that die at every step of their work, and what has to be true of those that come after them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from bridge.mysql.connection.session import Session
from bridge.mysql.state.schema import pipeline_lock
from tests.support.pipelines import admin, contents, drop_all, journal, run_all
from tests.support.victims import Victims

BANK_OPTIONS: Final = {"batch": 150, "rows_per_transaction": 45}
"""With them the fixture `bank` takes several micro-batches of several transactions."""
_SECONDS: Final = 60.0


def state(session: Session) -> tuple[Any, ...]:
    """What two runs that end alike have in common."""
    return contents(session), journal(session)


def _let_go(session: Session) -> None:
    """Waits until the server has noticed that a process is dead: a bridge gives it three seconds, which may be too few
    on a busy machine."""
    deadline = time.monotonic() + _SECONDS
    while session.value("SELECT IS_USED_LOCK(%s)", (pipeline_lock("_bridge", "bridge"),)) is not None:
        assert time.monotonic() < deadline, "the server holds the lock of a process that is dead"
        time.sleep(0.01)


def die_everywhere(
    url: str,
    victims: Victims,
    events: pa.Table,
    begin: Callable[[Session], None],
    *,
    state: Callable[[Session], tuple[Any, ...]] = state,
    **options: Any,
) -> set[str]:
    """Lets one process die at each step in turn, and another go to the end; gives the steps died at.

    begin: makes the target as it is before.  Fails where an end is not that of an uninterrupted run of one writer.
    """
    kept, died_at = victims.keep(events), set[str]()
    with admin(url) as session:
        begin(session)
        run_all(url, events, **{**options, "writers": 0})
        expected = state(session)
        for crash_at in itertools.count(1):
            begin(session)
            step = victims.run(url, kept, crash_at, **options)
            if step is not None:
                died_at.add(step)
                _let_go(session)
                run_all(url, events, **options)
            assert state(session) == expected, f"after a crash at step {crash_at}, {step!r}"
            if step is None:
                break
    return died_at


def die_again_and_again(
    url: str, victims: Victims, events: pa.Table, look: Callable[[Session], None], **options: Any
) -> None:
    """Lets one process after the other die, each a step further into the transaction in hand, until one comes to the
    end.  look: sees the target after each death.  Fails where the end is not that of an uninterrupted run of one
    writer."""
    kept = victims.keep(events)
    with admin(url) as session:
        run_all(url, events, **{**options, "writers": 0})
        expected = state(session)
        drop_all(session)
        crash_at = 1
        while (step := victims.run(url, kept, crash_at, **options)) is not None:
            _let_go(session)
            crash_at = 1 if step in {"committed", "ddl taken off"} else crash_at + 1
            look(session)
            if journal(session) == expected[1]:
                break
        assert state(session) == expected
