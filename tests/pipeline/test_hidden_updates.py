"""Open Protocol without old values: an update of a table without a key is written as a second row, and that is said."""

from __future__ import annotations

import pytest

from bridge.commands.check.protocol import Decoded, judge_old_values
from bridge.events import Event
from bridge.model import PartitionId
from tests.support.pipelines import run_all, sql
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change

INSERT = row_change(10, "t", ["a", "b"], [], after=[1, 1])
HIDDEN = row_change(11, "t", ["a", "b"], [], after=[1, 2])
UPDATE = row_change(11, "t", ["a", "b"], [], before=[1, 1], after=[1, 2])
OF_ANOTHER = row_change(12, "k", ["a"], ["a"], before=[1], after=[1])
KEYED = row_change(10, "k", ["a"], ["a"], after=[1])
CASES: dict[str, tuple[str, list[Event], bool]] = {
    "an update that looks like an insert": ("open-protocol", [INSERT, HIDDEN], True),
    "an update": ("open-protocol", [INSERT, UPDATE], False),
    "an update of another table": ("open-protocol", [INSERT, KEYED, OF_ANOTHER], False),
    "no table without a key": ("open-protocol", [KEYED], False),
    "another format": ("canal-json", [INSERT, HIDDEN], False),
}
"""The format, the messages, and whether `run` and `check` warn."""


@pytest.mark.parametrize("case", CASES)
def test_it_is_said(target: str, capsys: pytest.CaptureFixture[str], case: str) -> None:
    """By `run` once for each table, and by `check`; not where any update shows that the changefeed sends old values."""
    protocol, changes, is_warned = CASES[case]
    made = [schema_change(5, "CREATE TABLE t (a INT, b INT)"), schema_change(6, "CREATE TABLE k (a INT PRIMARY KEY)")]
    again = [change._replace(commit_ts=21) for change in changes if change is INSERT]
    events = in_one_partition([*made, *changes, boundary(20), *again, boundary(30)])
    sql(target, "CREATE DATABASE m")
    run_all(target, events, protocol=protocol)
    warned = [line for line in capsys.readouterr().out.splitlines() if "updates_may_be_hidden" in line]
    assert len(warned) == is_warned
    where: PartitionId = ("cdc", 0)
    judged = list(judge_old_values(Decoded(protocol, {where: changes}, {}, is_mysql_born=False)))
    assert [finding.check for finding in judged] == ["old values"] * is_warned
