"""Which transactions are whole, in which order they are due, and what is a copy."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pytest

from bridge.errors import SourceError
from bridge.events import Kind
from bridge.model import SchemaChange
from bridge.pipeline.by_transactions.numbering import DueRows
from bridge.pipeline.by_transactions.reached import NOWHERE, Place, Reached, Snapshot
from bridge.pipeline.by_transactions.transaction_queue import DOUBT_SECONDS, TransactionQueue
from bridge.rows.gathering import Amount
from bridge.tso import ms_tso
from tests.pipeline.by_transactions.said import SERVER, TOPIC, Said, begin, change, end, events, gtid, mark, row

OF_SNAPSHOT = f"{SERVER[:-1]}0"
THIRD = Place(SERVER, 30, 30, gtid("3"), (gtid("3"),))
LACKS_B = "the transaction u:1 lacks rows: s.b: 0 of 1"
NO_END = "the transaction u:1 has no END, and later ones have"


def queue(place: Place = NOWHERE, **more: Any) -> TransactionQueue:
    """A queue behind a place."""
    return TransactionQueue(TOPIC, Reached(place), 0, more.pop("loose_ends", {}), **more)


class Fed:
    """A queue that is fed micro-batches, each of which is settled."""

    def __init__(self, one: TransactionQueue) -> None:
        self.queue, self.batch, self.passed, self.repeated = one, 0, list[str](), 0

    def __call__(self, *said: Said, now: float = 0.0, settled: bool = True, idle: bool = False) -> list[str]:
        """Takes a micro-batch, and tells what is due: rows by position and row, schema changes by text, in order."""
        repeated, passed = self.queue.take(events(said), self.batch, now)
        self.passed += [one.text for one in passed]
        self.repeated += repeated
        below = math.inf if settled else -1
        settled_at = self.batch if settled else self.batch - 1
        due = self.queue.due(settled_at, now, is_idle=idle, below=below, rowless_below=below)
        self.batch += 1
        return shown(due)


def shown(due: DueRows) -> list[str]:
    """What is due, in the order of its commit_ts."""
    names = ("commit_ts", "offset")
    found = [(ts, str(offset)) for ts, offset in zip(*(due.rows[n].to_pylist() for n in names), strict=True)]
    return [text for _, text in sorted(found + [(one.commit_ts, one.text) for one in due.changes])]


class Step(NamedTuple):
    """A micro-batch, and what holds behind it: what is due, and attributes of the queue."""

    said: tuple[Said, ...]
    due: str
    how: dict[str, Any]
    queue: dict[str, Any]


def step(*said: Said, due: str = "", now: float = 0.0, settled: bool = True, idle: bool = False, **found: Any) -> Step:
    return Step(said, due, {"now": now, "settled": settled, "idle": idle}, found)


MOVED = (row("1", 1, 10, kind=Kind.DELETE, offset=1), row("1", 2, 10, kind=Kind.INSERT, offset=2))
FIRST = [row("1", n, 10 + n) for n in (1, 2, 3)]
REST = [row("1", n, 12 + n, offset=200 + n) for n in (1, 2)]
OF_A_CONNECTOR: dict[str, list[Step]] = {
    "a transaction is due when all its rows are there, and nothing behind it before": [
        step(row("1", 1, 10), end("1", 1, a=1, b=1), row("2", 1, 20), end("2", 3, a=1), reason=LACKS_B),
        step(row("1", 2, 11, "s.b"), due="100 110 200"),
    ],
    "rows wait for their END, which may be on its way": [
        step(row("1", 1, 10), is_short=False),
        step(end("1", 1, a=1), due="100"),
    ],
    "an END is settled first: what was sent before it may not have been read": [
        step(row("1", 1, 10), end("1", 1, a=1), settled=False),
        step(change("ALTER", 5), due="ALTER 100"),
    ],
    "the order within a transaction is that of the binlog, also between topics, whose offsets tell nothing": [
        step(row("1", 2, 11, "s.b", offset=1), row("1", 1, 10, offset=7), end("1", 1, a=1, b=1), due="7 1"),
    ],
    "a key that moves is two rows of one position, which are counted both": [step(*MOVED, end("1", 1, a=2), due="1 2")],
    "counts by table have to agree: two rows of one table are not one of each": [
        step(row("1", 1, 10), row("1", 2, 11), end("1", 1, a=1, b=1), is_short=True),
    ],
    # A connector before 3.7 that begins anew behind the last row of a transaction: the larger count holds.
    "an END that counts nothing behind one that counts": [
        step(begin("1", 0), end("1", 1, a=1), begin("1", 2), end("1", 3)),
        step(row("1", 1, 10), due="100"),
    ],
    # Before 3.7 the rest is numbered from 1 on, and the END counts the rest alone (dbz#633): three rows are not two.
    "a connector that begins anew in the midst": [
        step(begin("1", 0), *FIRST),
        step(begin("1", 1), end("1", 2, a=2)),
        step(row("1", 2, 15), end("2", 3), now=DOUBT_SECONDS),
        step(row("1", 1, 14), now=DOUBT_SECONDS, due="110 120 130 140 150"),
    ],
    # Rows that were sent and not acknowledged come again with other numbers, and are written once.
    "the rest may begin before the last row that was sent": [
        step(begin("1", 0), *FIRST),
        step(begin("1", 1), *REST, end("1", 2, a=2), now=DOUBT_SECONDS),
        step(end("2", 3), now=2 * DOUBT_SECONDS, due="110 120 201 202"),
    ],
    # Its END was not sent when the connector died; all its rows had been acknowledged.
    "the END of a rest without rows": [
        step(begin("1", 0), row("1", 1, 10), begin("1", 1), end("1", 2), row("2", 1, 20), end("2", 3, a=1)),
        step(end("3", 4), now=DOUBT_SECONDS, due="100 200"),
    ],
    # What was acknowledged before it may lie in a partition that is read more slowly.
    "the END of a rest without rows whose transaction is still unread": [
        step(begin("1", 0), begin("1", 1), end("1", 2), settled=False),
        step(row("1", 1, 10), end("2", 3), now=DOUBT_SECONDS, due="100"),
    ],
    # A new pipeline takes over where the topics were emptied: a connector that told transactions before sends the END
    # of its last one again.  One whose BEGIN or any of whose rows is there lacks rows, and so does a later one.
    "an END that stands before the first transaction": [
        step(end("7", 0, a=2), begin("8", 1), row("8", 1, 80), end("8", 2, a=1), settled=False),
        step(due="800"),
        step(end("9", 3, a=1), is_short=True),
    ],
    "an END behind its BEGIN": [
        step(begin("7", 0), end("7", 1, a=2), row("8", 1, 80), end("8", 2, a=1), is_short=True),
    ],
    "an END behind one of its rows": [
        step(row("7", 2, 70), end("7", 1, a=2), row("8", 1, 80), end("8", 2, a=1), is_short=True),
    ],
    "an END of another server behind a replica compares with those of the same server, whichever came last": [
        step(row("1", 1, 10), end("1", 1, a=1), row("v:1", 1, 20), end("v:1", 2, a=1), due="100 200"),
        step(end("1", 3, a=1), end("v:1", 4, a=1), row("2", 1, 30), end("2", 5, a=1), due="300", is_empty=True),
    ],
    "an END that never came, and later ones have": [
        step(row("1", 1, 10), row("2", 1, 20), end("2", 2, a=1), is_short=True, reason=NO_END),
    ],
    "rows that a filter leaves out are counted": [
        step(row("1", 1, 10), row("1", 2, 11, kind=Kind.TRANSACTION), end("1", 1, a=2), due="100"),
        step(row("2", 1, 20, kind=Kind.TRANSACTION), end("2", 2, a=1), is_empty=True),
    ],
    "a schema change stands between transactions by its place, and waits for one behind it": [
        step(row("1", 1, 10), end("1", 1, a=1), change("ALTER", 15), due="100"),
        step(),
        step(row("2", 1, 20), end("2", 2, a=1), due="ALTER 200"),
        step(change("DROP", 25), idle=True, due="DROP"),
    ],
    "a schema change waits for transactions before it, also when all is idle": [
        step(row("1", 1, 10), change("TRUNCATE", 15), idle=True),
        step(end("1", 1, a=1), idle=True, due="100 TRUNCATE"),
    ],
    # Its schema changes, then its rows, as they come; then what is in the binlog.
    "a snapshot comes first": [
        step(
            row("", 0, 9, server=OF_SNAPSHOT, offset=0),
            change("CREATE", 9, server=OF_SNAPSHOT),
            row("1", 1, 10),
            due="CREATE 0",
        ),
        step(row("", 0, 9, server=OF_SNAPSHOT, offset=1), end("1", 1, a=1), due="1 100"),
    ],
    "a row of an incremental snapshot is no older than what its partition held before it": [
        step(row("1", 1, 10), row("", 0, 12), row("2", 1, 20), end("1", 1, a=1), due="100 120"),
        step(row("", 0, 22), end("2", 2, a=1), due="200 220"),
    ],
}
BEHIND_3: dict[str, list[Step]] = {
    # It came again before a transaction that is due meanwhile.
    "an END without rows before one that waited": [
        step(end("4", 6, a=1), end("5", 7, a=1), end("2", 8, a=1), end("4", 9, a=1)),
        step(row("4", 1, 40), row("5", 1, 50), due="400 500"),
        step(is_empty=True),
    ],
    # The connector sends again from the midst of a transaction long past, which has no row; the next ones have all.
    "ENDs of what is in the target without rows": [
        step(end("1", 7, a=1), is_empty=True),
        step(end("2", 8, a=1), row("2", 1, 20), is_empty=True),
        step(end("3", 9, a=1), row("3", 1, 30), row("4", 1, 40), end("4", 10, a=1), due="400"),
    ],
    "ENDs of what is in the target, with one that counts nothing between": [
        step(end("1", 7, a=1), end("2", 8), end("3", 9, a=1), is_empty=True),
    ],
    # The connector died with the rows unsent, and sends again from a transaction that is in the target.
    "an END without rows that is not past": [
        step(end("4", 7, a=1), end("3", 8, a=1)),
        step(row("3", 1, 30), row("4", 1, 40), end("4", 9, a=1), due="400"),
    ],
    # Twice; what stands behind it, whole meanwhile, waits for it.
    "an END that came twice without rows": [
        step(end("4", 7, a=1), row("5", 1, 50), end("5", 8, a=1), end("4", 9, a=1), end("3", 10, a=1)),
        step(row("4", 1, 40), due="400 500"),
    ],
    # It came again behind one that is past, and its rows may still be unread.
    "the last copy of an END tells": [
        step(end("4", 7, a=1), end("3", 9, a=1), row("3", 1, 30), end("4", 10, a=1)),
        step(row("4", 1, 40), due="400"),
    ],
    # It changed tables that the connector leaves out; the rows of the one before are still to be read.
    "a transaction without rows tells nothing of the one before": [
        step(end("4", 7, a=1), end("5", 8), row("6", 1, 60), end("6", 9, a=1)),
        step(row("4", 1, 40), due="400 600", is_empty=True),
    ],
}
STORIES = [(NOWHERE, *one) for one in OF_A_CONNECTOR.items()] + [(THIRD, *one) for one in BEHIND_3.items()]


@pytest.mark.parametrize(("place", "name", "steps"), STORIES, ids=[story[1] for story in STORIES])
def test_what_is_due(place: Place, name: str, steps: list[Step]) -> None:
    """Of a new pipeline, and of one that has the third transaction."""
    fed = Fed(queue(place))
    for one in steps:
        assert fed(*one.said, **one.how) == one.due.split(), name
        assert {key: getattr(fed.queue, key) for key in one.queue} == one.queue, name


def test_a_transaction_of_which_nothing_is_replicated_is_passed() -> None:
    """The place is behind it."""
    fed = Fed(queue())
    assert fed(row("2", 1, 20, kind=Kind.TRANSACTION), end("2", 2, a=1)) == []
    assert fed.queue.reached.place == Place(SERVER, 20, 20, gtid("2"), (gtid("2"),))


@pytest.mark.parametrize("there", [[row("1", 1, 10)], []])
def test_a_transaction_that_the_operator_has_named(there: list[Said]) -> None:
    """It is due without the rows that it lacks, once all that was sent before its END was read, and this is told."""
    fed = Fed(queue(incomplete={"u:1"}))
    later = [row("2", 1, 20), end("2", 3, a=1)]
    assert fed(begin("1", 0), *there, end("1", 1, a=1, b=1), *later, settled=False) == []
    assert fed() == [*["100"] * len(there), "200"]
    lacks = "" if there else "s.a: 0 of 1, "
    assert fed.queue.shortages == [(f"the transaction u:1 lacks rows: {lacks}s.b: 0 of 1", 2 - len(there))]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (row("", 0, 50, "s.b", server=f"{SERVER[:-1]}0", kind=Kind.INSERT, offset=9), "was set back"),
        (change("CREATE", 50, server=f"{SERVER[:-1]}0"), "recovery, or its upstream was set back.*topic.prefix"),
        (row("1", 1, 90, ts=ms_tso(7_200_000) + 99), "was set back"),
    ],
    ids=["a row", "a statement", "a row of a transaction"],
)
def test_an_upstream_that_was_set_back(said: Said, why: str) -> None:
    """A snapshot before what is in the target, or rows that are too young to be copies: these, and what comes behind a
    snapshot, would be dropped.  A snapshot that was read before, and an incremental one, are none such."""
    fed = Fed(queue(loose_ends={("p.s.b", 0): 5}))
    assert fed(row("1", 1, 100), end("1", 1, ms_tso(3_600_000), a=1)) == ["1000"]
    fed(row("1", 1, 90, ts=ms_tso(7_200_000)))
    fed(row("", 0, 50, "s.b", server=f"{SERVER[:-1]}0", kind=Kind.INSERT, offset=4))
    fed(row("", 0, 60, "s.b", kind=Kind.INSERT, offset=6))
    with pytest.raises(SourceError, match=why):
        fed(said)


def test_a_binlog_beyond_4_gib() -> None:
    """Positions there are not told apart, so that rows could be taken for copies."""
    with pytest.raises(SourceError, match="larger than 4 GiB"):
        Fed(queue())(row("1", 1, (7 << 32) + (1 << 32) - 1))


def test_copies_of_rows_and_ends() -> None:
    """After a restart of the connector, before and after the transaction was due."""
    fed = Fed(queue())
    assert fed(row("1", 1, 10), row("1", 1, 10, offset=101), end("1", 1, a=1), end("1", 2, a=1)) == ["100"]
    assert fed(row("2", 1, 20), end("2", 3, a=1)) == ["200"]
    assert fed(end("1", 4, a=1), row("1", 1, 10, offset=102), end("2", 5, a=1), row("2", 1, 20, offset=201)) == []
    assert fed.queue.is_empty
    assert fed.repeated == 2


def test_half_a_transaction_that_looks_whole_is_doubted() -> None:
    """The first half has as many rows as the END of the second counts: an END ten seconds later tells that its rows
    have come, or at the end of the input any; nothing else does, however long the connector is away."""
    fed = Fed(queue())
    assert fed(begin("1", 0), row("1", 1, 11), begin("1", 1), end("1", 2, a=1)) == []
    assert fed(end("2", 3), now=DOUBT_SECONDS - 1) == []
    assert fed(now=1000 * DOUBT_SECONDS) == []
    assert fed.queue.reason == "the next transaction tells whether u:1, which was begun twice, is whole"
    assert not fed.queue.is_short
    assert fed(row("1", 1, 12), end("2", 4), now=1000 * DOUBT_SECONDS) == ["110", "120"]
    for later, named, at_end in (
        ([], (), []),
        ([], {"u:1"}, ["110"]),
        ([row("2", 1, 20), end("2", 3, a=1)], (), ["110", "200"]),
    ):
        fed = Fed(queue(incomplete=named))
        assert fed(begin("1", 0), row("1", 1, 11), begin("1", 1), end("1", 2, a=1), *later) == []
        assert shown(fed.queue.due(0, 0, is_idle=False, is_end=True)) == at_end


def test_copies_of_ends_do_not_tell_that_rows_are_gone() -> None:
    """A connector that is back sends from far behind: the rows that lack come after these, however long it takes."""
    fed = Fed(queue(THIRD))
    fed(end("4", 7, a=1), now=1)
    fed(end("2", 8, a=1), end("3", 9, a=1), now=100)
    assert fed.queue.end_at == 1
    fed(end("5", 10, a=1), now=200)
    assert fed.queue.end_at == 200


def test_a_schema_change_whose_place_is_passed() -> None:
    """It is told apart: it may be a copy, and may have come late."""
    fed = Fed(queue(THIRD))
    assert fed(change("TRUNCATE", 25)) == []
    assert fed.passed == ["TRUNCATE"]


def test_rows_of_a_snapshot_wait_for_all_its_schema_changes() -> None:
    """They have one place, so that where those are read to does not tell that the last one was read."""
    fed = Fed(queue())
    fed.queue.take(events([change("CREATE", 9, server=OF_SNAPSHOT), row("", 0, 9, server=OF_SNAPSHOT, offset=0)]), 0, 0)
    assert shown(fed.queue.due(0, 0, 9, 9, is_idle=False)) == ["CREATE"]
    assert shown(fed.queue.due(0, 0, is_idle=False)) == ["0"]


@pytest.mark.parametrize(
    "again",
    [
        row("", 0, 12, server=OF_SNAPSHOT, offset=1),
        change("CREATE", 12, server=OF_SNAPSHOT, offset=10),
        change("CREATE", 9, server=OF_SNAPSHOT, offset=10),
    ],
    ids=["a row", "a statement", "a statement of the same place"],
)
@pytest.mark.parametrize("is_new_process", [False, True])
def test_a_second_snapshot_stops(again: Said, is_new_process: bool) -> None:
    """A connector that is killed in its first one takes another: what was deleted in between is in no message."""
    first = (change("CREATE", 9, server=OF_SNAPSHOT), row("", 0, 9, server=OF_SNAPSHOT, offset=0))
    fed = Fed(queue())
    assert fed(*first) == ["CREATE", "0"]
    if is_new_process:
        on_record = SchemaChange(5, "s", "", "CREATE", "p/0/9", str(first[0]["place"]))
        fed = Fed(queue(loose_ends={("p.s.a", 0): 1, ("p", 0): 10}, snapshot=Snapshot([on_record])))
        assert fed(*first) == []
    with pytest.raises(SourceError, match="another snapshot"):
        fed(again)


def test_the_first_transaction_of_mariadb_has_the_place_of_the_snapshot() -> None:
    """Connector 3.5.0: all of its rows have the place where it begins, which is where the snapshot ended."""
    fed = Fed(queue())
    first = row("0-1-1", 1, 9, offset=1), end("0-1-1", 1, a=1)
    assert fed(*first, row("", 0, 9, server=OF_SNAPSHOT, offset=0)) == ["0", "1"]
    with pytest.raises(SourceError, match="of a new snapshot"):  # or one that Kafka got later than the transaction
        fed(row("", 0, 9, server=OF_SNAPSHOT, offset=2))


def test_its_rows_that_come_behind_a_schema_change_that_ran_are_no_copies() -> None:
    """Nothing had come for long, and the schema change ran: the transaction before it stops the bridge."""
    fed = Fed(queue())
    assert fed(row("", 0, 9, server=OF_SNAPSHOT, offset=0), change("ALTER", 20), idle=True) == ["0", "ALTER"]
    with pytest.raises(SourceError, match="before a schema change that has run already"):
        fed(row("0-1-1", 1, 9, offset=1), end("0-1-1", 1, a=1))


def test_a_snapshot_behind_transactions_stops() -> None:
    """The connector has lost its offsets."""
    fed = Fed(queue())
    assert fed(row("1", 1, 10), end("1", 1, a=1)) == ["100"]
    with pytest.raises(SourceError, match="another snapshot"):
        fed(row("", 0, 12, server=OF_SNAPSHOT))


def test_rows_of_no_transaction_are_not_written_twice() -> None:
    """Where a new process reads them again."""
    fed = Fed(queue(THIRD, loose_ends={("p.s.a", 0): 121}))
    assert fed(row("", 0, 12), row("", 0, 13)) == ["130"]


def test_what_tells_an_earlier_time_is_in_the_target() -> None:
    """A pipeline that begins at a moment."""
    fed = Fed(queue(start_ts=100))
    assert fed(row("1", 1, 10), end("1", 1, a=1, ts=99), change("ALTER", 15), row("", 0, 16, ts=99)) == []
    assert fed(row("2", 1, 20), end("2", 2, a=1, ts=100)) == ["200"]


@pytest.mark.parametrize(
    "said",
    [
        [row("file=b.1,pos=9", 1, 10), row("file=b.1,pos=19", 1, 20, server="p/binlog/2")],
        [row("1", 1, 10), change("ALTER", 20, server="q/binlog/1")],
        [row("2", 1, 20), row("1", 1, 10), end("2", 1, a=1), end("1", 2, a=1)],
        [mark("1", 0, is_end=True, tables={}) | {"topic": "q.transaction"}],
        [row("1", 1, 10) | {"place": None}],
        [change("ALTER", 10) | {"place": None}],
    ],
    ids=["another server", "another connector", "out of order", "two topics", "a row elsewhere", "a change elsewhere"],
)
def test_what_tells_no_order_stops(said: list[Said]) -> None:
    """Nothing is guessed."""
    with pytest.raises(SourceError):
        Fed(queue())(*said)


def test_numbers_ascend_and_may_be_cut_between_transactions_only() -> None:
    """Each row has its own; they begin at the time of the END, or behind the transaction before."""
    one = queue()
    one.take(
        events([row("1", 1, 10), row("1", 2, 11), end("1", 1, 1000, a=2), row("2", 1, 20), end("2", 2, 7, a=1)]), 0, 0
    )
    due = one.due(0, 0.0, is_idle=False)
    assert due.rows["commit_ts"].to_pylist() == [1000, 1001, 1002]
    assert due.starts.tolist() == [1000, 1002]
    first, second = (Place(SERVER, number, number, id_, (id_,)) for number, id_ in ((11, gtid("1")), (20, gtid("2"))))
    (reaching,) = due.places
    assert reaching.behind.tolist() == [1002, 1003]
    assert [reaching.place(0), reaching.place(1)] == [first, second]
    assert Place.read(second.text()) == second


def test_where_reading_begins_anew() -> None:
    """At the first message of each partition that waits; in the topic of transactions at the BEGIN."""
    one = queue()
    one.take(events([begin("1", 4), end("1", 6, a=3), row("1", 2, 11), row("1", 1, 12), change("ALTER", 15)]), 0, 0)
    one.due(0, 0.0, is_idle=False)
    assert one.first_offsets() == {TOPIC: 4, ("p.s.a", 0): 110, ("p", 0): 15}


def test_rows_that_all_have_one_place() -> None:
    """As of a transaction of MariaDB 11.4: their numbers order them, and not the rows of their events."""
    id_ = f"0-1-{7:019}"
    rows = [
        row(id_, 1, 10, row=0, kind=Kind.DELETE, offset=1),
        row(id_, 2, 10, row=1, kind=Kind.DELETE, offset=2),
        row(id_, 3, 10, row=0, kind=Kind.INSERT, offset=3),
        row(id_, 4, 10, row=0, kind=Kind.INSERT, offset=4),
    ]
    assert Fed(queue())(*rows, *rows[:2], end(id_, 1, a=4)) == ["1", "2", "3", "4"]
    fed = Fed(queue())
    assert fed(begin(id_, 0), *rows[:2], begin(id_, 1), *rows[:2], end(id_, 2, a=2), now=100) == []
    assert fed(now=200) == []
    assert fed.queue.is_short
    assert "was begun twice: a connector before 3.7 was restarted in its midst" in fed.queue.reason


def test_rows_of_a_long_transaction_wait_on_disk() -> None:
    """Beyond what memory is to hold they wait in mapped files, whatever comes and goes before them."""
    fed = Fed(queue(most=Amount(2, 1 << 20)))
    rows = [[row("1", 1, 10)], [row("2", n, 20 + n) for n in range(1, 4)], [row("2", n, 20 + n) for n in range(4, 8)]]
    assert [fed(*some) for some in rows] == [[], [], []]
    assert fed.queue.waiting == (8, 0)
    assert fed(end("1", 1, a=1)) == ["100"]
    assert fed(end("2", 2, a=7)) == [f"{20 + n}0" for n in range(1, 8)]
    assert fed.queue.is_empty


def test_rows_behind_a_schema_change_that_did_not_wait_for_them() -> None:
    """The connector was killed before it had sent them, and came back too late: they are no copies, and stop it; a
    bridge that was restarted in between, too."""
    fed = Fed(queue())
    assert fed(row("1", 1, 10), end("1", 1, a=1), change("ALTER", 30)) == ["100"]
    assert fed(idle=True) == ["ALTER"]
    for one in (fed, Fed(queue(Place.read(fed.queue.reached.place.text())))):
        assert one(row("1", 1, 10)) == []
        with pytest.raises(SourceError, match="before a schema change that has run already"):
            one(row("2", 1, 20), end("2", 2, a=1))


@pytest.mark.parametrize("tables", ["abaac", "aaaaa"])
def test_rows_of_one_place_that_come_again_with_other_numbers(tables: str) -> None:
    """A connector before 3.7 that was killed behind the END of a transaction of MariaDB sends its rest again, numbered
    from 1: what stands in its partition behind a number that is not lower is a copy, however partitions are read."""
    id_ = f"0-1-{7:019}"
    where = list(zip(tables, [1, 0, 0, 1, 0], strict=True))

    def rows(first: int, offset: int) -> list[Said]:
        some = enumerate(where[first:], 1)
        return [row(id_, n, 10, f"s.{name}", offset=offset + n, partition=part) for n, (name, part) in some]

    def ends(offset: int, first: int) -> list[Said]:
        counts = {name: tables[first:].count(name) for name in tables[first:]}
        return [begin(id_, offset), end(id_, offset + 1, **counts)]

    sent, again, marks = rows(0, 0), rows(2, 10), ends(0, 0) + ends(2, 2)
    for read in ([*sent, *again], [*again, *sent], [again[0], *sent, *again[1:]]):
        assert Fed(queue())(*marks, *read) == ["1", "2", "3", "4", "5"]
    fed = Fed(queue())
    assert fed(*marks, *again, *sent[:-1]) == []  # the last row was not sent, and its copy has the number of another
    assert fed.queue.is_short
    fed = Fed(queue(incomplete={"0-1-7"}))
    assert fed(*marks[:2], *sent[1:]) == ["2", "3", "4", "5"]
