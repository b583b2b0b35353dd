"""The model checks with many more histories."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipeline import test_restart_model
from tests.pipeline.by_partitions import test_model, test_order_changes
from tests.support.models import MANY

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]


def without_hypothesis(test: Any) -> Any:
    """The body of a test that hypothesis calls."""
    return test.hypothesis.inner_test


@MANY
@test_restart_model.HISTORIES
def test_restarts(**history: Any) -> None:
    """With boundaries."""
    without_hypothesis(test_restart_model.test_restart_after_any_crash_loses_and_repeats_nothing)(**history)


@MANY
@test_model.HISTORIES
def test_restarts_without_boundaries(**history: Any) -> None:
    """By the order of the partitions."""
    without_hypothesis(test_model.test_restart_after_any_crash_loses_and_repeats_nothing)(**history)


@MANY
@test_order_changes.HISTORIES
def test_changes_of_order(**history: Any) -> None:
    """Boundaries that begin or end to come."""
    without_hypothesis(test_order_changes.test_nothing_is_lost_or_doubled)(**history)
