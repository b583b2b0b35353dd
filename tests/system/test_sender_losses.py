"""What the log of a start says of what the sender loses."""

from __future__ import annotations

import pytest

from tests.system.test_cases import CASES_OF_REPORTS, replayed

pytestmark = pytest.mark.usefixtures("spark")


def test_the_log_says_once_what_the_sender_loses(target: str) -> None:
    """Genuine messages of Debezium 3.3.0 with its defaults, which left out a TRUNCATE."""
    [case] = [one for one in CASES_OF_REPORTS if one.name == "debezium_3.3.0_defaults"]
    lines = [line for line in replayed(case, target).err.splitlines() if "sender_loses" in line]
    assert ["skipped.operations=none" in line for line in lines].count(True) == 1
    assert ["replace.null.with.default=false" in line for line in lines].count(True) == 1
    assert len(lines) == 3
