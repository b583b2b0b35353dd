"""What the command says and how it ends when something is wrong."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.support.captures import (
    Line,
    bank_below,
    canal,
    is_watermark,
    read_lines,
    with_value,
    write_lines,
)
from tests.support.command import Ended, bridge
from tests.support.golden import capture, differences, replay_arguments
from tests.support.pipelines import sql
from tests.system.test_until import assert_is

BAD_PARTITION = 1
URL = "mysql://root@127.0.0.1:1/"
"""Nothing answers there."""


@pytest.fixture(scope="module")
def bank(golden: Path) -> list[Line]:
    """The lines of the capture."""
    return read_lines(capture(golden, "canal-ext", "bank"))


def replay(path: Path, target: str, *more: str, protocol: str = "canal-json") -> Ended:
    """Replays a capture file or folder."""
    return bridge("replay", "--protocol", protocol, "--input", str(path), "--target", target, *more)


def assert_one_line(ended: Ended, code: int, *words: str) -> None:
    """An expected failure: its exit code, and one line of the command's own with the words."""
    assert ended.code == code, ended.err
    assert "Traceback" not in ended.err
    own = [line for line in ended.err.splitlines() if line.startswith("bridge: ")]
    assert len([line for line in own if not line.startswith("bridge: protocol ")]) == 1, ended.err
    assert ended.last_line.startswith("bridge: ")
    for word in words:
        assert word in ended.last_line


# --- messages


@pytest.fixture(scope="module")
def bad_line(bank: list[Line]) -> Line:
    """A row in the middle of a partition."""
    mine = [line for line in bank if line["partition"] == BAD_PARTITION]
    return next(line for line in mine[len(mine) // 2 :] if not is_watermark(line))


def frozen_at(bank: list[Line], bad_line: Line) -> int:
    """The last boundary of the partition before the message."""
    return max(
        canal(line)["_tidb"]["watermarkTs"]
        for line in bank
        if line["partition"] == BAD_PARTITION and line["offset"] < bad_line["offset"] and is_watermark(line)
    )


@pytest.mark.usefixtures("spark")
def test_an_undecodable_message_stops_the_bridge(
    target: str, golden: Path, bank: list[Line], bad_line: Line, tmp_path: Path
) -> None:
    """Exit 3; the line names position and reason; everything complete before it, and nothing else, is in the target.
    Once the message is fixed the same pipeline goes on.  A capture file is read whatever its name is."""
    lines = [with_value(line, b'{"data":') if line is bad_line else line for line in bank]
    path = write_lines(tmp_path / "a b#c[1]{2}*?.jsonl", lines)
    ended = replay(path, target, "--set", "stream.rows_per_transaction=700")
    assert_one_line(ended, 3, f"capture/{BAD_PARTITION}/{bad_line['offset']}", "is not JSON", "fix:")
    assert_is(target, bank_below(bank, frozen_at(bank, bad_line)))
    again = replay(path, target)
    assert (again.code, again.last_line) == (3, ended.last_line)
    write_lines(path, bank)
    assert replay(path, target).code == 0
    assert differences(target, golden, "bank") == []


def test_a_beginning_that_has_not_come(target: str, bank: list[Line], tmp_path: Path) -> None:
    """Everything that comes until then would count as in the target."""
    path = write_lines(tmp_path / "bank.jsonl", bank)
    assert_one_line(replay(path, target, "--from", "2200-01-01T00:00:00Z"), 2, "2200-01-01", "has not come yet")
    assert sql(target, "SHOW DATABASES LIKE '\\_bridge'") == []


# --- capture files


@pytest.mark.usefixtures("spark")
def test_the_files_of_a_folder_are_one_input(target: str, golden: Path, tmp_path: Path) -> None:
    """Partitions spread over files in any order, offsets held by both: each message counts once, as the rows of a
    table without a key would show."""
    lines = read_lines(capture(golden, "canal-ext", "keys"))
    middle = len(lines) // 2
    write_lines(tmp_path / "b.jsonl", lines[middle - 300 :])
    write_lines(tmp_path / "a.jsonl", [*reversed(lines[: middle + 300]), *lines[10:290]])
    (tmp_path / "notes.txt").write_text("no capture")
    ended = replay(tmp_path, target, "--json", "--timezone", "UTC", protocol="auto")
    assert ended.code == 0, ended.err
    assert differences(target, golden, "keys") == []
    assert json.loads(ended.out)["messages"] == len(lines)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("broken", "protocol"), [("{", "canal-json"), ('{"partition":0}', "auto")])
def test_a_broken_capture_line_is_named(
    target: str, bank: list[Line], tmp_path: Path, broken: str, protocol: str
) -> None:
    """Exit 2 before anything is written, and what a line looks like."""
    path = write_lines(tmp_path / "broken.jsonl", bank[:20])
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:5], broken, *lines[5:]]) + "\n")
    assert_one_line(replay(path, target, protocol=protocol), 2, str(path), "is not a captured message", '"partition":0')


