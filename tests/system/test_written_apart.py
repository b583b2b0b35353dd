"""Rows that Spark's executors write (`parallel` consistency), against a real server."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bridge.errors import ApplyError, RefusedRowsError
from bridge.events import Event
from bridge.model import Advance, TableName
from bridge.mysql import parallel
from bridge.mysql.apply.writer import no_trace
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.parallel import ExecutorWriter, Fence
from bridge.mysql.server_errors import LOST
from bridge.mysql.state.ownership import mark_connection
from bridge.rows.gathering import Amount
from bridge.rows.sql.statement import NotWritten, NotWrittenError, Stage, Statement
from bridge.spark.shards import Executors, Home
from tests.support.near_rows import NearExecutors
from tests.support.pipelines import Pipeline, admin, opened
from tests.support.upstreams import boundary, in_one_partition, row_change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


TABLES = {
    "t": "(id INT PRIMARY KEY, v INT NOT NULL)",
    "u": "(id INT PRIMARY KEY, v INT UNIQUE)",
    "n": "(id INT, v INT)",
    "s": "(id VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT)",
}
COUNT = 12
SHARD = 5
"""So many rows a transaction holds."""


class Crash(BaseException):
    """The end of a process, where a test wants it."""


@pytest.fixture
def session(target: str) -> Iterator[Session]:
    """With empty tables."""
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        for name, columns in TABLES.items():
            session.execute(f"CREATE TABLE m.{name} {columns}")
        yield session


def changes(names: str = "tuns", ts: int = 10, value: int = 0) -> list[Event]:
    """Rows of these tables."""
    return [
        row_change(
            ts, name, ["id", "v"], ["id"] if name != "n" else [], after=[i if name != "s" else f"k{i}", i + value]
        )
        for name in names
        for i in range(COUNT)
    ]


def apart(spark: SparkSession, folder: str | None = None) -> Executors:
    """Executors that write whatever there is, in several shards."""
    found = Executors(Amount(0, 0), Amount(SHARD, 1 << 30))
    found.home = Home(spark.sparkContext, folder)
    return found


def apply(spark: SparkSession, target: str, events: Sequence[Event], **options: Any) -> None:
    """All of them as one step."""
    with opened(
        target, [("cdc", 0)], writers=2, executors=apart(spark, options.pop("folder", None)), **options
    ) as made:
        made.take(in_one_partition([*events, boundary(1000)]))


def counts(session: Session) -> dict[str, tuple[int, int]]:
    """Rows and the sum of their values, by table."""
    return {name: session.rows(f"SELECT COUNT(*), COALESCE(SUM(v), 0) FROM m.{name}")[0] for name in TABLES}


ALL = (COUNT, sum(range(COUNT)))


def test_executors_write_what_may_be_written_twice(
    spark: SparkSession, target: str, session: Session, tmp_path: Path
) -> None:
    """Rows of a table with one exact key are there before progress moves; those of others come with it.  A process that
    dies between has them written again."""
    seen = []

    def trace(step: str) -> None:
        if step == "before commit":
            session.rollback()
            seen.append(counts(session))
            raise Crash

    with pytest.raises(Crash):
        apply(spark, target, changes(), trace=trace, folder=str(tmp_path))
    assert seen == [{"t": ALL, "u": (0, 0), "n": (0, 0), "s": (0, 0)}]
    session.rollback()
    assert session.value("SELECT applying_ts > applied_ts FROM _bridge.progress") == 1
    apply(spark, target, changes())
    assert set(counts(session).values()) == {ALL}
    assert session.rows("SELECT applied_ts, applying_ts FROM _bridge.progress") == [(1000, 1000)]
    assert not [path for path in tmp_path.iterdir() if path.is_dir()], "what tasks left for one another"


def test_a_row_that_executors_cannot_write_has_its_words(spark: SparkSession, target: str, session: Session) -> None:
    """One transaction writes the whole step then, and says why not; with quarantine, the rest is applied."""
    bad = row_change(10, "t", ["id", "v"], ["id"], after=[COUNT, 1 << 40])
    with pytest.raises(RefusedRowsError, match="Out of range value") as raised:
        apply(spark, target, [*changes("t"), bad])
    assert raised.value.table == ("m", "t")
    assert f"key (id={COUNT})" in raised.value.where
    apply(spark, target, [*changes("tn"), bad], quarantine=True)
    assert counts(session)["t"] == counts(session)["n"] == ALL
    assert session.value("SELECT COUNT(*) FROM _bridge.quarantine") == 1


@dataclass(frozen=True)
class _KillOnce:
    """Kills the process that writes the first shard."""

    write: ExecutorWriter
    flag: str

    def __call__(self, statements: Sequence[Statement]) -> NotWritten | None:
        try:
            Path(self.flag).touch(exist_ok=False)
        except FileExistsError:
            return self.write(statements)
        os.kill(os.getpid(), signal.SIGKILL)
        return None


def test_a_worker_that_is_killed(
    spark: SparkSession, target: str, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In mid-step: all rows come all the same, each once."""

    def made(*fields: Any) -> _KillOnce:
        return _KillOnce(ExecutorWriter(*fields), str(tmp_path / "killed"))

    monkeypatch.setattr(parallel, "ExecutorWriter", made)
    apply(spark, target, changes())
    assert (tmp_path / "killed").exists()
    assert set(counts(session).values()) == {ALL}


