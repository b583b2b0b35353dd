"""Capture files as they should not be."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bridge.errors import UsageError
from bridge.sources import capture_files
from bridge.sources.capture_files import CaptureSource
from bridge.sources.source import Extent

if TYPE_CHECKING:
    pass

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
def test_what_is_no_message_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """By everything that reads the lines: nothing is left out in silence."""
    source = write(tmp_path, GOOD, GOOD | wrong)
    for read in (lambda: source.extents(), lambda: list(source.messages(None, None))):
        with pytest.raises(UsageError, match="is not a captured message"):
            read()


def test_base64_may_be_folded(tmp_path: Path) -> None:
    """As `base64` of a shell writes it."""
    source = write(tmp_path, GOOD | {"value": "e30+\nPz8="})
    assert source.extents().keys() == {("capture", 0)}
    assert [message.value for message in source.messages(None, None)] == [b"{}>??"]


def test_headers_with_the_ids_of_schemas(tmp_path: Path) -> None:
    """Say what otherwise stands before the value, as of a message in Kafka; others mean nothing."""
    of_value = {"apicurio.value.globalId": "AAAAAAAAAAk=", "trace": "not base64"}
    source = write(tmp_path, GOOD | {"value": "AgI=", "headers": of_value}, GOOD | {"offset": 4, "headers": ["x"]})
    values = [message.value for message in source.messages(None, None)]
    assert values[0] == bytes(8) + b"\t\2\2"
    assert values[1] == b"{}>??"


@pytest.mark.parametrize("size", [1, 7, 60, 61, 200, 1 << 20])
def test_pieces_hold_each_line_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int) -> None:
    """Wherever they are cut: in a line, at its end, or behind a line without one."""
    monkeypatch.setattr(capture_files, "_PIECE", size)
    lines = [GOOD | {"offset": offset, "value": "e30+Pz8=" if offset % 3 else None} for offset in range(20)]
    write(tmp_path, *lines)
    (tmp_path / "other.jsonl").write_text("\n" + json.dumps(GOOD | {"partition": 1}), encoding="utf-8")
    source = CaptureSource(str(tmp_path))
    assert source.extents() == {("capture", 0): Extent(0, 20), ("capture", 1): Extent(3, 4)}
    found = [
        (partition, offset)
        for read in source.everything({}).reads(2)
        for lot in read()
        for partition, offset in zip(lot.partition, lot.offset, strict=True)
    ]
    assert sorted(found) == [*((0, offset) for offset in range(20)), (1, 3)]


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_of_copies_one_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int) -> None:
    """Also where they would be in different pieces."""
    monkeypatch.setattr(capture_files, "_PIECE", size)
    source = write(tmp_path, GOOD, GOOD | {"offset": 4}, GOOD)
    source.extents()
    assert [list(lot.offset) for read in source.everything({}).reads(2) for lot in read()] == [[3, 4]]


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
