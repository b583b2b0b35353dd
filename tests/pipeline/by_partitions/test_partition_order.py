"""The applier of formats without boundaries: what it waits for, where it ends, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from bridge.errors import ApplyError, BadMessageError
from bridge.events import Code, RowChange, Undecodable
from bridge.filters.table_filter import TableFilter
from bridge.model import SchemaChange
from bridge.pipeline.applier import BAD_MESSAGE_GRACE_SECONDS
from bridge.pipeline.by_partitions.late_changes import unread_topics
from bridge.pipeline.by_partitions.order import POSITIONS_SECONDS
from bridge.protocols.values.event_time import place_in_binlog, place_in_gtid_set
from bridge.tso import ms_tso
from tests.support.models import Bench, give
from tests.support.upstreams import TOPIC, boundary, events_table, row_change, schema_change

Ends = Mapping[tuple[str, int], int]
BAD = Undecodable(Code.MALFORMED, "broken")


def row(ms: int, id_: int) -> RowChange:
    return row_change(ms_tso(ms), "k", ["id"], [], after=[id_])._replace(by_time=True)


def change(ms: int, text: str = "ALTER TABLE t ADD COLUMN c int") -> Any:
    return schema_change(ms_tso(ms), text)._replace(by_time=True)


def bench_of(**config: Any) -> Bench:
    """Two partitions."""
    return Bench([(TOPIC, 0), (TOPIC, 1)], by_partition=True, **config)


def test_an_idle_partition_is_waited_for_so_long() -> None:
    """And only counts as idle when all that Kafka held of it then has been read; the status names it."""
    bench = bench_of()
    bench.take((0, 0, row(1, 1)), (0, 1, change(5)), (0, 2, row(6, 2)))
    bench.ends = {(TOPIC, 1): 1}
    bench.wait(9.9)
    assert "waits until cdc/1 has passed its time or been idle for 10 s" in bench.applier.waiting_for()
    bench.wait(0.1)
    assert (bench.ran, bench.target.ids) == ([], [1])
    bench.take((1, 0, row(2, 3)))
    bench.wait(10)
    assert (len(bench.ran), bench.target.ids) == (1, [1, 3, 2])
    assert bench.applier.waiting_for() == "nothing: everything that was read is in the target"


def test_a_partition_in_the_midst_of_what_is_sent_again_is_waited_for_longer() -> None:
    bench = bench_of()
    bench.take((1, 0, row(11, 1)), (1, 1, row(21, 2)), (1, 2, row(11, 3)), (0, 0, change(31)))
    bench.wait(99)
    assert bench.ran == []
    bench.wait(1)
    assert len(bench.ran) == 1


def test_nobody_is_idle_while_kafka_does_not_answer() -> None:
    """What is left to read cannot be known."""
    bench = bench_of()
    bench.take((0, 0, change(5)))
    bench.ends = None
    bench.wait(60)
    assert bench.ran == []
    bench.ends = {(TOPIC, 1): 0}
    bench.wait(0.2)
    assert len(bench.ran) == 1


def test_a_micro_batch_that_was_cut_holds_back_what_is_later() -> None:
    """Partition 1 has more to be read, which may be a schema change; the status says so."""
    bench = bench_of()
    bench.ends = {(TOPIC, 0): 1, (TOPIC, 1): 3}
    bench.take((0, 0, row(9, 1)), (1, 0, row(5, 2)), is_cut=True)
    assert bench.target.ids == [2]
    assert "cdc/1 is still being read" in bench.applier.waiting_for()
    bench.take((1, 1, change(7)), (1, 2, row(8, 3)))
    assert (len(bench.ran), bench.target.ids) == (1, [2, 3, 1])


def test_rows_wait_for_what_came_to_a_partition_of_schema_changes_meanwhile() -> None:
    """Its end was asked before the TRUNCATE came, and that of the rows' partition later."""
    bench = bench_of()
    bench.ends = {(TOPIC, 0): 1}
    bench.take((1, 0, row(9, 1)))
    assert bench.target.ids == []
    assert "cdc/0 is still being read" in bench.applier.waiting_for()
    bench.ends = {(TOPIC, 0): 2}
    bench.take((0, 0, change(7, "TRUNCATE")), (1, 1, row(9, 2)))
    assert (bench.ran, bench.target.ids) == (["TRUNCATE"], [1, 2])
    bench.take((1, 2, row(9, 3)))
    assert bench.target.ids == [1, 2]


