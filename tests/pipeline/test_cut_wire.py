"""The wire to the target is cut, delayed and stalled at every place of a transaction, by a proxy."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import LostConnectionError
from tests.support import proxy as wire
from tests.support.pipelines import Pipeline, admin, opened, sql
from tests.support.proxy import Fault, Link, Proxy, port_of
from tests.support.upstreams import boundary, in_one_partition, row_change

TIMEOUT_SECONDS = 0.3
CASES = 50
K = "CREATE TABLE m.k (a INT, b INT)"
T = "CREATE TABLE m.t (id INT PRIMARY KEY, v VARCHAR(300))"
QUICK = (wire.cut_before, wire.cut_within, wire.cut_after, wire.keep_at_server, wire.truncate)
STALLS = (wire.stall_before, wire.stall_after)
LOAD_ROWS = 3000


@pytest.fixture(autouse=True)
def _login(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is not made in time is given up soon, and not too soon for a busy machine."""
    monkeypatch.setattr("bridge.mysql.connection.target.LOGIN_SECONDS", 1.5)


@pytest.fixture
def wired(target: str) -> Iterator[tuple[str, Proxy]]:
    """The URL of the target behind a proxy; tables with and without a key.  The server waits for the rows of a load for
    a second (net_read_timeout), after which it knows nothing more of the connection."""
    (before,) = sql(target, "SELECT @@GLOBAL.net_read_timeout")[0]
    with Proxy(port_of(target), wire.mysql_packets) as proxy:
        sql(target, "SET GLOBAL net_read_timeout = 1", "CREATE DATABASE m", K, T, "SELECT 1")
        yield f"mysql://root@127.0.0.1:{proxy.port}/", proxy
    sql(target, f"SET GLOBAL net_read_timeout = {before}", "SELECT 1")


def take(pipeline: Pipeline, number: int, rows: int = 2) -> None:
    """One transaction: the same row of a table without a key twice, and rows of one that has one."""
    ts = 10 * number
    keyless = [row_change(ts, "k", ["a", "b"], [], after=[number, 0]) for _ in range(2)]
    keyed = [row_change(ts, "t", ["id", "v"], ["id"], after=[id_, f"{number}" * 60]) for id_ in range(rows)]
    events = [*keyless, *keyed, boundary(ts + 1)]
    pipeline.take(in_one_partition(events, start=(rows + 3) * (number - 1)))


def test_a_wire_that_is_cut_behind_the_login_is_told_once(
    wired: tuple[str, Proxy], caplog: pytest.LogCaptureFixture
) -> None:
    """By the error alone: the driver's pool logs nothing of a connection that nobody ever had."""
    url, proxy = wired
    fault = proxy.arm(Fault("the first statement", wire.query("CONNECTION_ID"), wire.cut_before))
    with pytest.raises(LostConnectionError):
        Target(url).connect()
    assert fault.happened.is_set()
    assert [record.getMessage() for record in caplog.records] == []


def faults(seed: int) -> Iterator[Callable[[Link, bytes], None]]:
    """Few stalls: they take as long as the timeout."""
    dice = random.Random(seed)
    for number in range(CASES):
        yield dice.choice(STALLS) if number % 16 == 9 else dice.choice((*QUICK, wire.late(dice.random() / 5)))


@pytest.mark.parametrize("writers", [0, 2])
def test_the_outcome_of_a_commit_without_an_answer_is_found_out(
    target: str, wired: tuple[str, Proxy], writers: int
) -> None:
    """Committed, not committed, or on its way still when the bridge is back: 50 of 50, each row of a table without a
    key is there as often as it should."""
    url, proxy = wired
    with opened(url, [("cdc", 0)], timeout_seconds=TIMEOUT_SECONDS, writers=writers) as pipeline:
        for number, act in enumerate(faults(7), 1):
            fault = proxy.arm(Fault("commit", wire.commit, act))
            take(pipeline, number)
            assert fault.happened.is_set()
            counted = sql(target, "SELECT COUNT(*) FROM m.k GROUP BY a ORDER BY a")
            assert counted == [(2,)] * number, act
            assert sql(target, "SELECT COUNT(*), MIN(v) FROM m.t") == [(2, f"{number}" * 60)]


