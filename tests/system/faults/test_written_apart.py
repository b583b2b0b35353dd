"""The target fails while Spark's executors write to it (`parallel` consistency)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from pymysql.err import MySQLError

from bridge.errors import BridgeError
from bridge.events import Event
from bridge.local import MariaDB
from bridge.mysql import parallel
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.parallel import ExecutorWriter
from bridge.rows.gathering import Amount
from bridge.rows.sql.statement import NotWritten, Statement
from bridge.spark.shards import Executors, Home
from tests.support.pipelines import Pipeline, admin, opened
from tests.support.upstreams import boundary, in_one_partition, row_change
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 60.0
SHARD = 10
FAILURES = (MySQLError, OSError)
WIDE = "x" * 1000
COLUMNS = ("id", "v", "w")
OF_BRIDGE = "SELECT id FROM information_schema.processlist WHERE user = 'bridge'"
WAITING = f"{OF_BRIDGE} AND command = 'Query' AND info LIKE '%`m`.`t`%' AND time_ms > 300"
GRANT = "GRANT SELECT, INSERT, UPDATE, DELETE ON m.* TO bridge@'%'"


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDB]:
    """A server of this module's own, whose global variables its tests set."""
    with MariaDB() as server:
        yield server


@pytest.fixture
def session(server: MariaDB) -> Iterator[Session]:
    """With empty tables, for a user who may no more than a bridge needs."""
    with admin(server.url) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, v INT NOT NULL, w TEXT)")
        session.execute("CREATE TABLE m.n (id INT, v INT, w TEXT)")
        session.execute("CREATE TABLE m.heavy (id INT AUTO_INCREMENT PRIMARY KEY)")
        for user in ("bridge", "rival"):
            session.execute(f"CREATE USER {user}@'%'")
        session.execute(GRANT)
        session.execute("GRANT ALL ON _bridge.* TO bridge@'%'")
        session.execute("GRANT ALL ON m.* TO rival@'%'")
        yield session
        for user in ("bridge", "rival"):
            session.execute(f"DROP USER {user}@'%'")
        for schema in ("m", "_bridge"):
            session.execute(f"DROP DATABASE IF EXISTS {schema}")


def step(number: int) -> list[Event]:
    """A step inserts, updates and deletes rows with a key, and brings rows without one."""
    ts, first = 10 * number, 20 * number
    changes = [row_change(ts, "t", COLUMNS, ["id"], after=[first + i, number, WIDE]) for i in range(40)]
    changes += [row_change(ts, "t", COLUMNS, ["id"], before=[first + i, number - 1, WIDE]) for i in range(-20, -10)]
    changes += [row_change(ts, "n", COLUMNS, [], after=[i, number, WIDE]) for i in range(12)]
    return [*changes, boundary(ts + 1)]


def model(steps: int) -> tuple[dict[int, int], int]:
    """What rows with a key hold behind these steps, and how many there are without one."""
    rows: dict[int, int] = {}
    for number in range(1, steps + 1):
        rows |= {20 * number + i: number for i in range(40)}
        for i in range(-20, -10):
            rows.pop(20 * number + i, None)
    return rows, 12 * steps


def shown(session: Session) -> tuple[dict[int, int], int]:
    """The same of the target."""
    session.rollback()
    return dict(session.rows("SELECT id, v FROM m.t")), int(session.value("SELECT COUNT(*) FROM m.n"))


def apart(spark: SparkSession, folder: str | None = None) -> Executors:
    """Executors that write whatever there is, in several shards."""
    found = Executors(Amount(0, 0), Amount(SHARD, 1 << 30))
    found.home = Home(spark.sparkContext, folder)
    return found


class Scene(NamedTuple):
    """Where a fault happens.  admin: a session of an administrator; write: of the task."""

    url: str
    admin: Session
    write: ExecutorWriter

    def rival(self) -> Session:
        """A session of somebody else, which stays when the task has ended."""
        _RIVALS.append(Target(self.url.replace("root@", "rival@")).connect())
        return _RIVALS[-1]

    def when_it_waits(self, act: Callable[[Session], object]) -> None:
        """Does something once a transaction waits for a row."""

        def wait() -> None:
            with admin(self.url) as looking:
                wait_for(lambda: looking.rows(WAITING), "no transaction waits for a row")
                act(looking)

        threading.Thread(target=wait, daemon=True).start()


_RIVALS: Final[list[Session]] = []


def kill(scene: Scene) -> None:
    """All connections of the bridge, the driver's too."""
    scene.write._session()
    for (one,) in scene.admin.rows(OF_BRIDGE):
        scene.admin.execute(f"KILL {one}")


def kill_statements(scene: Scene) -> None:
    """Those that wait for a row."""
    held = lock_rows(scene)

    def act(looking: Session) -> None:
        for (one,) in looking.rows(WAITING):
            looking.execute(f"KILL QUERY {one}")
        held.commit()

    scene.when_it_waits(act)


def demote(scene: Scene) -> None:
    """The server takes no more writes."""
    scene.admin.execute("SET GLOBAL read_only = 1")


def revoke(scene: Scene) -> None:
    """The bridge may not insert any more."""
    scene.admin.execute("REVOKE INSERT ON m.* FROM bridge@'%'")


def shrink(scene: Scene) -> None:
    """New connections have small packets."""
    scene.admin.execute("SET GLOBAL max_allowed_packet = 8192")
    kill(scene)