def test_rows_wait_only_once_for_a_partition_that_brings_none() -> None:
    """All its messages are of tables that are left out, and it never ends."""
    bench, applied = bench_of(), []
    for offset in range(6):
        bench.ends = {(TOPIC, 0): offset + 1}
        read = {(TOPIC, 0): offset, (TOPIC, 1): offset + 1}
        give(bench.applier, events_table([(1, offset, row(9, offset))]), read)
        applied.append(len(bench.target.ids))
    assert applied == [0, 2, 2, 4, 4, 6]


def test_partitions_with_rows_are_not_asked_for_their_ends() -> None:
    """It would cost each micro-batch a question."""
    bench = bench_of()
    bench.take((0, 0, row(1, 1)), (1, 0, row(2, 2)))
    bench.ends = {(TOPIC, 0): 9, (TOPIC, 1): 9}
    bench.take((0, 1, row(3, 3)))
    assert bench.target.ids == [1, 2, 3]


def test_schema_changes_outside_of_the_filter_hold_nobody_back() -> None:
    """They are neither run nor waited for."""
    bench = bench_of(tables=TableFilter(("*.*", "!m.t")))
    bench.take((0, 0, change(5)), (0, 1, row(6, 1)))
    assert (bench.ran, bench.target.ids, bench.offsets) == ([], [1], [2, 0])


def test_copies_of_other_partitions_run_once_and_repetitions_of_one_partition_again() -> None:
    """Also within one second, where MySQL has no other times; each run has a number of its own in the journal."""
    bench, ms = bench_of(), 5000
    truncate = change(ms, "TRUNCATE t")
    bench.take((0, 0, change(ms)), (1, 0, change(ms)), (0, 1, truncate), (0, 2, truncate))
    bench.applier.finish()
    assert bench.ran == ["ALTER TABLE t ADD COLUMN c int", "TRUNCATE t", "TRUNCATE t"]
    assert [found.commit_ts for found in bench.target.ran] == [ms_tso(ms), ms_tso(ms), ms_tso(ms) + 1]


def test_until_is_reached_where_a_partition_comes_to_it() -> None:
    """The target then stands there; the rest waits."""
    bench = bench_of(until=ms_tso(7))
    bench.take((0, 0, row(5, 1)), (0, 1, row(7, 2)), (0, 2, row(6, 3)), (1, 0, row(6, 4)))
    bench.applier.finish()
    assert (bench.target.ids, bench.target.applied_ts, bench.applier.order.until_reached) == ([1, 4], ms_tso(7), True)
    assert bench.applier.order.waiting.rows == 2
    assert bench.offsets == [1, 1]


def test_until_is_reached_though_the_applied_ts_has_counted_beyond_it() -> None:
    """Two schema changes of one moment, or rows of a slower partition that were read later, each count."""
    later = [(number, 2, row_change(102, "k", ["id"], [], after=[9])) for number in (0, 1)]
    changes = [schema_change(100, text) for text in ("ALTER TABLE t ADD a INT", "ALTER TABLE k ADD a INT")]
    rows = [row_change(ts, "k", ["id"], [], after=[id_]) for id_, ts in enumerate((100, 98, 99))]
    for parts in (
        [[(0, 0, changes[0]), (0, 1, changes[1]), *later]],
        [[(0, 0, rows[0]), later[0]], [(1, 0, rows[1]), (1, 1, rows[2]), later[1]]],
    ):
        bench = bench_of(until=101)
        for part in parts:
            bench.take(*part)
        bench.applier.finish()
        order = bench.applier.order
        assert (len(bench.ran) + len(bench.target.ids), order.until_reached) == (sum(map(len, parts)) - 2, True)
        assert bench.target.applied_ts == order.applied_ts > 101


def test_until_is_not_reached_by_an_input_that_ends_before() -> None:
    """Later rows below it may still come."""
    bench = bench_of(until=ms_tso(7))
    bench.take((0, 0, row(5, 1)))
    bench.applier.finish()
    assert (bench.target.ids, bench.applier.order.until_reached) == ([1], False)


