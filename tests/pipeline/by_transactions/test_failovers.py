"""The upstream fails over: GTIDs are the same in the next binlog, and places are others.  The bridge stops."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.errors import SourceError
from bridge.pipeline.by_transactions.reached import Place
from bridge.protocols.debezium.transactions import place_of_change
from tests.pipeline.by_transactions.said import SERVER, Said, begin, change, end, row
from tests.pipeline.by_transactions.test_transaction_queue import Fed, queue

FILE = 1 << 32
OLD, LOWER, HIGHER = 5 * FILE, 3 * FILE, 9 * FILE
"""Where the binlog is, and the next one."""


def at(binlog: int, id_: str, pos: int, *, offset: int) -> Said:
    """A row; the server of what a replica has copied is the one that committed it first."""
    return row(id_, 1, binlog + pos, offset=offset)


def ddl(id_: str, number: int, offset: int) -> Said:
    """A schema change with the GTID that the connector tells."""
    source: dict[str, Any] = {
        **{"name": "p", "server_id": int(SERVER[-1]), "gtid": id_},
        **{"file": f"binlog.{number >> 32:06}", "pos": number & (FILE - 1)},
    }
    return change(id_, number, offset=offset) | {"place": place_of_change(source, is_of_snapshot=False)}


def due_before() -> Fed:
    """A queue behind u:1 to u:3, and the schema change u:4."""
    fed = Fed(queue())
    sent = [said for n in (1, 2, 3) for said in (at(OLD, str(n), 100 * n, offset=n), end(str(n), n, a=1))]
    assert fed(*sent) == ["1", "2", "3"]
    assert fed(ddl("u:4", OLD + 400, 4), idle=True) == ["u:4"]
    return fed


@pytest.mark.parametrize(
    "said",
    [
        at(LOWER, "5", 320, offset=11),
        at(OLD, "5", 250, offset=11),
        at(HIGHER, "3", 310, offset=11),
        ddl("u:4", HIGHER + 400, 11),
    ],
    ids=["a new one before", "in a file of the same number", "one again behind", "a schema change again"],
)
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_gtid_at_a_place_on_the_other_side(said: Said, is_restarted: bool) -> None:
    """What is not in the target would be taken for a copy, and what is would be applied again."""
    fed = due_before()
    if is_restarted:
        fed = Fed(queue(Place.read(fed.queue.reached.place.text())))
    with pytest.raises(SourceError, match="reads another binlog"):
        fed(said)


def test_a_new_primary_that_lacks_what_the_old_one_had_sent() -> None:
    """Connector 3.6.1 was sent behind u:22 to a replica of MySQL 8 that had u:1 to u:21: its offset was u:1-21 and 13
    events, and it left out these of v:1, whose rows its END does not count.  The messages could be those of a failover
    without a loss; but the target has u:22, and would never get the rows of v:1."""
    fed = Fed(queue())
    assert fed(begin("22", 26), row("22", 1, 63588), end("22", 27, a=1)) == ["635880"]
    next_server = "p/binlog/2"
    sent = [begin("v:1", 28), end("v:1", 29), begin("v:2", 30), row("v:2", 1, (1 << 32) + 64305, server=next_server)]
    with pytest.raises(SourceError, match="reads another binlog"):
        fed(*sent)


def test_a_schema_change_that_waits_and_comes_again() -> None:
    """It would run twice."""
    fed = due_before()
    assert fed(at(OLD, "5", 500, offset=5), ddl("u:6", OLD + 600, 6)) == []
    with pytest.raises(SourceError, match="the schema change u:6 has two places"):
        fed(ddl("u:6", HIGHER + 6, 9))


def test_a_transaction_of_which_rows_are_in_two_files() -> None:
    """A server writes it into one."""
    fed = due_before()
    with pytest.raises(SourceError, match="rows of u:5 are in two files"):
        fed(at(OLD, "5", 500, offset=5), at(HIGHER, "5", 10, offset=6), end("5", 7, a=1))


def test_a_schema_change_before_lower_gtids() -> None:
    """All of it is read at once: it would run before them."""
    fed = Fed(queue())
    with pytest.raises(SourceError, match="lies behind"):
        fed(at(OLD, "1", 1, offset=1), end("1", 1, a=1), ddl("u:2", LOWER + 9, 2))
