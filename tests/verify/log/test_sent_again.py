"""Verify against logs in which a producer has sent rows and schema changes again."""

from __future__ import annotations

from random import Random

import pytest

from tests.generated.verifying import verify_events
from tests.pipeline.by_partitions.test_sent_again import SENDERS, check
from tests.support.selection import some_of
from tests.support.verify_servers import execute

HISTORIES = 4
TELLING = [name for name, sender in SENDERS.items() if not sender.may_be_held]
"""Without places and in whole seconds, nothing tells a schema change that was sent again from a second one."""


@pytest.mark.parametrize("sender", some_of(TELLING, *TELLING[::3]))
def test_what_is_sent_again_is_equal(target: str, sender: str) -> None:
    """Of random histories; and a row that is gone from the target is missing, where the log tells it."""
    told = 0
    for number in range(HISTORIES):
        events = check(target, sender, Random(number))
        if events is None:
            continue
        report = verify_events(target, events)
        assert report.is_equal, (number, report.document())
        for table in report.tables:
            execute(target, f"DELETE FROM {table.name} LIMIT 1")
        told += not verify_events(target, events).is_equal
    assert told
