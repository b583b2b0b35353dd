"""`bridge ctl` and a pipeline that follows it: what is set, what is said, and what reaches the target."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pymysql.err import MySQLError

from bridge.commands.ctl import TAKE_UP_SECONDS
from bridge.errors import OwnedError
from bridge.local import MariaDB
from bridge.mysql.connection.target import Target
from bridge.mysql.state.controls import ControlTable
from bridge.mysql.state.progress import ProgressTable
from bridge.pipeline.applier import ApplierThread, Interrupted
from bridge.pipeline.heartbeat import Heartbeat
from bridge.pipeline.steering import BEING_READ, NO_REPLICAS, Gate, Limits, LoadWatch, Steering
from bridge.spark.decoded_batch import DecodedBatch
from tests.support.command import Ended, bridge
from tests.support.pipelines import Pipeline, admin, opened, sql
from tests.support.proxy import Proxy, port_of
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change
from tests.support.waiting import at_work, wait_for

EVENTS = [
    schema_change(10, "CREATE DATABASE m", table=""),
    schema_change(11, "CREATE TABLE t (id INT PRIMARY KEY)"),
    *(row_change(20 + number // 5, "t", ["id"], ["id"], after=[number]) for number in range(30)),
    boundary(40),
]
"""Six transactions of five rows."""


@pytest.fixture
def known(target: str) -> str:
    """A target that knows the pipeline `bridge`."""
    with opened(target, [("cdc", 0)]):
        return target


def ctl(target: str, *arguments: str) -> Ended:
    return bridge("ctl", *arguments, "--target", target)


def steering_of(target: str, *replicas: str, tell: Callable[[Mapping[str, Any]], object] = dict) -> Steering:
    """What follows `bridge ctl`, without its threads."""
    server, table = Target(target), ProgressTable("bridge")
    load = LoadWatch(server, table, [Target(url) for url in replicas])
    return Steering(server, ControlTable("bridge"), load, tell)


def test_what_is_set_is_shown_and_lifted(known: str) -> None:
    """By `ctl`, and by `status`; with who and since when."""
    assert ctl(known, "show").out == "bridge: nothing is set\n"
    assert ctl(known, "pause").out.endswith("no bridge runs this pipeline now; the next one takes it up at its start\n")
    first = json.loads(ctl(known, "pause", "--json").out)["pause"]
    ctl(known, "rate", "500")
    shown = ctl(known, "throttle", "Threads_running=40", "replica_lag=2.5").out.splitlines()
    assert [line.split(" by ")[0] for line in shown[:-1]] == [
        "bridge: paused",
        "bridge: at most 500 row changes a second, set",
        "bridge: throttled above Threads_running=40, replica_lag=2.5, set",
    ]
    status = json.loads(bridge("status", "--json", "--target", known).out)["controls"]
    assert status["pause"] == first
    assert {kind: control["value"] for kind, control in status.items()} == {
        "pause": "",
        "rate": "500",
        "throttle": "Threads_running=40,replica_lag=2.5",
    }
    assert "steered  " in bridge("status", "--target", known).out.replace("         ", "  ")
    for lifting in (("resume",), ("rate", "0"), ("throttle", "off")):
        assert ctl(known, *lifting).code == 0
    assert ctl(known, "show").out == "bridge: nothing is set\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("rate", "fast"), "'fast' is no number of row changes a second"),
        (("rate", "1.5"), "no number"),
        (("throttle", "Threads_runing=40"), "did you mean Threads_running? "),
        (("throttle", "Threads_running"), "write it as Threads_running=25"),
        (("throttle", "Slave_running=1"), "is 'OFF', no number"),
        (("--name", "x", "pause"), "--name"),
        (("stop",), "stop"),
    ],
)
def test_a_typo_is_refused_with_what_is_allowed(known: str, arguments: tuple[str, ...], words: str) -> None:
    """Exit 2, and nothing is set."""
    ended = ctl(known, *arguments)
    assert ended.code == 2
    assert words in ended.err
    assert sql(known, "SELECT * FROM _bridge.controls") == []


def test_an_unknown_pipeline_and_a_read_only_target(known: str) -> None:
    """As in `status`: exit 1; and what could not be kept is refused."""
    ended = ctl(known, "pause", "--name", "other")
    assert (ended.code, "knows no pipeline 'other'" in ended.err) == (1, True)
    with admin(known) as session:
        session.execute("SET GLOBAL read_only = 1")
        try:
            assert ctl(known, "pause").code == 3
        finally:
            session.execute("SET GLOBAL read_only = 0")


def test_reset_forgets_it(known: str) -> None:
    """A new pipeline of that name is not paused."""
    ctl(known, "pause")
    assert bridge("reset", "--yes", "--target", known).code == 0
    assert sql(known, "SELECT * FROM _bridge.controls") == []


def test_nothing_is_applied_before_it_was_read(known: str) -> None:
    """A bridge that starts while it is paused must not write first."""
    steering = steering_of(known)
    assert steering.gate.waiting_for == BEING_READ
    steering.read()
    assert steering.gate.waiting_for == ""


def test_a_pause_holds_between_two_transactions(target: str) -> None:
    """Rows and schema changes wait; no transaction is open meanwhile; what follows is what would have come."""
    gate = Gate(Limits(paused="paused by ops@host"))
    with opened(target, [("cdc", 0)], gate=gate, rows_per_transaction=5) as pipeline:
        with at_work(lambda: pipeline.take(in_one_partition(EVENTS))):
            assert pipeline.applier.waiting_for() == "paused by ops@host"
            wait_for(lambda: pipeline.applier.order.resolved_ts == 40, "the boundary has not come")
            assert sql(target, "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_rows_modified > 0") == [
                (0,)
            ]
            assert sql(target, "SHOW DATABASES LIKE 'm'") == []
            gate.limits = Limits()
        assert sql(target, "SELECT COUNT(*) FROM m.t") == [(30,)]
        assert pipeline.applier.is_paused is False


def test_a_paused_applier_takes_one_batch_and_holds_another(target: str) -> None:
    """So that reading stops, and memory is bounded, however long the pause is; the thread ends when it is asked to."""
    gate = Gate(Limits(paused="paused"))
    with opened(target, [("cdc", 0)], gate=gate) as pipeline:
        thread = ApplierThread(pipeline.applier, ())
        thread.start()
        batches = [DecodedBatch.of(in_one_partition(EVENTS)) for _ in range(3)]
        assert [thread.offer(batch, lambda: False) for batch in batches[:2]] == [True, True]
        looks = iter([False, False, True])
        assert not thread.offer(batches[2], lambda: next(looks))
        assert thread.stop(60)
    assert sql(target, "SHOW DATABASES LIKE 'm'") == []


def test_a_stop_ends_a_paused_applier(target: str) -> None:
    """At once, with nothing more applied."""
    gate = Gate(Limits(paused="paused"))
    with (
        opened(target, [("cdc", 0)], gate=gate) as pipeline,
        pytest.raises(Interrupted),
        at_work(lambda: pipeline.take(in_one_partition(EVENTS))),
    ):
        pipeline.applier.interrupt()
    assert sql(target, "SHOW DATABASES LIKE 'm'") == []


def test_a_rate_makes_transactions_smaller(target: str) -> None:
    """Five rows a second: one upstream transaction each, never less; all of it arrives."""
    gate = Gate(Limits(rate=1000, rate_reason="limited"))
    with opened(target, [("cdc", 0)], gate=gate, rows_per_transaction=1000) as pipeline:
        portion = gate.portion
        gate.portion = lambda most: portion(most)._replace(rows=5)  # type: ignore[method-assign]
        pipeline.take(in_one_partition(EVENTS))
        assert pipeline.writer.counts.transactions >= 6
        assert sql(target, "SELECT COUNT(*) FROM m.t") == [(30,)]


def test_a_throttle_holds_back_while_the_target_is_busy(known: str) -> None:
    """With the variable, its value and its limit as the reason; one that the target has no more is said too."""
    ctl(known, "throttle", "Threads_connected=0")
    steering = steering_of(known)
    steering.read()
    assert steering.gate.waiting_for == ""
    assert steering.gate.busy
    steering.measure()
    assert steering.gate.busy.startswith("Threads_connected of the target is ")
    assert steering.gate.busy.endswith(", above 0")
    ctl(known, "throttle", "Threads_connected=100000")
    steering.read()
    steering.measure()
    assert steering.gate.busy == ""
    sql(known, "UPDATE _bridge.controls SET value = 'Gone=1'", "SELECT 1")
    steering.read()
    steering.measure()
    assert steering.gate.busy == "the target has no status variable Gone, and it is limited"
    ctl(known, "throttle", "off")
    steering.read()
    assert steering.gate.busy == ""
    steering._session.close()
    steering._load.close()


def test_a_replica_that_is_behind_holds_back(known: str, old_mariadb: MariaDB, old_target: str) -> None:
    """By the bridge's heartbeat, which a replica gets behind everything else; one without it, or that does not answer,
    holds back too."""
    ctl(known, "throttle", "replica_lag=30")
    steering = steering_of(known)
    steering.read()
    steering.measure()
    assert steering.gate.busy == NO_REPLICAS
    with opened(old_target, [("cdc", 0)]):
        pass
    steering = steering_of(known, old_target)
    steering.read()
    busy = {}
    for late in (0, 20, 100):
        sql(known, "UPDATE _bridge.owner SET heartbeat_at = FROM_UNIXTIME(1900000000)", "SELECT 1")
        sql(old_target, f"UPDATE _bridge.owner SET heartbeat_at = FROM_UNIXTIME(1900000000 - {late})", "SELECT 1")
        steering.measure()
        busy[late] = steering.gate.busy
    place = Target(old_mariadb.url).place
    assert busy == {0: "", 20: "", 100: f"the replica {place} is 100 s behind, above 30"}
    sql(old_target, "DELETE FROM _bridge.owner", "SELECT 1")
    steering.measure()
    assert steering.gate.busy == f"the replica {place} has no heartbeat of the bridge"
    steering._load.close()
    steering = steering_of(known, "mysql://root@127.0.0.1:1/")
    steering.read()
    steering.measure()
    assert steering.gate.busy.startswith("the replica 127.0.0.1:1 does not tell how far it is")


def test_the_command_waits_until_it_is_taken_up(target: str) -> None:
    """And says by whom and after how long; what the bridge says is what it follows.  A bridge that does not take it up
    is named."""
    with opened(target, [("cdc", 0)]) as owner, heart_of(owner) as heart:
        steering = steering_of(target, tell=heart.tell)
        with at_work(lambda: wait_for(lambda: follows(steering, "pause"), "it is not paused")):
            paused = json.loads(ctl(target, "pause", "--json").out)
        assert paused["taken_up"]["by"].startswith("process ")
        assert 0 <= paused["taken_up"]["seconds"] < TAKE_UP_SECONDS
        with at_work(lambda: wait_for(lambda: not follows(steering, "pause"), "it is still paused")):
            resumed = ctl(target, "resume").out.splitlines()
        assert resumed[0] == "bridge: nothing is set"
        assert re.fullmatch(r"bridge: taken up by process \d+ on \S+ after \d\.\d s", resumed[1])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bridge.commands.ctl.TAKE_UP_SECONDS", 0.1)
            assert "has not taken it up within 0.1 s; see its log, and bridge status" in ctl(target, "pause").out
        steering._session.close()


def heart_of(owner: Pipeline) -> Heartbeat:
    """One that beats only when it has something to tell."""
    return Heartbeat(owner.ownership, owner.writer, print, 60)


def follows(steering: Steering, kind: str) -> bool:
    """Takes up what is set, as its thread would."""
    steering.read()
    return kind in {control.value for control in steering._controls_now}


def test_a_pause_outlives_a_take_over(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new owner is paused as the old one was, and nothing is applied; when it is lifted the new one goes on, and
    the old one, which had the same rows in hand, applies none of them."""
    monkeypatch.setattr("bridge.mysql.state.ownership._PATIENCE_SECONDS", 1)
    monkeypatch.setattr("bridge.commands.ctl.TAKE_UP_SECONDS", 0)  # neither bridge has a heartbeat to tell it
    ended: list[int] = []

    def take(pipeline: Pipeline) -> None:
        try:
            pipeline.take(in_one_partition(EVENTS))
        except OwnedError as error:
            ended.append(error.exit_code)

    old, new = steering_of(target), steering_of(target)
    with opened(target, [("cdc", 0)], gate=old.gate) as first:
        ctl(target, "pause")
        old.read()
        with at_work(lambda: take(first)):
            wait_for(lambda: first.applier.order.resolved_ts == 40, "the boundary has not come")
            with opened(target, [("cdc", 0)], gate=new.gate, take_over=True) as second:
                new.read()
                with at_work(lambda: take(second)):
                    wait_for(lambda: second.applier.order.resolved_ts == 40, "the boundary has not come")
                    assert second.applier.waiting_for().startswith("paused by ")
                    assert sql(target, "SHOW DATABASES LIKE 'm'") == []
                    ctl(target, "resume")
                    old.read()
                    wait_for(lambda: ended == [5], "it has not ended")
                    assert sql(target, "SHOW DATABASES LIKE 'm'") == []
                    new.read()
                assert sql(target, "SELECT COUNT(*) FROM m.t") == [(30,)]
    assert ended == [5]
    for steering in (old, new):
        steering._session.close()


