"""`--until`: the target exactly as the upstream was below a commit_ts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridge.tso import tso_time
from tests.support.captures import (
    BankState,
    Line,
    bank_below,
    canal,
    commit_ts,
    encoded,
    is_watermark,
    read_lines,
    row,
    watermark,
    write_lines,
)
from tests.support.command import Ended, bridge
from tests.support.golden import Reader, capture, differences, replay_arguments
from tests.support.pipelines import decoded, run_all, sql


@pytest.fixture(scope="module")
def bank(golden: Path) -> list[Line]:
    """The lines of the capture."""
    return read_lines(capture(golden, "canal-ext", "bank"))


def assert_is(url: str, state: BankState) -> None:
    """Compares the target's tables with the upstream's state."""
    reader = Reader(url)
    try:
        found = {name for (name,) in reader.query("SELECT table_name FROM information_schema.tables"
                                                  " WHERE table_schema = 'bank'")}  # fmt: skip
        assert found == state.tables.keys()
        for table in state.tables:
            assert reader.query(f"SELECT * FROM bank.{table} ORDER BY id") == state.text_rows(table)
    finally:
        reader.close()


def moments(lines: list[Line]) -> list[int]:
    """Commit ts to stop at, ascending: at the first schema change, at, below and above transactions and ALTERs."""
    changes = [line for line in lines if not is_watermark(line)]
    rows = sorted({commit_ts(line) for line in changes if not canal(line)["isDdl"]})
    altered = sorted(commit_ts(line) for line in changes if "ADD COLUMN" in canal(line)["sql"])
    watermark = sorted(canal(line)["_tidb"]["watermarkTs"] for line in lines if is_watermark(line))
    first = min(map(commit_ts, changes))
    return sorted(
        {
            first, rows[0], rows[0] + 1, rows[len(rows) // 2] + 1,
            altered[0], altered[0] + 1, watermark[len(watermark) // 2], rows[-1],
        }
    )  # fmt: skip


@pytest.mark.server
def test_each_until_is_a_state_of_the_upstream(target: str, golden: Path, bank: list[Line]) -> None:
    """One pipeline, moved from one moment to the next; at last without an end."""
    events = decoded(capture(golden, "canal-ext", "bank"), "canal-json")
    for ts in moments(bank):
        run_all(target, events, until=ts)
        assert_is(target, bank_below(bank, ts))
        assert sql(target, "SELECT applied_ts FROM _bridge.progress") == [(ts,)]
    run_all(target, events)
    assert differences(target, golden, "bank") == []


@pytest.mark.usefixtures("spark")
def test_until_in_the_command(target: str, golden: Path, bank: list[Line]) -> None:
    """Exit 0, the same again too.  The target cannot go back: it is not as the upstream was below an earlier --until,
    and nobody is told that it is.  Exit 4 beyond the input: everything complete is in the target all the same, and a
    line says that it was not reached."""

    def until(ts: int) -> Ended:
        return bridge(*replay_arguments(golden, "canal-ext", "bank", target, "--until", str(ts)))

    middle = moments(bank)[5]
    for _ in range(2):
        ended = until(middle)
        assert ended.code == 0, ended.err
        assert_is(target, bank_below(bank, middle))
    ended = until(middle - 1)
    assert (ended.code, str(middle) in ended.last_line, "cannot go back" in ended.last_line) == (2, True, True)
    beyond = max(canal(line)["_tidb"]["watermarkTs"] for line in bank if is_watermark(line)) + 1
    ended = until(beyond)
    assert ended.code == 4
    assert f"--until {beyond}" in ended.last_line
    assert "was not reached" in ended.last_line
    assert differences(target, golden, "bank") == []


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("driver_rows", [pytest.param(500_000, marks=pytest.mark.soak), 0])
def test_a_fresh_pipeline_ends_where_until_says(target: str, golden: Path, bank: list[Line], driver_rows: int) -> None:
    """In one go, in small transactions, on driver or executors; the rows above it are reported as waiting.  A time
    means the first commit_ts of its millisecond."""
    ts = (moments(bank)[4] >> 18) << 18
    more = ("--set", f"stream.driver_rows={driver_rows}", "--set", "stream.rows_per_transaction=800")
    ended = bridge(*replay_arguments(golden, "canal-ext", "bank", target, "--until", tso_time(ts), *more))
    assert ended.code == 0, ended.err
    assert_is(target, bank_below(bank, ts))
    assert "lie at or above the last boundary, or above --until, and wait for it" in ended.out


@pytest.mark.usefixtures("spark")
def test_a_rest_above_the_last_boundary_is_reported(target: str, bank: list[Line], tmp_path: Path) -> None:
    """Changes at or above the lowest last boundary wait, are counted, and are no failure."""
    cut = [line for line in bank if line["offset"] < 500 or (line["partition"] == 2 and not is_watermark(line))]
    watermarks = [(line["partition"], canal(line)["_tidb"]["watermarkTs"]) for line in cut if is_watermark(line)]
    boundary = min(max(ts for where, ts in watermarks if where == partition) for partition in range(4))
    path = write_lines(tmp_path / "cut.jsonl", cut)
    ended = bridge("replay", "--protocol", "canal-json", "--input", str(path), "--target", target)
    assert ended.code == 0, ended.err
    rest = sum(not is_watermark(line) and commit_ts(line) >= boundary and not canal(line)["isDdl"] for line in cut)
    assert rest > 0
    assert f"{rest:,} row changes lie at or above the last boundary" in ended.out
    assert_is(target, bank_below(cut, boundary))


@pytest.mark.usefixtures("spark")
def test_what_was_left_out_is_not_read_again(target: str, tmp_path: Path) -> None:
    """A start with another filter ends with 2 and says how to go on; with the flag it goes on, from what comes then."""
    sql(target, "CREATE DATABASE m", *(f"CREATE TABLE m.{name} (id INT PRIMARY KEY)" for name in "tu"))

    def replay(messages: list[dict[str, object]], *flags: str) -> tuple[int, str]:
        lines = [
            {"partition": 0, "offset": at, "timestamp": 0, "key": None, "value": encoded(json.dumps(one).encode())}
            for at, one in enumerate(messages)
        ]
        write_lines(tmp_path / "all.jsonl", lines)
        given = ("--input", str(tmp_path), "--protocol", "canal-json", "--target", target)
        ended = bridge("replay", *given, *flags)
        return ended.code, ended.last_line

    early = [{**row(5, 1), "table": "t"}, {**row(6, 1), "table": "u"}, watermark(10)]
    late = [*early, {**row(15, 2), "table": "t"}, {**row(16, 2), "table": "u"}, watermark(20)]
    assert replay(early, "--filter", "m.t")[0] == 0
    code, said = replay(late)
    assert (code, "the pipeline ran with other filter; at pipeline bridge, applied ts 10" in said) == (2, True), said
    assert replay(late, "--accept-change")[0] == 0
    assert sql(target, "SELECT id FROM m.t ORDER BY id") == [(1,), (2,)]
    assert sql(target, "SELECT id FROM m.u") == [(2,)]
