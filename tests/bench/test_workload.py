"""The benchmark's own parts: what it sends is what it says."""

from __future__ import annotations

from collections import Counter

import pytest

from bridge.events import Kind
from bridge.protocols import DecodeOptions, decode_message, make_decoder
from tests.bench.encoders import ENCODERS, SENDERS, protocol_of
from tests.bench.large import SHAPES
from tests.bench.workload import BOUNDARY_EVERY, PARTITIONS, WORKLOADS, Upstream, messages

EVENTS = 5_000


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_transaction_changes_a_row_once(name: str) -> None:
    """TiCDC sends one change of a row for each transaction."""
    for transaction in Upstream(WORKLOADS[name]).transactions(EVENTS):
        keys = [(change.after or change.before or ())[0] for change in transaction.changes]
        assert len(keys) == len(set(keys)) <= 10


def test_sysbench_is_as_described() -> None:
    """60/30/10 inserts, updates and deletes, 3-10 rows a transaction, each row once in each."""
    transactions = list(Upstream(WORKLOADS["sysbench"]).transactions(EVENTS))
    sizes = Counter(len(transaction.changes) for transaction in transactions)
    kinds = Counter((c.before is None, c.after is None) for t in transactions for c in t.changes)
    total = sum(kinds.values())
    assert set(sizes) <= set(range(1, 11))
    assert kinds[True, False] / total == pytest.approx(0.6, abs=0.02)
    assert kinds[False, True] / total == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("sender", SENDERS)
def test_every_row_change_comes_once_with_its_boundaries(sender: str) -> None:
    """Every sender's messages decode to the upstream's row changes, in 4 partitions, with a boundary in each after
    every 1,000 transactions where the format has them."""
    upstream, again = Upstream(WORKLOADS["hot"]), Upstream(WORKLOADS["hot"])
    decoder = make_decoder(protocol_of(sender), DecodeOptions("UTC", ckafka_binary="base64"))
    kinds: Counter[Kind] = Counter()
    for message in messages(upstream, SENDERS[sender](PARTITIONS), EVENTS):
        kinds.update(event.kind for event in decode_message(decoder, message.key, message.value))
    transactions = list(again.transactions(EVENTS))
    has_boundaries = sender in {"canal-json", "canal-blanks", "open-protocol", "debezium"}
    boundaries = 0 if not has_boundaries else PARTITIONS * (len(transactions) // BOUNDARY_EVERY + 1)
    assert kinds.pop(Kind.BOUNDARY, 0) == boundaries
    assert kinds.total() == sum(len(transaction.changes) for transaction in transactions)
    assert set(kinds) == {Kind.INSERT, Kind.UPDATE, Kind.DELETE}
    assert upstream.fingerprint() == again.fingerprint()
    assert len(upstream.numbers) <= WORKLOADS["hot"].hot_keys


@pytest.mark.parametrize(("shape", "largest", "boundaries"), [("backlog", 10, 1), ("transaction", 3000, 2)])
def test_what_no_memory_should_hold(shape: str, largest: int, boundaries: int) -> None:
    """A backlog has ordinary transactions and one boundary, at its end; a large transaction changes each row once."""
    upstream, decoder = Upstream(WORKLOADS["sysbench"]), make_decoder("canal-json", DecodeOptions("UTC"))
    found = SHAPES[shape](upstream, ENCODERS["canal-json"](1), 3000)
    events = [event for message in found for event in decode_message(decoder, message.key, message.value)]
    sizes = Counter(event.commit_ts for event in events if event.kind is not Kind.BOUNDARY)
    assert max(sizes.values()) == largest
    assert [event.kind for event in events].count(Kind.BOUNDARY) == boundaries
    assert events[-1].kind is Kind.BOUNDARY
    assert events[-1].commit_ts > max(sizes)
