"""A schema change of a Canal without GTIDs, and rows of other partitions beside it."""

from __future__ import annotations

import cProfile
from typing import Any

import pytest
from structlog.testing import capture_logs

from bridge.events import NO_PRIMARY_KEY, RowChange
from bridge.model import PartitionStart
from bridge.pipeline.by_partitions.partition_backlog import PartitionBacklog
from bridge.protocols.values.event_time import place_of_sending
from bridge.tso import ms_tso
from tests.support.models import partition_backlog, prefixes, steps_of, take_in
from tests.support.upstreams import TOPIC, Change, events_table, row_change, schema_change

SECOND = 1_790_000_000_000
MADE = SECOND + 3_400
"""When Canal made the message of the schema change, of its batch 7."""


def row(es: int, made: int, batch: int, table: str = "t") -> RowChange:
    return row_change(ms_tso(SECOND + es), table, ["id"], ["id"], after=[1])._replace(
        by_time=True, place=place_of_sending(MADE + made, batch)
    )


def change(text: str, made: int = 0, batch: int = 7) -> Any:
    return schema_change(ms_tso(SECOND), text)._replace(by_time=True, place=place_of_sending(MADE + made, batch))


def end_of(*placed: tuple[int, int, Change]) -> str:
    """On which side of the first schema change the first row came, or that it was held."""
    steps = steps_of(prefixes(2, *placed), at_end=True)
    number = next(number for number, step in enumerate(steps) if step.changes)
    rows = sum(step.rows.num_rows for step in steps[: number + 1])
    return "held" if steps[number].changes[0].doubt else "before" if rows else "behind"


def doubts_of(held: PartitionBacklog, words: str) -> list[bool]:
    """Whether each schema change that is due at the end is in doubt with these words."""
    return [words in change.doubt for step in steps_of(held, at_end=True) for change in step.changes]


@pytest.mark.parametrize(
    ("beside", "end"),
    [
        (row(2_000, -100, 6), "before"),  # it waited for a lock, and is dated by its start
        (row(0, 100, 8), "behind"),  # in its second
        (row(2_000, 100, 8), "behind"),
        (row(0, -1, 7), "before"),  # a batch is in the order of the binlog
        (row(0, 1, 7), "behind"),
        (row(0, 0, 7), "held"),  # made in one millisecond
        (row(2_000, 0, 7), "held"),
        (row(-1_000, 0, 7), "before"),
        (row(0, 0, 7, "u"), "before"),  # of another table
        (row(0, 9_000, 2), "held"),  # Canal was restarted in between
        (row(0, -9_000, 90), "held"),
        (row(90_000, 90_000, 2), "behind"),  # restarted, far away
        (row(-90_000, -90_000, 90), "before"),
        (row(-1_000, 100, 8), "held"),  # dated before, sent behind: sent again, or it waited elsewhere
        (row(-90_000, 100, 8), "before"),
        (row(90_000, 0, 7), "behind"),  # made in one millisecond, far away, as while Canal catches up
        (row(-90_000, 0, 7), "before"),
        (row(0, 0, 7)._replace(place=None), "before"),
    ],
)
def test_the_sending_tells_on_which_side_a_row_is(beside: Change, end: str) -> None:
    """Where it does not, a schema change that takes rows away is held, but never for rows that are far away."""
    assert end_of((0, 0, change("TRUNCATE TABLE t")), (1, 0, beside)) == end


def _without_place(event: Change, **fields: Any) -> Change:
    return event._replace(place=None, **fields)


@pytest.mark.parametrize(
    ("beside", "end"),
    [
        (row(-1_000, 0, 0), "before"),
        (row(0, 0, 0), "held"),
        (row(59_000, 0, 0), "held"),  # dated behind its start, for whose lock it waited
        (row(61_000, 0, 0), "behind"),
        (row(0, 0, 0, "u"), "before"),
        (row(7, 0, 0), "held"),  # of a clock in milliseconds
        (row(1_007, 0, 0), "behind"),
        (row(1_000, 0, 0)._replace(by_time=False), "behind"),
    ],
)
def test_without_places_and_sendings_the_second_is_unclear(beside: Change, end: str) -> None:
    """CKafka's format tells no more than when a statement began, in whole seconds."""
    assert end_of((0, 0, _without_place(change("TRUNCATE TABLE t"))), (1, 0, _without_place(beside))) == end