def shard(value: int) -> list[Statement]:
    sql = f"INSERT INTO m.t VALUES (1, {value}) ON DUPLICATE KEY UPDATE v = VALUES(v)"
    return [Statement(Stage.WRITE, TableName("m", "t"), sql.encode(), None, False)]


def writes(target: str, pipeline: Pipeline, old_ts: int, new_ts: int, server: str | None = None) -> ExecutorWriter:
    """What tasks get when a step of these ts begins.  server: the driver's, when it is another one."""
    step = Advance(old_ts, new_ts, {})
    with admin(target) as session:
        marked_ts = pipeline.table.mark(session, pipeline.ownership.epoch, step)
        assert marked_ts == step.new_ts
        session.commit()
    fence = Fence(pipeline.table, pipeline.ownership.epoch, step.old_ts, marked_ts)
    server = pipeline.writer.session().server if server is None else server
    write = ExecutorWriter(Target(target), fence, pipeline.ownership.lock, server)
    found: ExecutorWriter = pickle.loads(pickle.dumps(write))
    return found


def test_a_task_that_comes_late_commits_nothing(target: str, session: Session) -> None:
    """After its step, or after a take-over, which also ends what it has open."""
    with opened(target, [("cdc", 0)], writers=2) as pipeline:
        write = writes(target, pipeline, 0, 20)
        assert write(shard(1)) is None
        pipeline.take(in_one_partition([boundary(20)]))
        late = write(shard(2))
        assert late is not None
        assert "progress is not where the step begins" in late.why
        write = writes(target, pipeline, 20, 30)
        assert write(shard(3)) is None
        sleeping = Target(target).connect()
        mark_connection(sleeping, pipeline.ownership.lock)
        with opened(target, [("cdc", 0)], take_over=True):
            with pytest.raises(LOST):
                sleeping.rows("SELECT 1")
            assert write(shard(4)) is not None
    session.rollback()
    assert session.rows("SELECT * FROM m.t") == [(1, 3)]


def test_a_task_of_a_step_that_was_given_up_commits_nothing(target: str, session: Session) -> None:
    """A lost executor that works on while the driver has read again: the step that begins at the same place holds
    later rows, over which it must not write."""
    with opened(target, [("cdc", 0)], writers=2) as pipeline:
        given_up = writes(target, pipeline, 0, 20)
        assert given_up(shard(1)) is None
        assert writes(target, pipeline, 0, 30)(shard(2)) is None
        late = given_up(shard(1))
        assert late is not None
        assert "or is to go elsewhere" in late.why
    assert session.rows("SELECT * FROM m.t") == [(1, 2)]


