"""A disk that is full: the bridge ends, says so, and goes on once there is room."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bridge.local import Kafka
from tests.support.bridges import PARTITIONS, applied_ts, assert_equal, kafka_arguments
from tests.support.command import Process
from tests.support.feeds import Feed
from tests.support.small_disk import filled, small_disk

BYTES = 24 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few megabytes; skips where none can be mounted."""
    with small_disk(tmp_path / "disk", BYTES) as folder:
        if folder is None:
            pytest.skip("no disk can be mounted here")
        yield folder


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_full_disk_ends_the_bridge_which_goes_on_with_room(
    target: str, kafka: Kafka, topic: Callable[..., str], tmp_path: Path, disk: Path
) -> None:
    """The folder of the query and of what Spark spills: exit 3, one line that says why, nothing lost."""
    name = topic(PARTITIONS)
    arguments = kafka_arguments("run", kafka.bootstrap_servers, name, target)
    places = ["--set", f"spark.spark.local.dir={disk}"]
    environment = {"TMPDIR": str(disk)}
    with Feed(kafka.bootstrap_servers, name, copies=False) as feed:
        feed.open_bank()
        feed.start()
        with Process(tmp_path, *arguments, *places, environment=environment) as process:
            process.wait_for(lambda: applied_ts(target) > 0, "a first transaction")
            process.says("spark_started")
            with filled(disk):
                assert process.wait() == 3, process.end_of_log
            assert "Traceback" not in process.log, process.log
            assert errno.errorcode[errno.ENOSPC] in process.last_line or "No space left" in process.last_line
        boundary = feed.finish()
        with Process(tmp_path, *arguments, *places, environment=environment) as process:
            process.wait_for(lambda: applied_ts(target) >= boundary, "the end")
            process.signal(signal.SIGTERM)
            assert process.wait(60) == 0, process.end_of_log
    assert_equal(target, feed.bank)
