"""Genuine captures through the real command into a real MariaDB."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.captures import canal, commit_ts, read_lines, text
from tests.support.command import Ended, bridge
from tests.support.golden import (
    CUT_ROWS,
    PROTOCOLS,
    Reader,
    capture,
    comparable,
    differences,
    expected_tables,
    replay_arguments,
)
from tests.support.pipelines import admin, contents, sql

SCRIPTS = ("all_types", "all_types_tz8", "keys", "keys_raw", "keys_tabledisp", "bank")
KEYS = tuple(script for script in SCRIPTS if script.startswith("keys"))
BANKS = ("canal-ext", "canal", "open", "debezium-ext", "debezium-noschema-ext")
NOT_CAPTURED = {("open-delete-handle", script) for script in KEYS}
"""TiCDC's encoder fails at a table without a key."""
KEYLESS_DELETES = [("canal-delete-handle", script) for script in KEYS]
"""Hold deletes without any column."""
ROWS_CUT = {(variant, script) for variant in CUT_ROWS for script in ("all_types", "all_types_tz8")}
"""tests/system/test_cut_rows.py replays them; the other scripts have no rows that are too large."""
SWAPS = ("canal", "keys_raw")
"""Holds rows that swap a key in one transaction, which nothing marks."""
CASES = sorted(
    {(v, s) for v in (*PROTOCOLS, *CUT_ROWS) for s in SCRIPTS if s != "bank" or v in BANKS}
    - NOT_CAPTURED - set(KEYLESS_DELETES) - ROWS_CUT - {SWAPS}
)  # fmt: skip
IN_SUITE = {
    *(("canal-ext", "keys_raw"), ("canal", "bank"), ("debezium-ext", "all_types")),
}
"""What is replayed each time: a script of each kind, and no boundaries.  Others decode to the same events
(tests/protocols/test_golden_messages.py), and a pipeline without Spark applies them
(tests/mysql/schema_changes/test_golden_schema_changes.py), or a topic that goes on (test_upgrades.py), or rows that
were cut to their key (test_cut_rows.py, in another zone); they are replayed by name (-m soak)."""
UNCOVERED = {"ks.nokey", "ks.uk_null", "ks.ci"}
"""Tables without a key, and one with a key that was written in two ways."""
REFUSED = "INVISIBLE"
"""Stands in the statement of `ddl` that a policy refuses here."""
POLICY = ("--set", "ddl.refuse=alter table index visibility")

pytestmark = pytest.mark.usefixtures("spark")


def found(ended: Ended) -> set[tuple[Any, ...]]:
    """(table, finding, key, differing columns) of every row in the report, and (table, words) of schemas."""
    said: set[tuple[Any, ...]] = set()
    for table in json.loads(ended.out)["tables"]:
        said |= {(table["table"], words) for words in table["schema"]}
        for row in table["first_rows"]:
            columns = [c["column"] for c in row["columns"]] if row["finding"] == "different" else []
            said.add((table["table"], row["finding"], *row["key"].values(), *columns))
    return said


def everything(url: str) -> tuple[Any, ...]:
    """All tables with their rows, and what the bridge says of its schema changes and progress, to the millisecond."""
    with admin(url) as session:
        changes = session.rows("SELECT * FROM _bridge.schema_changes ORDER BY name, commit_ts, statement_hash")
        progress = session.rows("SELECT name, applied_ts, positions, pending FROM _bridge.progress")
        return contents(session), changes, progress


@pytest.mark.parametrize(
    ("variant", "script"), [case if case in IN_SUITE else pytest.param(*case, marks=pytest.mark.soak) for case in CASES]
)
def test_a_replay_ends_at_the_upstreams_state(target: str, golden: Path, variant: str, script: str) -> None:
    """Tables and rows are the upstream's at its end, and verify finds each table equal, and covers it where no column
    changed."""
    arguments = replay_arguments(golden, variant, script, target)
    ended = bridge(*arguments)
    assert ended.code == 0, ended.err
    assert differences(target, golden, script, variant) == []
    assert_verified(arguments, target, set() if script == "bank" else UNCOVERED)