@pytest.mark.usefixtures("spark")
def test_an_empty_capture_file_is_no_failure(target: str, tmp_path: Path) -> None:
    """Nothing to do: exit 0, or 4 with --until."""
    path = tmp_path / "empty.jsonl"
    for content in ("", "\n\n"):
        path.write_text(content)
        assert replay(path, target).code == 0
    assert replay(path, target, "--until", "470611876306747392").code == 4


# --- settings


def test_a_command_without_target_or_source_ends_with_2(target: str) -> None:
    """And says which flag to give."""
    assert_one_line(bridge("status"), 2, "--target")
    assert_one_line(bridge("replay", "--target", target), 2, "--bootstrap-servers")
    assert_one_line(bridge("replay", "--target", target, "--input", "/proc/self"), 2, "*.jsonl")


# --- target


@pytest.mark.parametrize("command", ["replay", "status", "reset"])
def test_an_unreachable_target_ends_with_3(golden: Path, command: str) -> None:
    """One line with the address, soon, without the password."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"mysql://root:geheim@127.0.0.1:{unused.getsockname()[1]}/"
        path = str(capture(golden, "canal-ext", "keys"))
        source = ["--protocol", "canal-json", "--input", path] if command == "replay" else []
        yes = ["--yes"] if command == "reset" else []
        ended = bridge(command, "--target", url, *source, *yes, "--set", "target.retry_seconds=0.3")
    assert_one_line(ended, 3, "root:***@127.0.0.1")
    assert "geheim" not in ended.err


def test_a_refused_login_ends_with_3(target: str, golden: Path) -> None:
    """One line that says where the password comes from, and does not say the password."""
    url = target.replace("root", "nobody:geheim")
    ended = replay(capture(golden, "canal-ext", "keys"), url)
    assert_one_line(ended, 3, "BRIDGE_TARGET_PASSWORD")
    assert "geheim" not in ended.err


def test_an_unknown_pipeline_ends_with_1(target: str) -> None:
    """On a target that knows no pipeline at all, and on one that knows others."""
    assert_one_line(bridge("status", "--target", target), 1, "'bridge'", "--name")
    sql(target, "CREATE DATABASE _bridge", "SELECT 1")
    assert_one_line(bridge("status", "--target", target, "--name", "x"), 1, "'x'")
    assert_one_line(bridge("reset", "--yes", "--target", target, "--name", "x"), 1, "'x'")


@pytest.mark.usefixtures("spark")
def test_a_reset_pipeline_begins_again(target: str, golden: Path) -> None:
    """`status` tells what was done; after `reset` the pipeline is unknown, and the other ones are not."""
    arguments = replay_arguments(golden, "canal-ext", "keys", target)
    assert bridge(*arguments).code == 0
    assert bridge(*arguments, "--name", "other", "--until", "1").code == 0
    status = bridge("status", "--json", "--target", target)
    document = json.loads(status.out)
    assert (status.code, document["running"], document["pending_schema_changes"]) == (0, False, [])
    assert document["schema_changes"] == {"done": 26}
    assert document["positions"]["capture"].keys() == {"0", "1", "2", "3"}
    assert str(document["applied_ts"]) in bridge("status", "--target", target).out
    assert bridge("reset", "--yes", "--target", target).code == 0
    assert bridge("status", "--target", target).code == 1
    assert bridge("status", "--target", target, "--name", "other").code == 0
    sql(target, "DROP DATABASE ks", "SELECT 1")
    assert bridge(*arguments).code == 0
    assert differences(target, golden, "keys") == []