def test_a_throttle_while_the_target_is_away(known: str) -> None:
    """What was measured last counts until the target answers again; then new limits are read, and it is measured
    anew."""
    ctl(known, "throttle", "Threads_connected=0")
    with Proxy(port_of(known)) as way:
        steering = steering_of(known.replace(f":{port_of(known)}", f":{way.port}"))
        steering.read()
        steering.measure()
        assert steering.gate.busy.startswith("Threads_connected of the target is ")
        way.refuse()
        ctl(known, "throttle", "Threads_connected=100000")
        for look in (steering.read, steering.measure, steering.measure):
            with pytest.raises((MySQLError, OSError)):
                look()
            assert steering.gate.busy.startswith("Threads_connected of the target is ")
        way.go_on()
        steering.read()
        steering.measure()
        assert steering.gate.busy == ""
        steering._session.close()
        steering._load.close()


def test_it_is_followed_while_the_block_lasts(known: str) -> None:
    """The threads take it up by themselves; a target that is away changes nothing of what was read."""
    with steering_of(known) as steering:
        wait_for(lambda: steering.gate.waiting_for == "", "it still waits")
        ctl(known, "pause")
        wait_for(lambda: steering.gate.is_paused, "it is not paused")
        assert steering.gate.waiting_for.startswith("paused by ")
        sql(known, "RENAME TABLE _bridge.controls TO _bridge.away", "SELECT 1")
        steering._session.close()
        ctl_table = steering.gate.limits
        sql(known, "RENAME TABLE _bridge.away TO _bridge.controls", "SELECT 1")
        assert steering.gate.limits == ctl_table
        ctl(known, "resume")
        wait_for(lambda: not steering.gate.is_paused, "it is still paused")