PLACES = {
    "the compare-and-set": wire.query("applied_ts = "),
    "a statement": wire.query("INSERT INTO `m`.`k`"),
    "LOAD DATA": wire.query("LOAD DATA"),
    "its rows": wire.rows_of_load,
}


@pytest.mark.parametrize("place", PLACES)
def test_a_wire_that_is_cut_within_a_transaction(target: str, wired: tuple[str, Proxy], place: str) -> None:
    """Before, within and after what is sent there, and stalled: nothing is lost, nothing comes twice."""
    url, proxy = wired
    with opened(url, [("cdc", 0)], timeout_seconds=TIMEOUT_SECONDS) as pipeline:
        for number, act in enumerate((*QUICK, *STALLS, wire.late(0.1)), 1):
            fault = proxy.arm(Fault(place, PLACES[place], act))
            take(pipeline, number, LOAD_ROWS)
            assert fault.happened.is_set(), act
            assert sql(target, "SELECT COUNT(*) FROM m.k GROUP BY a ORDER BY a") == [(2,)] * number, act
            assert sql(target, "SELECT COUNT(*), MIN(v), MAX(v) FROM m.t") == [
                (LOAD_ROWS, f"{number}" * 60, f"{number}" * 60)
            ]


@pytest.mark.parametrize("greeting", [Link.close, lambda link: setattr(link, "is_silent", True)])
def test_a_handshake_that_fails(target: str, wired: tuple[str, Proxy], greeting: Callable[[Link], None]) -> None:
    """Cut or stalled: it is tried anew."""
    url, proxy = wired
    with opened(url, [("cdc", 0)], timeout_seconds=TIMEOUT_SECONDS) as pipeline:
        proxy.arm(Fault("commit", wire.commit, wire.cut_before))
        proxy.greet_by(greeting)
        take(pipeline, 1)
    assert sql(target, "SELECT COUNT(*) FROM m.k") == [(2,)]


def test_a_server_that_is_still_working_is_waited_for(target: str, wired: tuple[str, Proxy]) -> None:
    """However long that takes: a lock that somebody holds, like a schema change, is no reason to break off."""
    url, _ = wired
    with opened(url, [("cdc", 0)], timeout_seconds=TIMEOUT_SECONDS) as pipeline, admin(target) as rival:
        rival.execute("LOCK TABLES m.k WRITE")
        closing = threading.Timer(4 * TIMEOUT_SECONDS, rival.close)
        closing.start()
        take(pipeline, 1)
        closing.join()
        assert pipeline.writer.end.retries == 0
    assert sql(target, "SELECT COUNT(*) FROM m.k") == [(2,)]


def test_what_a_silent_server_says(url: str) -> None:
    """It is waited for while it works; a server that knows nothing of the connection, or cannot be asked, has lost
    it."""
    with Proxy(port_of(url), wire.mysql_packets) as proxy:
        target = Target(f"mysql://root@127.0.0.1:{proxy.port}/", timeout_seconds=TIMEOUT_SECONDS)
        session = target.connect()
        assert session.value(f"SELECT SLEEP({3 * TIMEOUT_SECONDS})") == 0
        proxy.arm(Fault("answer", wire.query("SELECT 7"), wire.stall_after))
        with pytest.raises(LostConnectionError, match="the network keeps it back"):
            session.value("SELECT 7")
        session.close()
        session = target.connect()
        proxy.stall()
        began = time.monotonic()
        with pytest.raises(LostConnectionError, match="nor to another connection"):
            session.value("SELECT 7")
        assert time.monotonic() - began < 20 * TIMEOUT_SECONDS
        session.close()