def test_without_places_a_row_waits_for_each_schema_change_of_its_second() -> None:
    """It may be behind the last one, so it does not come before the first one."""
    changes = [_without_place(change(text)) for text in ("CREATE TABLE u LIKE t", "DROP TABLE t")]
    held = prefixes(2)
    for number, one in enumerate(changes):
        take_in(held, (0, number, one))
        assert steps_of(held) == []
    take_in(held, (1, 0, _without_place(row(0, 0, 0))))
    steps = steps_of(held, at_end=True)
    assert [(step.rows.num_rows, [bool(one.doubt) for one in step.changes]) for step in steps] == [
        (0, [False]),
        (0, [True]),
        (1, []),
    ]


@pytest.mark.parametrize(
    ("texts", "end"),
    [
        (("ALTER TABLE t DROP COLUMN c", "ALTER TABLE t ADD COLUMN c INT"), "held"),
        (("ALTER TABLE t DROP COLUMN c", "ALTER TABLE t ADD COLUMN d INT"), "before"),
        (("ALTER TABLE t DROP COLUMN c", "ALTER TABLE u ADD COLUMN c INT"), "before"),
        (("ALTER TABLE t RENAME COLUMN c TO d", "ALTER TABLE t RENAME COLUMN e TO c"), "held"),
        (("ALTER TABLE t DROP COLUMN c, ADD COLUMN c INT",), "held"),
        (("ALTER TABLE t RENAME COLUMN c TO d, RENAME COLUMN d TO c",), "held"),
        (("ALTER TABLE t CHANGE c c BIGINT",), "before"),
        (("ALTER TABLE t ADD COLUMN c INT",), "behind"),
    ],
)
@pytest.mark.parametrize("is_canal", [False, True])
def test_a_column_that_is_dropped_and_made_again_in_one_second(
    texts: tuple[str, ...], end: str, is_canal: bool
) -> None:
    """A row with such a column may be of before or behind it."""
    beside = row(0, 0, 7)._replace(columns="id\0c", after="1\0" + "2")
    placed = [*map(change, texts), beside]
    if not is_canal:
        placed = [_without_place(event) for event in placed]
    assert end_of(*((0, n, one) for n, one in enumerate(placed[:-1])), (1, 0, placed[-1])) == end


def test_without_places_a_time_in_milliseconds_is_clear() -> None:
    """TiCDC's is the time of the commit."""
    ts = ms_tso(SECOND + 7)
    made = _without_place(change("TRUNCATE TABLE t"), commit_ts=ts)
    assert end_of((0, 0, made), (1, 0, _without_place(row(1_000, 0, 0)))) == "behind"


@pytest.mark.parametrize("text", ["DROP TABLE t", "RENAME TABLE t TO u", "RENAME TABLE a TO t", "DROP DATABASE m",
    "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u", "ALTER TABLE t DROP PARTITION p",
    "ALTER TABLE t TRUNCATE PARTITION p", "ALTER TABLE t RENAME TO u", "ALTER TABLE t DROP PRIMARY KEY",
    "DROP INDEX u ON t", "ALTER TABLE t DROP CONSTRAINT u", "ALTER TABLE t MODIFY k VARCHAR(9) COLLATE utf8mb4_bin",
    "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4"])  # fmt: skip
def test_what_takes_rows_or_keys_away_is_held(text: str) -> None:
    """No error tells that a row came on the wrong side of it: rows that differ would overwrite each other before it."""
    assert end_of((0, 0, change(text)), (1, 0, row(0, 0, 7))) == "held"


@pytest.mark.parametrize("text", ["ALTER TABLE t ADD INDEX i (id)", "ALTER TABLE t ADD COLUMN v INT",
    "CREATE TABLE m.w (id INT)", "ALTER TABLE t MODIFY v BIGINT"])  # fmt: skip
def test_what_takes_no_row_away_is_not_held(text: str) -> None:
    """Its rows are right on either side, or tell by their columns."""
    assert end_of((0, 0, change(text)), (1, 0, row(0, 0, 7))) == "before"


def test_of_a_batch_that_was_sent_again_the_second_is_unclear() -> None:
    """What came for the first time behind the schema change may have failed before it."""
    again = change("TRUNCATE TABLE t", 40, 8)
    assert end_of((0, 0, change("TRUNCATE TABLE t")), (0, 1, again), (1, 0, row(0, 39, 8))) == "held"


def test_rows_that_come_again_behind_later_ones_hold_nothing() -> None:
    """They were sent again: what they tell was on the other side, or comes twice."""
    rows = (row(20_000, 100, 8), row(0, 9_000, 2))
    assert end_of((0, 0, change("TRUNCATE TABLE t")), *((1, n, one) for n, one in enumerate(rows))) == "behind"


