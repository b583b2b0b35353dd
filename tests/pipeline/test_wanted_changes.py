"""Which schema changes a filter lets through to the policy."""

from __future__ import annotations

import pytest

from bridge.filters.table_filter import TableFilter
from bridge.model import SchemaChange
from bridge.pipeline.control_events import is_wanted

ORDERS = TableFilter(("shop.orders",))
WANTED = [
    ("RENAME TABLE orders TO _orders_del, _orders_gho TO orders", "shop", True),
    ("RENAME TABLE `shop`.`_orders_gho` TO `shop`.`orders`", "", True),
    ("DROP TABLE other.x, orders", "other", True),
    ("DROP TABLE other.x, shop.y", "other", False),
    ("ALTER TABLE orders ADD x INT", "", True),
    ("ALTER TABLE y ADD x INT", "", False),
    ("RENAME TABLE orders TO other.x", "other", True),
    ("CREATE TABLE _orders_gho LIKE orders", "shop", False),
    ("OPTIMISE orders IN shop", "shop", True),
    ("OPTIMISE shop.orders", "other", True),
    ("OPTIMISE x", "shop", False),
    ("OPTIMISE orders", "", True),
    ("ALTER TABLE `shop", "shop", True),
    ("ALTER TABLE `shop", "other", False),
]


@pytest.mark.parametrize(("text", "schema", "expected"), WANTED)
def test_what_may_lie_half_inside_of_the_filter_is_wanted(text: str, schema: str, expected: bool) -> None:
    """So that it is recorded; what lies outside is passed over."""
    assert is_wanted(SchemaChange(5, schema, "", text, "t/0/1"), ORDERS, set()) is expected