def test_a_bad_message_stops_the_bridge_after_a_grace() -> None:
    """The other partitions wait; at the end of the input it stops at once."""
    bench = bench_of()
    bench.take((0, 0, row(5, 1)), (0, 1, BAD), (0, 2, row(6, 2)))
    bench.wait(BAD_MESSAGE_GRACE_SECONDS)
    bench.take((1, 0, row(9, 3)))
    assert (bench.target.ids, bench.offsets) == ([1], [1, 0])
    assert bench.applier.waiting_for() == "a bad message at cdc/0/1 stops all partitions"
    with pytest.raises(BadMessageError, match="broken"):
        bench.wait(1)
    with pytest.raises(BadMessageError, match="cdc/0/1"):
        bench.applier.finish()


def test_rows_wait_for_the_schema_change_that_makes_what_they_need() -> None:
    """So long, with what is behind them; the status says for what; then they stop the bridge as ever."""
    bench = bench_of()
    ahead = row_change(ms_tso(9000), "k", ["id", "c"], [], after=[2, 7])._replace(by_time=True)
    bench.take((0, 0, row(9000, 1)), (0, 1, ahead), (0, 2, row(9000, 3)), (1, 0, row(9000, 4)))
    assert (bench.target.ids, bench.offsets) == ([1, 4], [1, 1])
    assert bench.applier.waiting_for() == (
        "rows of m.k wait for the schema change that makes the table, or columns that the target lacks"
    )
    bench.wait(9)
    assert bench.offsets == [1, 1]
    with pytest.raises(ApplyError, match=r"the target's table m\.k lacks the column c"):
        bench.wait(2)
    assert bench.offsets == [1, 1]


def test_positions_move_where_nothing_is_applied() -> None:
    """Messages of tables that are filtered out: else Kafka would lose what progress still asks for."""
    bench = bench_of()
    bench.take((0, 0, row(5, 1)))
    bench.take((0, 7, boundary(0)), (1, 4, boundary(0)))
    bench.wait(POSITIONS_SECONDS - 1)
    assert bench.offsets == [1, 0]
    bench.wait(1)
    assert bench.offsets == [8, 5]


def read_row(ms: int, id_: int, file: int, server: int) -> RowChange:
    """A row of Debezium's connector: of a snapshot (server 0), or of a server's binlog."""
    return row(ms, id_)._replace(place=place_in_binlog("shop", f"binlog.{file:06}", 4, server))


def gtid_row(ms: int, id_: int, file: int, number: int) -> RowChange:
    """A row of Debezium's connector for MariaDB, of one server."""
    return row(ms, id_)._replace(place=place_in_binlog("shop", f"binlog.{file:06}", 4, 1, f"0-1-{number}"))


def test_a_second_snapshot_is_named_in_the_log() -> None:
    """Once; not the first one, nor what follows it."""
    bench = bench_of()
    with capture_logs() as told:
        bench.take((0, 0, read_row(1, 1, 3, 0)), (1, 0, read_row(2, 2, 3, 0)))
        bench.take((0, 1, read_row(3, 3, 3, 1)), (1, 1, read_row(4, 4, 3, 1)))
        assert [line for line in told if line["event"] == "snapshot_again"] == []
        bench.take((0, 2, read_row(5, 5, 4, 0)))
        bench.take((0, 3, read_row(6, 6, 4, 0)))
        bench.take((0, 4, read_row(7, 7, 4, 1)))
    assert [line["partitions"] for line in told if line["event"] == "snapshot_again"] == ["cdc/0"]


@pytest.mark.parametrize("read_together", [True, False])
def test_a_snapshot_right_behind_another_is_named_too(read_together: bool) -> None:
    """A connector that dies before it follows the binlog reads all tables again."""
    bench, rows = bench_of(), [(0, 0, read_row(1, 1, 3, 0)), (0, 1, read_row(2, 2, 3, 0)), (0, 2, read_row(1, 3, 4, 0))]
    with capture_logs() as told:
        for some in [rows] if read_together else [[row] for row in rows]:
            bench.take(*some)
    assert [line["partitions"] for line in told if line["event"] == "snapshot_again"] == ["cdc/0"]


