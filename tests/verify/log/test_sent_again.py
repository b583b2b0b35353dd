"""Verify against logs in which a producer has sent rows and schema changes again."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.generated.test_senders import one_run
from tests.generated.verifying import verify_events
from tests.support.verify_servers import execute

HISTORIES = 4


@pytest.mark.parametrize("sender", ["TiCDC Canal-JSON", "TiCDC Debezium", "Debezium"])
def test_what_is_sent_again_is_equal(target: str, sender: str) -> None:
    """Of random histories; and a row that is gone from the target is missing, where the log tells it."""
    told = list[bool]()

    def look(events: pa.Table, protocol: str) -> None:
        report = verify_events(target, events, protocol)
        assert report.is_equal, report.document()
        for table in report.tables:
            execute(target, f"DELETE FROM {table.name} LIMIT 1")
        told.append(not verify_events(target, events, protocol).is_equal)

    for number in range(HISTORIES):
        one_run(target, sender, number, look)
    assert any(told)