def fill(scene: Scene) -> None:
    """No connection is left but that of an administrator."""
    scene.admin.execute("SET GLOBAL max_connections = 20")
    kill(scene)
    with suppress(*FAILURES):
        while True:
            scene.rival()


def lock_rows(scene: Scene) -> Session:
    """Somebody else holds some rows."""
    held = scene.rival()
    held.begin()
    held.rows("SELECT 1 FROM m.t WHERE id >= 50 FOR UPDATE")
    return held


def lock_table(scene: Scene) -> None:
    """Somebody else holds the table."""
    scene.rival().execute("LOCK TABLES m.t WRITE")


def meet(scene: Scene) -> None:
    """A larger transaction takes rows in another order: of a deadlock, the bridge is the victim."""
    held = lock_rows(scene)
    held.execute("INSERT INTO m.heavy SELECT NULL FROM m.seq_1_to_1000")

    def act(looking: Session) -> None:
        del looking
        held.execute("UPDATE m.t SET v = v")
        held.commit()

    scene.when_it_waits(act)


@dataclass(frozen=True)
class Meddling:
    """Does something in the task that writes the first shard, before it does."""

    write: ExecutorWriter
    meddle: Callable[[Scene], object]
    url: str
    flag: str

    def __call__(self, statements: Sequence[Statement]) -> NotWritten | None:
        """Writes."""
        with suppress(FileExistsError):
            Path(self.flag).touch(exist_ok=False)
            with admin(self.url) as session:
                self.meddle(Scene(self.url, session, self.write))
        return self.write(statements)


class Fault(NamedTuple):
    """A fault.  is_over: tells when it ends; it ends with the step otherwise.  stopped: what the bridge says that stops
    at it."""

    meddle: Callable[[Scene], object]
    is_over: Callable[[Session, Pipeline], bool] | None = None
    stopped: str = ""


def is_retried(session: Session, pipeline: Pipeline) -> bool:
    """The driver has noticed."""
    del session
    return pipeline.writer.end.retries >= 2


def a_task_waits(session: Session, pipeline: Pipeline) -> bool:
    """For rows."""
    del pipeline
    return bool(session.rows(WAITING))


def a_table_is_waited_for(session: Session, pipeline: Pipeline) -> bool:
    """By a task."""
    del pipeline
    return bool(session.rows(f"{OF_BRIDGE} AND state LIKE '%metadata lock%'"))


FAULTS: dict[str, Fault] = {
    "connections are killed": Fault(kill),
    "statements are killed": Fault(kill_statements),
    "a deadlock": Fault(meet),
    "rows are locked": Fault(lock_rows, a_task_waits),
    "a table is locked": Fault(lock_table, a_table_is_waited_for),
    "read-only": Fault(demote, is_retried),
    "no connection is left": Fault(fill, is_retried),
    "a privilege is revoked": Fault(revoke, stopped="INSERT command denied"),
    "packets become small": Fault(shrink, stopped="max_allowed_packet of the target is too small"),
}


def mend(session: Session) -> None:
    """Ends every fault."""
    for statement in ("read_only = 0", "max_connections = 151", "max_allowed_packet = 67108864"):
        session.execute(f"SET GLOBAL {statement}")
    for (one,) in session.rows("SELECT id FROM information_schema.processlist WHERE user = 'rival'"):
        session.execute(f"KILL {one}")
    session.execute(GRANT)


@contextmanager
def mended(session: Session, is_over: Callable[[], bool]) -> Iterator[None]:
    """Ends every fault, when it is over or when the block has ended."""
    ended = threading.Event()

    def wait() -> None:
        while not ended.is_set() and not is_over():
            ended.wait(0.05)
        mend(session)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(SECONDS)
        assert not thread.is_alive(), "it waits for ever"


@pytest.mark.soak
@pytest.mark.parametrize("case", FAULTS)
def test_the_target_fails_in_mid_step(
    spark: SparkSession, server: MariaDB, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """The bridge goes on when the fault is over, or stops and says what to do; it goes on after a start then.  Every
    change is there once."""
    fault, flag, armed = FAULTS[case], tmp_path / "meddled", False
    url = server.url.replace("root@", "bridge@")

    def made(*fields: Any) -> Meddling | ExecutorWriter:
        write = ExecutorWriter(*fields)
        return Meddling(write, fault.meddle, server.url, str(flag)) if armed else write

    def is_over() -> bool:
        return flag.exists() and fault.is_over is not None and fault.is_over(session, pipeline)

    monkeypatch.setattr(parallel, "ExecutorWriter", made)
    events = in_one_partition([event for number in (1, 2, 3) for event in step(number)])
    size = len(step(1))
    with opened(url, [("cdc", 0)], writers=2, executors=apart(spark)) as pipeline:
        pipeline.take(events.slice(0, size))
        armed = True
        with mended(session, is_over), ExitStack() as stack:
            raised = stack.enter_context(pytest.raises(BridgeError)) if fault.stopped else None
            pipeline.take(events.slice(size, size))
        armed = False
        assert flag.exists()
        if raised is None:
            assert shown(session) == model(2)
            pipeline.take(events.slice(2 * size))
    if raised is not None:
        assert fault.stopped in str(raised.value)
        assert raised.value.where
        assert raised.value.fix
        with opened(url, [("cdc", 0)], writers=2, executors=apart(spark)) as again:
            again.take(events)
    assert shown(session) == model(3)