def test_a_row_in_the_target_that_may_be_behind_it_holds_it() -> None:
    """The schema change was read too late."""
    held = prefixes(2, (1, 0, row(0, 100, 8)))
    assert [step.rows.num_rows for step in steps_of(held, at_end=True)] == [1]
    take_in(held, (0, 0, change("TRUNCATE TABLE t")))
    assert doubts_of(held, "came too late") == [True]


MADE_AT = [(0, 0, 7), (2_000, 10, 8), (0, 9_000, 1), (2_000, 9_000, 1), (3_000, 9_000, 2), (2_000, 9_001, 2)]
KEYLESS = [row(*at)._replace(key=NO_PRIMARY_KEY) for at in MADE_AT]


@pytest.mark.parametrize(
    ("placed", "taken", "is_said"),
    [
        (KEYLESS[:1], 9, True),
        (KEYLESS[:4], 2, True),  # once
        ([one._replace(key="id") for one in KEYLESS], 9, False),
    ],
)
def test_rows_without_a_key_of_a_canal_without_gtids_are_named(placed: list[Change], taken: int, is_said: bool) -> None:
    """They may be sent again, which nothing tells where Kafka refused a batch."""
    held, events = prefixes(1), [(0, n, one) for n, one in enumerate(placed)]
    with capture_logs() as logs:
        for first in range(0, len(placed), taken):
            take_in(held, *events[first : first + taken])
            assert len(steps_of(held)) == 1
    assert [one["table"] for one in logs] == ["m.t"] * is_said


@pytest.mark.parametrize(("shards", "is_held"), [(("m.s1", "m.s2"), False), (("m.s1", "m.s1"), True)])
def test_rows_of_merged_shards_come_in_any_order(shards: tuple[str, str], is_held: bool) -> None:
    """Only an earlier row of one shard shows that its sender sends rows again."""
    rows = [row(ms, 0, 0)._replace(place=None, cut=shard) for ms, shard in zip((21, 11), shards, strict=True)]
    statement = _without_place(change("ALTER TABLE t MODIFY v BIGINT"))._replace(commit_ts=ms_tso(SECOND + 31))
    told = [(1, n, one) for n, one in enumerate(rows)]
    assert doubts_of(prefixes(2, *told, (0, 0, statement)), "in the midst") == [is_held]


LIKE = ("ALTER TABLE m.t DROP INDEX u", "CREATE TABLE m.u LIKE m.t")
SWAP = ("TRUNCATE TABLE m.t", "RENAME TABLE m.t TO m.x, m.u TO m.t, m.x TO m.u")


@pytest.mark.parametrize(
    ("texts", "made", "batch", "is_held"),
    [
        (LIKE, 0, 7, True),
        (LIKE, 3, 7, True),
        (LIKE, 3, 8, False),
        (SWAP, 0, 7, True),
        (("ALTER TABLE m.t ADD a INT", "ALTER TABLE m.u ADD a INT"), 0, 7, False),
    ],
)
def test_schema_changes_that_canal_sent_to_two_topics_at_once(
    texts: tuple[str, str], made: int, batch: int, is_held: bool
) -> None:
    """Canal sends the topics of a batch side by side (canal.mq.dynamicTopic), so nothing tells which came first."""
    held = partition_backlog({(topic, 0): PartitionStart(0, 0, 0, 0) for topic in (TOPIC, "other")})
    for topic, event in ((TOPIC, change(texts[0])), ("other", change(texts[1], made, batch))):
        held.take_in(events_table([(0, 0, event)], topic), {(topic, 0): 1}, 0.0)
    assert doubts_of(held, "in one batch") == [is_held, False]


def calls_for(count: int) -> int:
    """How many functions are called to order so many schema changes of one second, with a row behind each."""
    made = [(change(f"CREATE TABLE m.t{n} (id INT PRIMARY KEY)", n, n), row(0, n, n, f"t{n}")) for n in range(count)]
    events = [event for pair in made for event in pair]
    profile, held = cProfile.Profile(), prefixes(1, *((0, at, event) for at, event in enumerate(events)))
    profile.enable()
    steps = steps_of(held, at_end=True)
    profile.disable()
    assert sum(len(step.changes) for step in steps) == count
    return sum(int(entry.callcount) for entry in profile.getstats())


def test_many_schema_changes_of_a_second_cost_each_what_few_do() -> None:
    """A service that starts for the first time makes hundreds of tables: 200 of one second took a minute."""
    calls_for(10)  # what is kept for later
    few = calls_for(40)
    assert calls_for(160) < 1.5 * 4 * few
