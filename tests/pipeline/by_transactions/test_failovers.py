"""The upstream fails over: with GTIDs the order goes on, whatever the files and positions of the next binlog are."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.errors import SourceError
from bridge.events import Kind
from bridge.pipeline.by_transactions.past import MOST_RUNS, Past
from bridge.pipeline.by_transactions.transaction_queue import DOUBT_SECONDS, Place
from bridge.protocols.debezium.transactions import place_of_change
from tests.pipeline.by_transactions.said import SERVER, Said, begin, change, end, events, gtid, row
from tests.pipeline.by_transactions.test_transaction_queue import Fed, queue

NEXT = "p/mysql-bin/2"
FILE = 1 << 32
OLD = 5 * FILE
LOWER, HIGHER = 3 * FILE, 9 * FILE
"""Where the next binlog is."""


def at(
    binlog: int, id_: str, pos: int, name: str = "s.a", *, order: int = 1, offset: int, server: str = SERVER
) -> Said:
    """A row; the server of what a replica has copied is the one that committed it first."""
    return row(id_, order, binlog + pos, name, offset=offset, server=server)


def due_before(binlog: int = OLD) -> Fed:
    """A queue behind u:1 to u:3."""
    fed = Fed(queue())
    sent = [said for n in (1, 2, 3) for said in (at(binlog, str(n), 100 * n, offset=n), end(str(n), n, a=1))]
    assert fed(*sent) == ["1", "2", "3"]
    return fed


@pytest.mark.parametrize("binlog", [LOWER, HIGHER, OLD - 50], ids=["lower", "higher", "the same file"])
def test_the_order_goes_on(binlog: int) -> None:
    """What was sent again is a copy by its GTID; what the old server had committed and the connector had not read is
    none, though it may lie before what is in the target; then come the transactions of the new server."""
    fed = due_before()
    sent = [
        *(at(binlog, "3", 310, offset=10), end("3", 10, a=1)),
        *(at(binlog, "4", 320, offset=11), end("4", 11, a=1)),
        *(at(binlog, "v:1", 330, offset=12, server=NEXT), end("v:1", 12, a=1)),
    ]
    assert fed(*sent) == ["11", "12"]
    assert fed.repeated == 1
    place = Place.read(fed.queue.place.text())._replace(past=Past({"u:": [1, 5]}).text())
    again = Fed(queue(place))  # a new process
    assert again(*sent, at(binlog, "v:2", 340, offset=13, server=NEXT), end("v:2", 13, a=1)) == ["13"]
    assert again.repeated == 3
    assert again.queue.is_empty


def test_a_pipeline_that_begins_before_two_failovers() -> None:
    """All of it is read at once."""
    fed = Fed(queue())
    due = fed(
        *(at(OLD, "1", 1, offset=1), end("1", 1, a=1)),
        *(at(LOWER, "v:1", 1, offset=2, server=NEXT), end("v:1", 2, a=1)),
        *(
            at(FILE, "w:1", 1, offset=3, server="p/x/3"),
            at(FILE, "w:2", 2, offset=4, server="p/x/3"),
            end("w:1", 3, a=1),
        ),
    )
    assert due + fed() + fed(end("w:2", 4, a=1)) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("binlog", [LOWER, HIGHER], ids=["lower", "higher"])
@pytest.mark.parametrize("is_end_there", [False, True])
def test_a_transaction_that_was_sent_in_part(binlog: int, is_end_there: bool) -> None:
    """It comes again from the new server, with other positions: its rows are written once."""
    fed = due_before()
    first = [at(OLD, "4", 400, order=1, offset=4), at(OLD, "4", 401, order=2, offset=5)]
    assert fed(begin("4", 4), *first, *([end("4", 5, a=3)] if is_end_there else [])) == []
    again = [at(binlog, "4", 10 * n, order=n, offset=5 + n) for n in (1, 2, 3)]
    assert fed(begin("4", 6), *again[:1]) == []
    assert fed(*again[1:], end("4", 7, a=3), now=1) + fed(now=1 + DOUBT_SECONDS) == ["6", "7", "8"]
    assert fed.queue.is_empty
    assert fed(at(binlog, "v:1", 90, offset=20, server=NEXT), end("v:1", 8, a=1)) == ["20"]


@pytest.mark.parametrize("binlog", [LOWER, HIGHER], ids=["lower", "higher"])
def test_a_connector_that_goes_on_in_the_midst_of_a_transaction(binlog: int) -> None:
    """From 3.7 on it goes on counting."""
    fed = due_before()
    assert fed(begin("4", 4), at(OLD, "4", 400, order=1, offset=4)) == []
    assert fed(*(at(binlog, "4", n, order=n, offset=3 + n) for n in (2, 3)), end("4", 5, a=3)) == ["4", "5", "6"]


def images(said: Said, value: int) -> Said:
    return said | {"columns": "id", "after": str(value), "kind": int(Kind.INSERT)}


@pytest.mark.parametrize("binlog", [LOWER, HIGHER], ids=["lower", "higher"])
def test_a_connector_that_counts_anew_in_the_midst_of_a_transaction(binlog: int) -> None:
    """Before 3.7: rows before the failover and behind it have one number, and nothing tells them from copies."""
    fed = due_before()
    first = [images(at(OLD, "4", 400 + n, order=n, offset=3 + n), n) for n in (1, 2)]
    assert fed(begin("4", 4), *first) == []
    rest = [images(at(binlog, "4", n, order=n, offset=5 + n), 2 + n) for n in (1, 2, 3)]
    fed(begin("4", 5), *rest, end("4", 6, a=3))
    assert fed(now=100) == []
    assert fed.queue.is_short
    assert "u:4 was cut by a failover" in fed.queue.reason


def test_rows_before_a_failover_in_a_file_of_the_same_number() -> None:
    """Nothing tells whether they are the first half, or came again whole: they are not written twice."""
    fed = due_before()
    first = [images(at(OLD, "4", 400 + n, order=n, offset=3 + n), n) for n in (1, 2)]
    assert fed(begin("4", 4), *first) == []
    again = [images(at(OLD, "4", 500 + n, order=n, offset=5 + n), n) for n in (1, 2, 3)]
    fed(begin("4", 5), *again, end("4", 6, a=3))
    assert fed(now=100) == []
    assert fed.queue.is_short


def ddl(id_: str, number: int, offset: int, server: str = SERVER) -> Said:
    """A schema change with the GTID that the connector tells."""
    source: dict[str, Any] = {
        "name": "p",
        "server_id": int(server[-1]),
        "gtid": id_,
        "file": f"binlog.{number >> 32:06}",
        "pos": number & (FILE - 1),
    }
    return change(id_, number, offset=offset) | {"place": place_of_change(source, is_of_snapshot=False)}


@pytest.mark.parametrize("binlog", [LOWER, HIGHER], ids=["lower", "higher"])
def test_schema_changes(binlog: int) -> None:
    """One that ran is known by its GTID; one that waited is placed anew; those of the new server run in their place."""
    fed = due_before()
    assert fed(ddl("u:4", OLD + 400, 4), idle=True) == ["u:4"]
    assert fed(at(OLD, "5", 500, offset=5), ddl("u:6", OLD + 600, 6)) == []
    due = fed(
        ddl("u:4", binlog + 4, 7),
        *(at(binlog, "5", 5, offset=8), end("5", 5, a=1)),
        ddl("u:6", binlog + 6, 9),
        *(at(binlog, "v:1", 7, offset=10, server=NEXT), end("v:1", 6, a=1)),
        ddl("v:2", binlog + 8, 11, NEXT),
        *(at(binlog, "v:3", 9, offset=12, server=NEXT), end("v:3", 7, a=1)),
    )
    assert due == ["8", "u:6", "10", "v:2", "12"]
    assert fed.passed == ["u:4"]
    assert fed.queue.is_empty


def test_a_schema_change_of_which_nothing_tells_the_binlog() -> None:
    """It is held: it has no GTID."""
    fed = due_before()
    assert fed(at(LOWER, "4", 320, offset=11)) == []
    fed.queue.take(events([change("ALTER", OLD + 900)]), fed.batch, 0)
    [held] = fed.queue.due(fed.batch, 0, is_idle=True, is_end=True).changes
    assert "read another server's binlog" in held.doubt


def test_without_gtids_it_stops() -> None:
    """By file and position nothing tells what is in the target."""
    fed = Fed(queue(Place(SERVER, OLD, OLD, gtid("file=binlog.000005,pos=0"))))
    with pytest.raises(SourceError, match="reads another binlog: p/mysql-bin/2"):
        fed(at(LOWER, "file=mysql-bin.000003,pos=4", 10, offset=1, server=NEXT))


def test_mariadb_goes_on_within_one_domain() -> None:
    """The server changes in the GTID, and the sequence goes on."""
    fed = Fed(queue())
    assert fed(at(OLD, "0-1-7", 10, offset=1), end("0-1-7", 1, a=1)) == ["1"]
    sent = [at(LOWER, "0-1-7", 4, offset=2), at(LOWER, "0-2-8", 5, offset=3, server=NEXT), end("0-2-8", 2, a=1)]
    assert fed(*sent) == ["3"]
    assert fed.repeated == 1
    with pytest.raises(SourceError, match="of its domains 0, 1 are in the target"):
        fed(at(LOWER, "1-3-9", 6, offset=4, server=SERVER))


def test_gtids_that_come_out_of_order() -> None:
    """A replica with parallel workers: each is applied once, also by a new process."""
    fed = Fed(queue())
    sent = [at(OLD, n, 10 * place, offset=place) for place, n in enumerate(["5", "7", "6", "9"])]
    ends = [end(n, place, a=1) for place, n in enumerate(["5", "7", "6", "9"])]
    assert fed(*sent[:2], *ends[:2]) == ["0", "1"]
    assert fed(*sent, *ends) == ["2", "3"]
    assert fed.queue.is_empty


def test_what_is_past() -> None:
    """Runs join; the oldest are forgotten."""
    past = Past()
    for number in (5, 7, 6, 9, 6):
        past.add(gtid(str(number)))
    assert past.runs == {"u:": [5, 8, 9, 10]}
    assert Past.read(past.text()) == past
    assert [past.has(gtid(str(number))) for number in (4, 5, 7, 8, 9, 10)] == [None, True, True, False, True, False]
    assert past.has(gtid("v:1")) is False
    assert past.has(gtid("file=b.1,pos=3")) is None
    for number in range(11, 11 + 2 * MOST_RUNS, 2):
        past.add(gtid(str(number)))
    assert len(past.runs["u:"]) == 2 * MOST_RUNS
    assert past.is_forgotten(gtid("5"))
    assert not past.is_forgotten(gtid("12"))


def test_many_transactions_behind_a_failover_at_once() -> None:
    """A bridge that was away reads the old server's and thousands of the new one's together."""
    fed = Fed(queue())
    first = [at(OLD, "1", 1, offset=0), end("1", 0, a=1)]
    rest = [
        said for n in range(1, 3001) for said in (at(LOWER, f"v:{n}", n, offset=n, server=NEXT), end(f"v:{n}", n, a=1))
    ]
    assert fed(*first, *rest) == [str(n) for n in range(3001)]
    assert fed(at(LOWER, "v:3001", 4000, offset=4000, server=NEXT), end("v:3001", 4000, a=1)) == ["4000"]
