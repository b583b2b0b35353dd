"""Public bug reports as captures (tests/cases): what `bridge verify` says of a target that they made, and of one that
lacks what an earlier bridge got wrong."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bridge.verify.report import Report
from tests.generated.verifying import verify_events
from tests.pipeline.test_reported_cases import (
    CASES_OF_REPORTS,
    Case,
    events_of,
    in_any_order,
    rows_of,
    settings_of,
    stop_of,
)
from tests.support.pipelines import run_all
from tests.support.verify_servers import execute

BY_NAME = {case.name: case for case in CASES_OF_REPORTS}
LEFT_OUT = {"debezium_3.3.0_defaults", "f9_debezium_361_partitioned", "c49_truncate_dbz_noext"}
"""The messages of the first two lack what the sender left out; the order of the third one's is found by a probe, which
these tests do without."""


class Replayed:
    """A case that was replayed on a target, without Spark.  misread: what the bridge took the messages for."""

    def __init__(self, case: Case, url: str, misread: Callable[[pa.Table], pa.Table] = lambda events: events) -> None:
        self._case, self._url, self.events = case, url, events_of(case)
        self.has_stopped = stop_of(case, url, misread(self.events)) is not None

    @property
    def is_right(self) -> bool:
        """Whether the target holds what it has to, or, where the bridge has stopped, nothing wrong."""
        right = self._case.kept if self.has_stopped and self._case.kept is not None else self._case.right
        try:
            return rows_of(self._url, right) == in_any_order(right)
        except Exception:  # noqa: BLE001  # whatever the server refuses of these queries: the table is not there
            return False

    def verified(self) -> Report:
        """What verify says."""
        return verify_events(self._url, self.events, self._case.protocol, settings=settings_of(self._case))


@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in LEFT_OUT])
def test_equal_is_said_only_where_the_target_is_right(target: str, name: str) -> None:
    """And where it is, nothing is called different; what the messages cannot tell is not covered."""
    replayed = Replayed(BY_NAME[name], target)
    report = replayed.verified()
    if replayed.has_stopped or replayed.is_right:
        assert report.is_equal, report.document()
    else:
        assert not report.is_equal or any(table.not_covered or table.notes for table in report.tables)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("c08_late_truncate", "INSERT INTO shop.t VALUES (2, 2)"),
        ("d03_mariadb", "INSERT INTO shop.t VALUES (1, 1), (2, 2)"),
        ("d19a", "DELETE FROM shop.t WHERE id = 2"),
        ("c11_drop", "DROP TABLE archive.b"),
        ("c60_drop_unique", "UPDATE d.u SET id = 2"),
        ("f1_many_partitions", "UPDATE shop.t SET v = 2 WHERE id = 1"),
    ],
)
def test_what_an_earlier_bridge_got_wrong_is_different(target: str, name: str, damage: str) -> None:
    """Verify orders messages by their places, as upstream, and not as they came."""
    replayed = Replayed(BY_NAME[name], target)
    assert replayed.verified().is_equal
    execute(target, damage)
    assert not replayed.verified().is_equal


def test_rows_that_name_no_key_any_more_give_no_verdict(target: str) -> None:
    """An earlier bridge left out a DROP PRIMARY KEY, and wrote two rows of the upstream into one."""

    def ignoring(events: pa.Table) -> pa.Table:
        return events.filter(pc.invert(pc.fill_null(pc.match_substring(events["text"], "DROP PRIMARY KEY"), False)))

    def by_the_old_key(events: pa.Table) -> pa.Table:
        left = ignoring(events)
        return left.set_column(left.schema.get_field_index("key"), "key", pa.array(["id"] * len(left)))

    replayed = Replayed(BY_NAME["c11d_drop_pk_sent"], target, by_the_old_key)
    assert not replayed.has_stopped
    replayed.events = ignoring(replayed.events)
    [table] = replayed.verified().tables
    assert table.result == "not covered"


@pytest.mark.parametrize("name", ["c48_dropcol_canal_noext", "c52_exchange_canal_noext"])
def test_what_is_sent_again_is_equal_at_every_message(target: str, name: str) -> None:
    """Also where the bridge has read a row again, and not yet the schema change that came behind it."""
    replayed = Replayed(BY_NAME[name], target, lambda events: events.slice(0, 1))
    for count in range(1, replayed.events.num_rows + 1):
        run_all(target, replayed.events.slice(0, count).combine_chunks())
        report = replayed.verified()
        assert report.is_equal, (count, report.document())