def assert_verified(arguments: list[str], target: str, uncovered: set[str]) -> None:
    """What the bridge itself has written is equal, table by table.  uncovered: of which tables rows may be, none for
    any."""
    ended = bridge("verify", *arguments[1:], "--json")
    assert (ended.code, found(ended)) == (0, set()), ended.err
    tables = json.loads(ended.out)["tables"]
    counted = {t["table"]: t["rows"] + t["not_covered"] for t in tables}
    assert counted == {name: sql(target, f"SELECT COUNT(*) FROM {name}")[0][0] for name in counted}
    assert sum(counted.values()) > 10
    assert not uncovered or {t["table"] for t in tables if t["not_covered"]} <= uncovered


def test_every_capture_is_replayed(golden: Path) -> None:
    """No variant, and of these scripts none, is left out."""
    found = {(path.parent.name, path.stem) for path in golden.glob("*/*.jsonl") if path.stem in SCRIPTS}
    assert found == {*CASES, *KEYLESS_DELETES, *ROWS_CUT, SWAPS}


@pytest.mark.parametrize(
    ("variant", "script"),
    [KEYLESS_DELETES[0], *(pytest.param(*case, marks=pytest.mark.soak) for case in KEYLESS_DELETES[1:])],
)
def test_deletes_of_rows_without_a_key(target: str, golden: Path, variant: str, script: str) -> None:
    """delete-only-output-handle-key-columns leaves nothing of a row without a key: the bridge stops there and says what
    to do, with a source too, since nothing tells which row to read.  Put aside they are counted, and everything else
    ends as upstream; such deletes are all that is missing, and no retry guesses them."""
    arguments = replay_arguments(golden, variant, script, target)
    for more in ((), ("--source", target)):
        refused = bridge(*arguments, *more)
        assert refused.code == 3
        for words in ("a row without columns", "switch delete-only-output-handle-key-columns off", "capture/0/"):
            assert words in refused.last_line
    ended = bridge(*arguments, "--on-bad-message", "quarantine")
    assert ended.code == 4, ended.err
    unusable = [line for line in read_lines(capture(golden, variant, script)) if '"data":[{}]' in text(line)]
    assert f"{len(unusable)} messages or rows were quarantined" in ended.out
    _assert_only_deletes_are_missing(target, golden, variant, script, Counter(canal(u)["table"] for u in unusable))
    retried = bridge("quarantine", "retry", "--all", "--target", target, "--timezone", "UTC")
    assert f"0 done, {len(unusable)} left" in retried.out


def _assert_only_deletes_are_missing(
    target: str, golden: Path, variant: str, script: str, deletes: Mapping[str, int]
) -> None:
    """Beyond the upstream's rows the target has as many as were not deleted."""
    assert {line.partition(":")[0] for line in differences(target, golden, script, variant)} == {
        f"ks.{name}" for name in deletes
    }
    reader = Reader(target)
    for table in expected_tables(golden, script):
        rows, expected = Counter(reader.rows(table)), Counter(comparable(table, table.rows))
        assert expected <= rows
        assert (rows - expected).total() == deletes.get(table.table, 0)
    reader.close()


def test_swapped_keys(target: str, golden: Path) -> None:
    """Without the extension nothing tells which changes were one transaction.  2 became 3 and 3 became 2, with updates
    that TiCDC did not split (output-raw-change-event): no order of one after the other can do that, and a row is lost.
    Each partition's own order holds, so that all other tables end as upstream, and verify finds what was written, but
    for rows whose key went from one partition to another; and no row is one that the upstream never had."""
    arguments = replay_arguments(golden, *SWAPS, target)
    ended = bridge(*arguments)
    assert ended.code == 0, ended.err
    different = differences(target, golden, SWAPS[1], SWAPS[0])
    assert {line.partition(":")[0] for line in different} == {"ks.pk_nc", "ks.two_uk"}
    assert_verified(arguments, target, UNCOVERED | {"ks.pk_nc", "ks.two_uk", "ks.uk_nn"})
    rows = set(sql(target, "SELECT id, v FROM ks.pk_nc"))
    assert {(10, 778), (6000, 1)} < rows <= {(10, 778), (6000, 1), (2, 3), (3, 22)}


