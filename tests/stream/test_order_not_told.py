"""What Canal-JSON without the TiDB extension cannot tell: which changes were one transaction."""

from __future__ import annotations

from pathlib import Path

from tests.stream.pipelines import decoded, run_all, sql
from tests.system.golden import capture, differences

SWAPPED = {"ks.pk_nc", "ks.two_uk"}
"""Tables whose rows swapped a key in one transaction, with updates that TiCDC did not split (output-raw-change-event):
2 became 3 and 3 became 2, which no order of one after the other can do."""


def test_swapped_keys(target: str, golden: Path) -> None:
    """Each partition's own order holds, so that all other tables end as upstream; and no row is one that the upstream
    never had."""
    run_all(target, decoded(capture(golden, "canal", "keys_raw"), "canal-json"))
    found = differences(target, golden, "keys_raw", "canal")
    assert {line.partition(":")[0] for line in found} == SWAPPED
    rows = set(sql(target, "SELECT id, v FROM ks.pk_nc"))
    assert {(10, 778), (6000, 1)} < rows <= {(10, 778), (6000, 1), (2, 3), (3, 22)}
