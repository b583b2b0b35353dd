"""A disk that is full: the bridge ends, says so, and goes on once there is room."""

from __future__ import annotations

import errno
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bridge.local import Kafka
from tests.support.bridges import PARTITIONS, applied_ts, assert_equal, kafka_arguments
from tests.support.command import Process
from tests.support.feeds import Feed

BYTES = 24 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few megabytes; skips where none can be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={BYTES}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """A file that takes all the room there is."""
    path = disk / "filled"
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"0" * 4096)
    return path


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_full_disk_ends_the_bridge_which_goes_on_with_room(
    target: str, kafka: Kafka, topic: Callable[..., str], tmp_path: Path, small_disk: Path
) -> None:
    """The folder of the query and of what Spark spills: exit 3, one line that says why, nothing lost."""
    name = topic(PARTITIONS)
    arguments = kafka_arguments("run", kafka.bootstrap_servers, name, target)
    places = ["--set", f"spark.spark.local.dir={small_disk}"]
    environment = {"TMPDIR": str(small_disk)}
    with Feed(kafka.bootstrap_servers, name, copies=False) as feed:
        feed.open_bank()
        feed.start()
        with Process(tmp_path, *arguments, *places, environment=environment) as process:
            process.wait_for(lambda: applied_ts(target) > 0, "a first transaction")
            filled = fill(small_disk)
            assert process.wait() == 3, process.end_of_log
            assert "Traceback" not in process.log, process.log
            assert errno.errorcode[errno.ENOSPC] in process.lines[-1] or "No space left" in process.lines[-1]
        filled.unlink()
        boundary = feed.finish()
        with Process(tmp_path, *arguments, *places, environment=environment) as process:
            process.wait_for(lambda: applied_ts(target) >= boundary, "the end")
            process.signal(signal.SIGTERM)
            assert process.wait(60) == 0, process.end_of_log
    assert_equal(target, feed.bank)
