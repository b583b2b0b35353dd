"""Public bug reports as captures (tests/cases), by the command: what a pipeline without Spark has not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.pipeline.test_reported_cases import CASES, CASES_OF_REPORTS, in_any_order, rows_of
from tests.support.command import Ended, bridge

pytestmark = pytest.mark.usefixtures("spark")

BY_NAME = {case.name: case for case in CASES_OF_REPORTS}
IGNORING = ("--set", "ddl.ignore=drop primary key")
MYSQL = ("--set", "ddl.source=mysql-8")


def replayed(name: str, url: str, flags: Sequence[str]) -> Ended:
    """How the replay of a case ended."""
    return bridge(
        *("replay", "--input", str(CASES / f"{name}.jsonl"), "--protocol", BY_NAME[name].protocol),
        *("--target", url, "--timezone", "UTC", *flags),
    )


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("c49_truncate_dbz_noext", ()),  # whose order is found by a probe
        ("c11d_drop_pk_sent", IGNORING),
        ("g01_ghost_tables", (*MYSQL, "--filter", "shop.orders")),
        ("d17", MYSQL),  # two topics
    ],
)
def test_the_command_ends_alike(target: str, name: str, flags: Sequence[str]) -> None:
    """With what its flags say, and Spark between."""
    ended = replayed(name, target, flags)
    case = BY_NAME[name]
    right = case.right if ended.code == 0 or case.kept is None else case.kept
    assert ended.code in ((0, 3, 4) if case.kept is not None else (0,)), ended.err
    assert rows_of(target, right) == in_any_order(right)


def test_columns_tell_of_a_routed_table_too(target: str) -> None:
    """On which side of an online DROP COLUMN its rows are: their names are the target's, the statement's is not."""
    ended = replayed("c09_late_drop", target, (*MYSQL, "--route", "shop.* -> branch.*"))
    right = {query.replace("shop", "branch"): rows for query, rows in BY_NAME["c09_late_drop"].right.items()}
    assert ended.code == 0, ended.err
    assert rows_of(target, right) == in_any_order(right)


def test_the_log_says_once_what_the_sender_loses(target: str) -> None:
    """Genuine messages of Debezium 3.3.0 with its defaults, which left out a TRUNCATE."""
    told = ("--set", "debezium.time_precision_mode=adaptive_time_microseconds")
    ended = replayed("debezium_3.3.0_defaults", target, (*MYSQL, *told))
    lines = [line for line in ended.err.splitlines() if "sender_loses" in line]
    assert ["skipped.operations=none" in line for line in lines].count(True) == 1
    assert ["replace.null.with.default=false" in line for line in lines].count(True) == 1
    assert ["ALTER TABLE ... CHANGE" in line for line in lines].count(True) == 1
    assert len(lines) == 4
