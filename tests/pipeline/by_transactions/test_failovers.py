"""The upstream fails over: GTIDs are the same in the next binlog, and places are others.  The bridge asks the next
server, or stops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bridge.errors import SourceError
from bridge.pipeline.by_transactions.reached import Place
from bridge.pipeline.by_transactions.transaction_queue import DOUBT_SECONDS
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


@pytest.mark.parametrize("is_restarted", [False, True])
def test_rows_that_have_the_gtid_of_the_statement_before_them(is_restarted: bool) -> None:
    """CREATE TABLE ... SELECT of MySQL 8; the connector is killed in their midst, and sends the rest with an END that
    counts no more."""
    fed = due_before()
    if is_restarted:
        fed = Fed(queue(Place.read(fed.queue.reached.place.text())))
    first, rest = at(OLD, "4", 410, offset=5), at(OLD, "4", 420, offset=6)
    assert fed(begin("4", 4), first, begin("4", 5), end("4", 6, a=1)) == []
    assert fed(rest, at(OLD, "5", 500, offset=7), end("5", 7, a=1), now=DOUBT_SECONDS) == ["5", "6", "7"]
    assert fed(first, end("4", 8, a=1), now=2 * DOUBT_SECONDS) == []
    assert fed.repeated == 1


NEXT = f"{SERVER[:-1]}2"
"""The server that has committed what comes behind the failover."""


class Next:
    """The next server, which lacks this; and what it was asked for."""

    def __init__(self, lack: str = "") -> None:
        self.lack, self.asked = lack, list[tuple[str, list[str]]]()

    def __call__(self, server_id: str, gtids: Sequence[str]) -> str:
        self.asked.append((server_id, sorted(gtids)))
        return self.lack


def failed_over(asked: Next) -> Fed:
    """A queue behind u:1 to u:3 and the schema change u:4, which reads on from a replica."""
    fed = due_before()
    fed.queue.lacks = asked
    return fed


BEHIND = [
    *(begin("5", 12), at(LOWER, "5", 320, offset=11), end("5", 13, a=1)),
    *(begin("v:1", 14), row("v:1", 1, LOWER + 400, offset=12, server=NEXT), end("v:1", 15, a=1)),
]
"""What the old server has committed last, and what the next one has, both from the binlog of the next one."""


def test_a_server_that_has_all_is_gone_over_to() -> None:
    """What waits comes when it was asked, in the order of the new binlog; a restart knows whose that is."""
    asked = Next()
    fed = failed_over(asked)
    assert fed(*BEHIND) == []
    assert fed(now=DOUBT_SECONDS - 1) == []
    assert not asked.asked
    assert fed(now=DOUBT_SECONDS) == []
    assert asked.asked == [("2", ["u:3", "u:4"])]
    assert fed() == ["11", "12"]
    again = Fed(queue(Place.read(fed.queue.reached.place.text())))
    for one in (fed, again):
        assert one(*BEHIND) == []
        assert one(row("v:2", 1, LOWER + 500, offset=13, server=NEXT), end("v:2", 16, a=1)) == ["13"]


def test_a_server_that_lacks_what_was_read_stops_it() -> None:
    """The target has what no server has any more."""
    fed = failed_over(Next("it does not have all of u:3"))
    assert fed(*BEHIND) == []
    with pytest.raises(SourceError, match="it does not have all of u:3; nothing tells"):
        fed(now=DOUBT_SECONDS)


def test_no_other_server_has_committed_anything() -> None:
    """It may be a replica whose workers commit out of order."""
    fed = failed_over(Next())
    assert fed(*BEHIND[:3]) == []
    with pytest.raises(SourceError, match="u:5 and u:3 are in another order"):
        fed(now=DOUBT_SECONDS)


def test_a_transaction_that_was_left_in_its_midst_stops_it() -> None:
    """Its rest would be of the next transaction (seen with connector 3.6.1)."""
    fed = failed_over(Next())
    assert fed(begin("5", 5), at(OLD, "5", 500, offset=5), *BEHIND[3:]) == []
    with pytest.raises(SourceError, match="u:5 has no END"):
        fed(now=DOUBT_SECONDS)


def test_a_schema_change_of_the_next_server_waits_for_a_transaction_of_it() -> None:
    """Alone it does not tell that everything before it has come."""
    fed = failed_over(Next())
    of_next = ddl("v:1", LOWER + 350, 11) | {"place": ddl("v:1", LOWER + 350, 11)["place"].replace(SERVER, NEXT)}
    assert fed(of_next, idle=True) == []
    assert fed.queue.is_short
    assert fed.queue.reason.startswith("a transaction of the next server lacks")
    assert fed(row("v:2", 1, LOWER + 400, offset=12, server=NEXT), end("v:2", 15, a=1)) == []
    assert fed(now=DOUBT_SECONDS) == []
    assert fed() == ["v:1", "12"]


def test_a_transaction_begun_twice_before_a_failover_says_itself_what_it_waits_for() -> None:
    """And is due when another one has come, as without one; then the failover goes on."""
    fed = failed_over(Next())
    twice = [begin("5", 5), at(OLD, "5", 500, offset=5), begin("5", 6), end("5", 7, a=1)]
    assert fed(*twice, *BEHIND[3:]) == []
    assert fed(now=2 * DOUBT_SECONDS) == []
    assert fed.queue.reason == "the next transaction tells whether u:5, which was begun twice, is whole"
    assert not fed.queue.is_short
    assert fed(end("13", 20), now=7 * DOUBT_SECONDS) == ["5"]
    assert [fed(now=seconds * DOUBT_SECONDS) for seconds in (7, 8, 8)] == [[], [], ["12"]]


def test_a_schema_change_that_a_dead_server_sent_last_runs_before_the_failover() -> None:
    """And one that comes again, from the new binlog, is looked up by its GTID."""
    fed = failed_over(Next())
    assert fed(ddl("u:5", OLD + 500, 5), *BEHIND[3:]) == []
    assert fed(now=DOUBT_SECONDS) == ["u:5"]
    assert fed(now=DOUBT_SECONDS) == []
    assert fed() == ["12"]
    assert fed(ddl("u:5", LOWER + 330, 6)) == []
    assert fed.passed == ["u:5"]


def test_a_row_that_a_dead_server_had_not_sent_comes_too_late_for_a_schema_change() -> None:
    """It ran because nothing had come for long; by the number of its GTID alone the row would be a copy."""
    fed = failed_over(Next())
    assert fed(ddl("u:6", OLD + 600, 6), idle=True) == ["u:6"]
    assert fed(*BEHIND, now=1.0) == []
    assert fed(now=1.0 + DOUBT_SECONDS) == []
    with pytest.raises(SourceError, match="u:5 lies behind u:6"):
        fed()


def test_a_server_that_comes_back_is_asked_again() -> None:
    """It may lack what the other one has committed meanwhile."""
    asked = Next()
    fed = failed_over(asked)
    assert fed(*BEHIND) == []
    assert fed(now=DOUBT_SECONDS) == []
    assert fed() == ["11", "12"]
    back = [row("u:6", 1, OLD + 900, offset=20), end("u:6", 20, a=1)]
    assert fed(*back) == []
    assert fed(now=DOUBT_SECONDS) == []
    assert asked.asked[1:] == [("1", ["u:4", "u:5", "v:1"])]
    assert fed() == ["20"]


def test_rows_of_an_incremental_snapshot_behind_a_transaction_that_a_dead_server_has_not_sent_whole() -> None:
    """They may show what that transaction has changed, and the rest of it did not come."""
    fed = failed_over(Next())
    assert fed(row("5", 1, OLD + 450, offset=21), row("", 0, OLD + 460, offset=22)) == []
    assert fed(row("v:2", 1, LOWER + 400, offset=12, server=NEXT), end("v:2", 15, a=1)) == []
    with pytest.raises(SourceError, match="rows of an incremental snapshot came before"):
        fed(now=DOUBT_SECONDS)


def test_a_transaction_that_lacks_rows_and_was_named_is_due_before_the_failover() -> None:
    """Its rows will never come from the dead server; the next one is asked for it, too."""
    asked = Next()
    fed = failed_over(asked)
    fed.queue.incomplete = {"u:5"}
    assert fed(at(OLD, "5", 500, offset=5), end("5", 6, a=1, b=1), *BEHIND[3:]) == ["5"]
    assert fed.queue.shortages == [("the transaction u:5 lacks rows: s.b: 0 of 1", 1)]
    assert fed(now=DOUBT_SECONDS) == []
    assert fed(now=2 * DOUBT_SECONDS) == []
    assert asked.asked == [("2", ["u:4", "u:5"])]
    assert fed() == ["12"]
