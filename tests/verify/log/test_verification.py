"""Whole verifications against the log, of what the bridge wrote."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bridge.ddl.policy import ddl_rules
from bridge.errors import StoppedError
from bridge.events import Event
from tests.generated.verifying import verify_events
from tests.support.pipelines import run_all
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change
from tests.support.verify_servers import execute


def log_of(*steps: str | tuple[int | None, int | None]) -> Iterator[Event]:
    """Statements, and row changes of a table `t` with the column `id`."""
    for ts, step in enumerate(steps, 10):
        if isinstance(step, str):
            yield schema_change(ts, step)
        else:
            before, after = ((image,) if image is not None else None for image in step)
            yield row_change(ts, "t", ["id"], ["id"], before=before, after=after)
    yield boundary(900)


MADE = "CREATE TABLE t (id INT PRIMARY KEY)"


@pytest.mark.parametrize(
    "steps",
    [
        (MADE, "CREATE VIEW v AS SELECT * FROM t", "RENAME TABLE v TO w"),
        (MADE, "CREATE VIEW v AS SELECT * FROM t", "RENAME TABLE v TO w", "DROP VIEW w"),
        ("CREATE SEQUENCE s", "RENAME TABLE s TO q"),
        ("CREATE SEQUENCE s", "RENAME TABLE s TO q", "DROP SEQUENCE q"),
    ],
)
def test_what_has_no_rows_may_have_been_renamed(target: str, steps: tuple[str, ...]) -> None:
    """RENAME TABLE renames views and sequences too; they are no tables that must be there."""
    log = in_one_partition(list(log_of(*steps)))
    execute(target, "CREATE DATABASE m")
    run_all(target, log, ddl=ddl_rules(source="mariadb"))
    assert verify_events(target, log).is_equal


def test_a_renamed_table_must_be_there(target: str) -> None:
    """A view in its place holds no rows of its own."""
    log = in_one_partition(list(log_of(MADE, (None, 1), "RENAME TABLE t TO u")))
    execute(target, "CREATE DATABASE m")
    run_all(target, log)
    execute(target, "DROP TABLE m.u; CREATE VIEW m.u AS SELECT 1 AS id")
    [table] = verify_events(target, log).tables
    assert table.schema == ("the table is missing",)


def test_system_versioned_tables_are_compared(target: str) -> None:
    """By the rows that they hold now."""
    log = in_one_partition(list(log_of(f"{MADE} WITH SYSTEM VERSIONING", (None, 1), (None, 2), (1, None))))
    execute(target, "CREATE DATABASE m")
    run_all(target, log, ddl=ddl_rules(source="mariadb"))
    assert verify_events(target, log).is_equal
    execute(target, "DELETE FROM m.t")
    [table] = verify_events(target, log).tables
    assert table.missing == 1


def test_a_log_that_is_gone_proves_nothing(target: str) -> None:
    """Where no message is left of what is in the target, nothing is compared, which must not read as "equal"."""
    log = in_one_partition(list(log_of(MADE, (None, 1), (None, 2))))
    execute(target, "CREATE DATABASE m")
    run_all(target, log)
    assert verify_events(target, log).is_equal
    with pytest.raises(StoppedError, match="nothing can be compared") as raised:
        verify_events(target, log.slice(log.num_rows - 1), is_cut=True)
    assert "--against upstream" in raised.value.fix
