"""The model checks with many more histories."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipeline import test_restart_model
from tests.pipeline.by_partitions import test_model, test_order_changes
from tests.support.models import MANY

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]


@MANY
@test_restart_model.HISTORIES
def test_restarts(**history: Any) -> None:
    """With boundaries."""
    test_restart_model.test_restart_after_any_crash_loses_and_repeats_nothing.hypothesis.inner_test(**history)


@MANY
@test_model.HISTORIES
def test_restarts_without_boundaries(**history: Any) -> None:
    """By the order of the partitions."""
    test_model.test_restart_after_any_crash_loses_and_repeats_nothing.hypothesis.inner_test(**history)


@MANY
@test_order_changes.HISTORIES
def test_changes_of_order(**history: Any) -> None:
    """Boundaries that begin or end to come."""
    test_order_changes.test_nothing_is_lost_or_doubled.hypothesis.inner_test(**history)
