"""Which schema change without a commit ts is one that ran already, by what its message tells."""

from __future__ import annotations

import pytest

from bridge.model import SchemaChange
from bridge.pipeline.by_partitions.late_changes import second_run
from bridge.protocols.values.event_time import place_in_binlog, place_in_gtid_set, place_of_sending
from bridge.tso import ms_tso

ADD, TRUNCATE, CREATE = "ALTER TABLE t ADD c INT", "TRUNCATE TABLE t", "CREATE TABLE t (id INT)"
SWAP = "RENAME TABLE t TO tmp, u TO t, tmp TO u"
EXCHANGE = "ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE u"
GTID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
OTHER = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
SECOND, MILLIS = 5000, 5137


def binlog(position: int, server: int = 1, gtid: str | None = None) -> str:
    return place_in_binlog("up", "binlog.000003", position, server, gtid) or ""


def gtids(text: str) -> str:
    return place_in_gtid_set(text) or ""


def sent(batch: int, ms: int = 0) -> str:
    return place_of_sending(1_790_000_000_000 + ms, batch) or ""


def change(text: str, ms: int = SECOND, place: str = "", position: str = "x/0/9") -> SchemaChange:
    return SchemaChange(ms_tso(ms), "m", "t", text, position, place)


RUNS, AGAIN, PASSED_OVER, HELD = "it runs", "it runs as another one", "passed over", "held"
RULES = [
    ("the first one", change(ADD), [], 0, RUNS),
    ("another statement of that time", change(ADD), [change(TRUNCATE)], 0, RUNS),
    ("the same place", change(ADD, place=binlog(7)), [change(ADD, place=binlog(7))], 0, PASSED_OVER),
    ("another place", change(TRUNCATE, place=binlog(9)), [change(TRUNCATE, place=binlog(7))], 0, AGAIN),
    ("in one batch", change(CREATE, place=sent(4)), [change(CREATE, place=sent(4, ms=5))], SECOND + 9000, AGAIN),
    ("in the next batch", change(CREATE, place=sent(5)), [change(CREATE, place=sent(4))], SECOND + 9000, PASSED_OVER),
    ("in a later batch", change(TRUNCATE, place=sent(5)), [change(TRUNCATE, place=sent(4))], SECOND + 9000, HELD),
    (
        "in a later batch, with something in between",
        change(CREATE, place=sent(9)),
        [change(CREATE, place=sent(4)), change("DROP TABLE t", place=sent(5))],
        SECOND + 9000,
        HELD,
    ),
    (
        "in a lower batch after a restart",
        change(TRUNCATE, place=sent(2, ms=5000)),
        [change(TRUNCATE, place=sent(4))],
        SECOND + 9000,
        HELD,
    ),
    (
        "a DROP after a restart, with a CREATE in between",
        change("DROP TABLE t", place=sent(2, ms=5000)),
        [change("DROP TABLE t", place=sent(4)), change(CREATE, place=sent(5))],
        SECOND + 9000,
        HELD,
    ),
    (
        "a DROP after a restart, with nothing in between",
        change("DROP TABLE t", place=sent(2, ms=5000)),
        [change("DROP TABLE t", place=sent(4))],
        SECOND + 9000,
        PASSED_OVER,
    ),
    (
        "in a batch of that number after a restart",
        change(CREATE, place=sent(4, ms=5000)),
        [change(CREATE, place=sent(4))],
        SECOND + 9000,
        PASSED_OVER,
    ),
    ("another place of a swap, too", change(SWAP, place=binlog(9)), [change(SWAP, place=binlog(7))], 0, AGAIN),
    (
        "one GTID, on the next server as well",
        change(SWAP, place=binlog(4, 2, f"{GTID}:8")),
        [change(SWAP, place=binlog(900, 1, f"{GTID}:8"))],
        0,
        PASSED_OVER,
    ),
    (
        "another GTID at the same place of another server",
        change(TRUNCATE, place=binlog(7, 2, f"{GTID}:9")),
        [change(TRUNCATE, place=binlog(7, 1, f"{GTID}:8"))],
        0,
        AGAIN,
    ),
    ("Canal's set", change(SWAP, place=gtids(f"{GTID}:8")), [change(SWAP, place=gtids(f"{GTID}:8"))], 0, PASSED_OVER),
    ("and a later one", change(SWAP, place=gtids(f"{GTID}:1-9")), [change(SWAP, place=gtids(f"{GTID}:1-8"))], 0, AGAIN),
    (
        "and one of another server",
        change(SWAP, place=gtids(f"{GTID}:1-8,{OTHER}:1")),
        [change(SWAP, place=gtids(f"{GTID}:1-8"))],
        0,
        AGAIN,
    ),
    ("one millisecond and text", change(TRUNCATE, MILLIS), [change(TRUNCATE, MILLIS)], 0, PASSED_OVER),
    ("a copy of another partition", change(TRUNCATE), [change(TRUNCATE, position="x/1/4")], 0, PASSED_OVER),
    ("a second, and later ones have come", change(TRUNCATE), [change(TRUNCATE)], 6000, HELD),
    ("that no server runs twice, and later ones", change(ADD), [change(ADD)], 6000, PASSED_OVER),
    ("one that empties, within the second", change(TRUNCATE), [change(TRUNCATE)], 5999, AGAIN),
    ("one that no server runs twice", change(ADD), [change(ADD)], 5000, PASSED_OVER),
    ("with something in between", change(CREATE), [change(CREATE), change("DROP TABLE t")], 5000, AGAIN),
    ("that waited", change(CREATE), [change(CREATE), change("DROP TABLE t", 2000)], 5000, AGAIN),
    ("before it", change(CREATE), [change("DROP TABLE t", 2000), change(CREATE)], 5000, PASSED_OVER),
    ("of that table", change(CREATE), [change(CREATE), change("DROP TABLE u")], 5000, PASSED_OVER),
    ("with its database dropped", change(CREATE), [change(CREATE), change("DROP DATABASE m")], 5000, AGAIN),
    ("a swap", change(SWAP), [change(SWAP)], 5000, HELD),
    ("of contents", change(EXCHANGE), [change(EXCHANGE)], 5000, HELD),
    ("a swap in milliseconds", change(EXCHANGE, MILLIS), [change(EXCHANGE, MILLIS)], 5000, PASSED_OVER),
]  # fmt: skip


@pytest.mark.parametrize(("what", "came", "before", "applied_ms", "fate"), RULES, ids=[rule[0] for rule in RULES])
def test_the_second_one(what: str, came: SchemaChange, before: list[SchemaChange], applied_ms: int, fate: str) -> None:
    """Identity decides where the message tells one; nothing that could swap back runs on a guess."""
    found = second_run(came, before, ms_tso(applied_ms))
    told = PASSED_OVER if found is None else HELD if found.doubt else RUNS if found == came else AGAIN
    assert told == fate, what
    assert found is None or found.id not in {one.id for one in before}


@pytest.mark.parametrize("text", [TRUNCATE, SWAP])
def test_one_that_meets_later_rows_is_held(text: str) -> None:
    """It may be a second one, which has waited for a lock; and rows behind it would be lost if it is not."""
    found = second_run(change(text), [change(text)], ms_tso(6000))
    assert found is not None
    assert "rows that are in the target already" in found.doubt