@pytest.mark.parametrize("partition", [0, 1])
def test_a_snapshot_of_a_lower_place_is_named_once(partition: int) -> None:
    """Of a promoted server, or behind RESET MASTER: not again with each micro-batch of it, nor with those of others."""
    bench = bench_of()
    bench.take((0, 0, read_row(1, 1, 3, 0)), (0, 1, read_row(2, 2, 3, 1)))
    with capture_logs() as told:
        bench.take((0, 2, read_row(3, 3, 1, 0)))
        for number in range(3, 6):
            bench.take((partition, number, read_row(number + 1, number + 1, 1, 0)))
    assert [line["partitions"] for line in told if line["event"] == "snapshot_again"] == ["cdc/0"]


def gtids(ms: int, id_: int, text: str) -> RowChange:
    """A row of official Canal."""
    return row(ms, id_)._replace(place=place_in_gtid_set(text))


SERVERS = {
    "Debezium": ([read_row(1, 1, 3, 0), read_row(2, 2, 3, 1)], [read_row(3, 3, 1, 2), read_row(4, 4, 1, 2)]),
    "RESET MASTER": ([read_row(1, 1, 2, 1), read_row(2, 2, 3, 1)], [read_row(3, 3, 1, 1), read_row(4, 4, 1, 1)]),
    "RESET MASTER, GTIDs": (
        [gtid_row(1, 1, 3, 7), gtid_row(2, 2, 3, 8)],
        [gtid_row(3, 3, 1, 9), gtid_row(4, 4, 1, 10)],
    ),
    "Canal": ([gtids(1, 1, "a:1-7"), gtids(2, 2, "a:1-8")], [gtids(3, 3, "a:1-8,b:1-1"), gtids(4, 4, "a:1-8,b:1-2")]),
}


@pytest.mark.parametrize(("before", "behind"), SERVERS.values(), ids=SERVERS)
def test_the_next_server_is_named_in_the_log(before: list[RowChange], behind: list[RowChange]) -> None:
    """Once; no message tells whether it has what the one before had sent, nor what a sender passed over in a binlog
    that began anew (RESET MASTER), whose GTIDs may go on as if nothing had been."""
    bench = bench_of()
    with capture_logs() as told:
        bench.take(*((0, number, one) for number, one in enumerate(before)))
        assert told == [line for line in told if line["event"] != "next_server"]
        for number, one in enumerate(behind, len(before)):
            bench.take((0, number, one))
            bench.take((1, number, row(number + 1, 10 + number)))
    assert [line["partitions"] for line in told if line["event"] == "next_server"] == ["cdc/0"]


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("CREATE TABLE `new` (id INT)", {"shop.new": "p.shop.new"}),
        ("CREATE TABLE `a-b c` (id INT)", {"shop.a-b c": "p.shop.a-b_c"}),
        ("RENAME TABLE orders TO old_orders", {"shop.old_orders": "p.shop.old_orders"}),
        ("ALTER TABLE orders RENAME TO shop.old_orders", {"shop.old_orders": "p.shop.old_orders"}),
        *(("CREATE TABLE orders (id INT)", {}), ("ALTER TABLE new ADD COLUMN c INT", {}), ("DROP TABLE new", {})),
        ("nonsense", {}),
    ],
)
def test_a_table_whose_topic_is_not_read_is_known(text: str, unread: dict[str, str]) -> None:
    """Debezium sends its rows to a topic of its own, named after it."""
    change = SchemaChange(1, "shop", "", text, "p/0/7")
    found = unread_topics(change, {"p", "p.shop.orders"})
    assert {str(name): topic for name, topic in found.items()} == unread
    assert unread_topics(change, {"p", "others"}) == {}


def test_a_table_whose_topic_is_not_read_is_named_in_the_log() -> None:
    """With what to do, and from where on."""
    bench = Bench([(TOPIC, 0), (f"{TOPIC}.shop.orders", 0)], by_partition=True)
    made = change(1, "CREATE TABLE shop.new (id INT)")._replace(schema="shop")
    with capture_logs() as told:
        bench.take((0, 0, made))
        bench.applier.finish()
    [line] = [line for line in told if line["event"] == "table_is_not_read"]
    assert (line["table"], line["topic"]) == ("shop.new", "cdc.shop.new")
    assert line["fix"].startswith("where Kafka has this topic (no transform renames it), start")
    assert f"--topic cdc.shop.new@{ms_tso(1)}" in line["fix"]