@pytest.mark.parametrize(
    ("variant", "script"),
    [
        pytest.param("canal-ext", "keys_raw", marks=pytest.mark.soak),
        pytest.param("open", "bank", marks=pytest.mark.soak),
        ("debezium-noschema-ext", "keys"),
    ],
)
def test_executors_give_what_the_driver_gives(target: str, golden: Path, variant: str, script: str) -> None:
    """Row changes that never come to the driver end in the same tables; tests/system/test_until.py has the bank."""
    ended = bridge(*replay_arguments(golden, variant, script, target, "--set", "stream.driver_rows=0"))
    assert ended.code == 0, ended.err
    assert differences(target, golden, script, variant) == []


def test_a_second_replay_changes_nothing(target: str, golden: Path) -> None:
    """What is in the target is not applied again; no statement runs twice; exit 0.  Nor does another pipeline onto the
    same tables: identical objects count as created, and rows that are ahead of the log come right."""
    arguments = replay_arguments(golden, "canal-ext", "bank", target)
    assert bridge(*arguments).code == 0
    before = everything(target)
    again = bridge(*arguments)
    assert again.code == 0, again.err
    assert "applied 0 row changes and 0 schema changes" in again.out
    assert everything(target) == before
    again = bridge(*arguments, "--name", "other")
    assert again.code == 0, again.err
    assert differences(target, golden, "bank") == []


def test_a_refused_schema_change_stops_the_bridge(target: str, golden: Path) -> None:
    """Exit 3, one line with the statement, the reason and the position; a second run stops the same way and repeats
    nothing.  Every schema change below it is done, in the upstream's order, nothing above; it is the first of those
    still to run."""
    arguments = replay_arguments(golden, "canal-ext", "ddl", target, *POLICY)
    ended = bridge(*arguments)
    assert ended.code == 3
    for words in (
        "ALTER TABLE `t1` ALTER INDEX `idx_val2` INVISIBLE",
        "the settings refuse alter table index visibility (ddl.refuse)",
    ):
        assert words in ended.last_line
    lines = read_lines(capture(golden, "canal-ext", "ddl"))
    copies = [line for line in lines if REFUSED in text(line)]
    assert any(f"at capture/{one['partition']}/{one['offset']}, schema 'app'" in ended.last_line for one in copies)
    assert "Traceback" not in ended.err
    state = everything(target)
    again = bridge(*arguments)
    assert (again.code, again.last_line) == (3, ended.last_line)
    assert _without_refused(everything(target)) == _without_refused(state)
    refused = commit_ts(copies[0])
    below = [commit_ts(line) for line in lines if '"isDdl":true' in text(line) and commit_ts(line) < refused]
    done = sql(
        target, "SELECT commit_ts FROM _bridge.schema_changes WHERE state = 'done' ORDER BY finished_at, commit_ts"
    )
    assert [ts for (ts,) in done] == sorted(below)
    [(applied_ts, pending)] = sql(target, "SELECT applied_ts, pending FROM _bridge.progress")
    held = [change["commit_ts"] for change in json.loads(pending)]
    assert held[0] == refused
    assert applied_ts == held[-1] + 1
    rows = [commit_ts(line) for line in lines if '"isDdl":false' in text(line) and "WATERMARK" not in text(line)]
    assert not any(refused < ts < applied_ts for ts in rows)


def test_a_held_schema_change_ends_a_replay_with_4(target: str, golden: Path) -> None:
    """What the target has nothing like waits for the operator: exit 4, with what to do; `bridge ddl` releases it and
    the next replay goes on behind it."""
    arguments = replay_arguments(golden, "canal-ext", "ddl", target)
    ended = bridge(*arguments)
    assert ended.code == 4
    assert "cannot bring a dropped table back" in ended.last_line
    assert "RECOVER TABLE `rec`" in ended.err
    [entry] = json.loads(bridge("ddl", "list", "--open", "--json", "--target", target).out)
    assert (entry["state"], entry["statement"]) == ("held", "RECOVER TABLE `rec`")
    assert f"held            {entry['id']}" in bridge("status", "--target", target).out
    fix = ("ddl", "replace", entry["id"], "CREATE TABLE rec (id INT PRIMARY KEY)", "--target", target)
    assert bridge(*fix).code == 0
    again = bridge(*arguments)
    assert again.code == 4
    assert "FLASHBACK TABLE `rec` TO `rec_back`" in again.err


def _without_refused(state: tuple[Any, ...]) -> tuple[Any, ...]:
    tables, changes, progress = state
    return tables, [change for change in changes if "refused" not in change], progress
