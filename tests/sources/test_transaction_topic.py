"""Which of the topics is that of Debezium's transactions."""

from __future__ import annotations

import pytest

from bridge.errors import UsageError
from bridge.model import PartitionId
from bridge.protocols import DecodeOptions
from bridge.sources.boundary_probe import transaction_topic
from tests.support.debezium_wire import CUSTOMER, native
from tests.support.wire import compact

MARK = compact({"status": "BEGIN", "id": "1", "event_count": None, "data_collections": None, "ts_ms": 1})
ROW = native("c", CUSTOMER)


def found(
    partitions: list[str | PartitionId], heads: dict[str, bytes], protocol: str = "debezium"
) -> PartitionId | None:
    """What is found among topics, of which some hold a first message."""
    ids = [one if isinstance(one, tuple) else (one, 0) for one in partitions]
    return transaction_topic(
        protocol,
        DecodeOptions(None, transactions=True),
        ids,
        lambda: [(where, [(None, heads[where[0]])]) for where in ids if where[0] in heads],
    )


@pytest.mark.parametrize(
    ("topics", "heads", "right"),
    [
        (["p", "p.transaction", "p.d.t"], {"p.transaction": MARK}, "p.transaction"),
        (["p", "p.transaction", "p.d.t"], {}, "p.transaction"),
        (["p.d.t", "p.d.transaction"], {"p.d.transaction": ROW}, None),
        (["p.d.t", "p.d.transaction"], {}, None),
        (
            ["p.transaction", "p.d.t", "p.d.transaction"],
            {"p.transaction": MARK, "p.d.transaction": ROW},
            "p.transaction",
        ),
        (["p", "p.d.t"], {}, None),
        (["p.transaction"], {}, None),
        (["p.transaction"], {"p.transaction": MARK}, "p.transaction"),
        (["routed", "p.transaction"], {"p.transaction": MARK}, "p.transaction"),
    ],
)
def test_it_is_known_by_its_first_message_or_its_name(
    topics: list[str], heads: dict[str, bytes], right: str | None
) -> None:
    """A table may be called `transaction` too."""
    assert found([*topics], heads) == (None if right is None else (right, 0))


def test_other_protocols_have_none() -> None:
    """Whatever their topics are called."""
    assert found(["p", "p.transaction"], {}, "canal-json") is None


@pytest.mark.parametrize(
    "partitions",
    [["p.transaction", ("p.transaction", 1)], ["p.transaction", "q.transaction"]],
    ids=["two partitions", "two"],
)
def test_one_partition_is_the_order(partitions: list[str | PartitionId]) -> None:
    """Of one connector."""
    with pytest.raises(UsageError):
        found(partitions, {"p.transaction": MARK, "q.transaction": MARK})