def test_a_task_that_is_led_to_another_server_writes_nothing(target: str, session: Session) -> None:
    """A replica that takes writes has the same progress row, and the driver would move progress without its rows; a
    node of a cluster has it too, and does not know of the others' locks."""
    with opened(target, [("cdc", 0)], writers=2) as pipeline:
        elsewhere = writes(target, pipeline, 0, 20, "db-2 3306 2")(shard(1))
        assert elsewhere is not None
        assert elsewhere.cannot_connect
        assert ", and to db-2 3306 2 from the driver" in elsewhere.why
        assert writes(target, pipeline, 0, 20, "")(shard(2)) is None
    assert session.rows("SELECT * FROM m.t") == [(1, 2)]


def test_a_task_leaves_a_server_that_the_driver_has_left(target: str, session: Session) -> None:
    """After a failover in mid-step the server before it may still go on, with the progress row as it was: what a task
    wrote there over the session that it had would be missed on the server where progress moves."""
    with opened(target, [("cdc", 0)], writers=2) as pipeline:
        assert writes(target, pipeline, 0, 20)(shard(1)) is None
        left_behind = writes(target, pipeline, 0, 20, "db-2 3306 2")(shard(2))
        assert left_behind is not None
        assert left_behind.cannot_connect
    assert session.rows("SELECT * FROM m.t") == [(1, 1)]


@pytest.mark.parametrize(
    ("spoilt", "said", "mended"),
    [
        ("REVOKE INSERT ON m.* FROM bridge@'%'", "INSERT command denied", "GRANT INSERT ON m.* TO bridge@'%'"),
        ("ALTER TABLE m.t ADD CONSTRAINT c CHECK (v < 200)", "4025", "ALTER TABLE m.t DROP CONSTRAINT c"),
    ],
)
def test_what_a_task_cannot_write_stops_the_bridge(
    target: str, session: Session, spoilt: str, said: str, mended: str
) -> None:
    """It is not taken for written: the bridge says why it is not, and goes on once nothing is in its way."""
    events = [in_one_partition([*changes("t", ts, ts), boundary(ts + 1)], ts) for ts in (100, 200)]
    session.execute("CREATE USER bridge@'%'")
    try:
        session.execute("GRANT ALL ON _bridge.* TO bridge@'%'")
        session.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON m.* TO bridge@'%'")
        url = target.replace("root@", "bridge@")
        with opened(url, [("cdc", 0)], writers=2) as pipeline:
            pipeline.take(events[0])
            session.execute(spoilt)
            with pytest.raises(ApplyError, match=said):
                pipeline.take(events[1])
        session.execute(mended)
        with opened(url, [("cdc", 0)], writers=2) as again:
            again.take(events[1])
    finally:
        session.execute("DROP USER bridge@'%'")
    assert counts(session)["t"] == (COUNT, ALL[1] + 200 * COUNT)


class _Far(NearExecutors):
    """Executors that cannot reach the target."""

    def write_apart(self, *_: object) -> None:
        """Fails."""
        asked.append(1)
        raise NotWrittenError(NotWritten("no route to host", cannot_connect=True))


asked: list[int] = []


def test_executors_that_cannot_reach_the_target_are_asked_no_more(target: str, session: Session) -> None:
    """The driver writes then, as it did before."""
    asked.clear()
    with opened(target, [("cdc", 0)], writers=2, executors=_Far(Amount(SHARD, 1 << 30), no_trace)) as pipeline:
        for n in range(1, 6):
            pipeline.take(in_one_partition([*changes("t", 100 * n, n), boundary(100 * n + 1)], 100 * n))
    assert len(asked) == 3
    assert counts(session)["t"] == (COUNT, ALL[1] + 5 * COUNT)
