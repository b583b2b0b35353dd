"""Which rows count as sent again from before a schema change that ran."""

from __future__ import annotations

import numpy as np
import pytest

from bridge.filters.routes import Routes
from bridge.model import SchemaChange
from bridge.pipeline.by_partitions.repeated_rows import UNTOLD, RepeatedRows
from bridge.tso import ms_tso
from tests.support.upstreams import in_one_partition, row_change

EARLY, MOVED, LATE = (ms_tso(1_000_000 + ms) for ms in (0, 5_000, 9_000))


@pytest.mark.parametrize(("table", "is_repeated"), [("orders", True), ("orders_2024", True), ("other", False)])
def test_of_a_statement_that_does_not_tell_its_databases(table: str, is_repeated: bool) -> None:
    """The operator ran it with the databases of all names; the journal has it as it came."""
    text = "RENAME TABLE orders TO archive.orders_2024"
    ran = SchemaChange(MOVED, "archive", "", text, "cdc/0/5")
    repeated = RepeatedRows(lambda low, high: [ran] if low <= MOVED < high else [], Routes())
    schema = "archive" if table == "orders_2024" else "shop"
    rows = in_one_partition([row_change(EARLY, table, ["id"], ["id"], after=[1], schema=schema)])
    found = repeated.among(rows, np.array([EARLY]), lambda: np.array([LATE]), lambda: np.array([UNTOLD]))
    assert (found is not None and bool(found.all())) == is_repeated
