"""Capture files as they should not be."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bridge.errors import UsageError
from bridge.sources.capture_files import CaptureSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOD: dict[str, Any] = {"partition": 0, "offset": 3, "key": None, "value": "e30+Pz8="}
WRONG: dict[str, dict[str, Any]] = {
    "a partition below 0": {"partition": -1},
    "an offset below 0": {"offset": -1},
    "a value in the alphabet of URLs": {"value": "e30-Pz8="},
    "a value with a strange character": {"value": "e30+Pz!8="},
    "a key that is no base64": {"key": "ä=="},
}


def write(folder: Path, *lines: dict[str, Any]) -> CaptureSource:
    path = folder / "capture.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return CaptureSource(str(path))


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_what_is_no_message_is_refused(spark: SparkSession, tmp_path: Path, wrong: dict[str, Any]) -> None:
    """By everything that reads the lines: nothing is left out in silence."""
    source = write(tmp_path, GOOD, GOOD | wrong)
    for read in (lambda: source.extents(lambda: spark), lambda: list(source.messages(None, None))):
        with pytest.raises(UsageError, match="is not a captured message"):
            read()


def test_base64_may_be_folded(spark: SparkSession, tmp_path: Path) -> None:
    """As `base64` of a shell writes it."""
    source = write(tmp_path, GOOD | {"value": "e30+\nPz8="})
    assert source.extents(lambda: spark).keys() == {("capture", 0)}
    assert [message.value for message in source.messages(None, None)] == [b"{}>??"]


def test_what_is_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe would be waited for, and Spark would blame Kafka for what it may not read."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path in (tmp_path / "pipe.jsonl", tmp_path, Path("/dev/null")):
        with pytest.raises(UsageError, match="cannot be read: it is no file"):
            CaptureSource(str(path))
    denied = tmp_path / "denied" / "capture.jsonl"
    denied.parent.mkdir()
    denied.touch()
    monkeypatch.setattr(Path, "open", refuse)  # root may read everything
    with pytest.raises(UsageError, match=r"denied/capture\.jsonl cannot be read: Permission denied"):
        CaptureSource(str(denied.parent))


def refuse(path: Path, *_: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied", str(path))
