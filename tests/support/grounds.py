"""A bridge that is kept running among servers, wires and a clock that may fail: where faults happen."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pymysql.err import MySQLError

from bridge.demo.watcher import Watcher
from bridge.errors import TargetError
from bridge.local import Kafka, MariaDB
from bridge.local.sql_server import SqlServer
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import LOST
from tests.support import proxy as wire
from tests.support.bridges import applied_ts, running
from tests.support.clock import MovedClock
from tests.support.command import Process
from tests.support.feeds import Feed
from tests.support.pipelines import admin
from tests.support.proxy import Proxy
from tests.support.small_disk import small_disk
from tests.support.tidb import TiDB

RECOVERY_SECONDS = 150.0
LOOK_SECONDS = 0.2
DISK_BYTES = 64 << 20
FAILURES = (MySQLError, OSError, TargetError)


class PatientWatcher(Watcher):
    """A reader that comes back when its server does."""

    def watch(self) -> None:
        """Until the end, over one connection after the other."""
        while not self._end.wait(0.1):
            with suppress(*LOST):
                super().watch()


@dataclass
class Ground:
    """A bridge that is started again whenever it ends, as a service manager does.

    server: the target.  replica: of a MariaDB, to fail over to.
    clock: the bridge's, where it can be moved.
    disk: the bridge's temporary folder, a small disk that can be filled; None where nothing can be mounted.
    more: arguments of `running`.
    """

    folder: Path
    server: SqlServer
    replica: MariaDB | None
    kafka: Kafka
    to_target: Proxy
    to_reader: Proxy
    to_kafka: Proxy
    feed: Feed
    topic: str
    more: tuple[str, ...] = ()
    dice: random.Random = field(default_factory=lambda: random.Random(1))
    clock: MovedClock | None = None
    disk: Path | None = None
    starts: int = 0
    ends: Counter[int] = field(default_factory=Counter)
    logs: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    """Why it ended by itself."""
    left: list[Path] = field(default_factory=list)
    """Folders of its queries that are there after its end."""
    peak_bytes: int = 0
    process: Process | None = None
    _end: threading.Event = field(default_factory=threading.Event)
    _looking: threading.Lock = field(default_factory=threading.Lock)
    _looked: float = 0.0
    _applied_ts: int = 0

    @property
    def url(self) -> str:
        """The target, past the proxy."""
        return self.server.url

    @contextmanager
    def kept_running(self) -> Iterator[None]:
        """For as long as the block lasts; at its end the bridge is asked to stop, and must within 30 s."""
        keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            self._end.set()
            keeper.join(90)
            assert not keeper.is_alive(), "the bridge does not stop"

    def _keep(self) -> None:
        kafka, target = f"127.0.0.1:{self.to_kafka.port}", f"mysql://root@127.0.0.1:{self.to_target.port}/"
        environment = self.clock.environment if self.clock else {}
        while not self._end.is_set():
            with running(
                self.folder, kafka, self.topic, target, *self.more, environment=environment, temporary=self.disk
            ) as process:
                self.process, self.starts = process, self.starts + 1
                while process.code is None and not self._end.wait(0.5):
                    self.peak_bytes = max(self.peak_bytes, memory_of(process.pid))
                if self._end.is_set() and process.code is None:
                    process.signal(signal.SIGTERM)
                    process.wait(60)
                self.ends[process.code or 0] += 1
                self.logs.append(process.log)
                if process.code not in {0, -signal.SIGKILL}:
                    self.reasons[f"exit {process.code}: {process.last_line or 'no word'}"] += 1

    def revive(self) -> None:
        """Starts a target again that has ended by itself, as a service manager does.  Nothing else may happen to it.

        TiDB 8.5 ends when a session with a transaction is killed at a bad moment (pingcap/tidb#63956), and the bridge
        kills those that it has lost.
        """
        try:
            with admin(self.url):
                return
        except FAILURES:
            self.reasons[f"the {self.server.name} ended by itself"] += 1
            self.server.restart()

    def applied_ts(self) -> int:
        """How far the target is; 0 while it does not answer.  Those who ask at the same time share an answer."""
        with self._looking:
            if time.monotonic() - self._looked > LOOK_SECONDS:
                try:
                    self._applied_ts = applied_ts(self.url)
                except FAILURES:
                    self._applied_ts = 0
                self._looked = time.monotonic()
            return self._applied_ts

    def recovered(self, boundary: int, seconds: float = RECOVERY_SECONDS) -> bool:
        """Waits until everything below a boundary is in the target; whether it came to that."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.feed.check()
            if self.applied_ts() >= boundary:
                return True
            time.sleep(LOOK_SECONDS)
        return False

    def children(self, word: str) -> list[int]:
        """Processes of the bridge's session whose command line has a word."""
        assert self.process is not None
        return [pid for pid, command in processes_of(self.process.pid) if word in command and pid != self.process.pid]


def processes_of(session: int) -> list[tuple[int, str]]:
    """The processes of a session, with their command lines; zombies do not count.  Spark's Python workers have process
    groups of their own."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError, FileNotFoundError, PermissionError):
            if os.getsid(int(folder.name)) == session and (folder / "stat").read_text().rpartition(")")[2][1] != "Z":
                found.append((int(folder.name), (folder / "cmdline").read_text().replace("\0", " ")))
    return found


def memory_of(session: int) -> int:
    """What the processes of a session take; what they share counts once (proc(5), Pss)."""
    size = 0
    for pid, _ in processes_of(session):
        with suppress(OSError, ValueError):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            size += 1024 * int(rollup.partition("\nPss:")[2].split()[0])
    return size


def follow(replica: Session, port: int) -> None:
    """Has a server replicate another one, and take no writes from anybody else."""
    replica.execute("SET GLOBAL read_only = ON")
    replica.execute(
        f"CHANGE MASTER TO master_host = '127.0.0.1', master_port = {port}, master_user = 'root',"
        " master_use_gtid = slave_pos, master_connect_retry = 1, master_ssl = 0"
    )
    replica.execute("START SLAVE")


def _replicating(server_id: int) -> list[str]:
    return ["--log-bin=binlog", f"--server-id={server_id}", "--log-slave-updates", "--gtid-strict-mode=ON"]


def start_replicating(stack: ExitStack) -> tuple[MariaDB, MariaDB]:
    """Starts a server, and one that replicates it."""
    mariadb, replica = (stack.enter_context(MariaDB(options=_replicating(id_))) for id_ in (1, 2))
    with admin(replica.url) as session:
        follow(session, mariadb.port)
    return mariadb, replica


def _start_tidb(stack: ExitStack) -> tuple[TiDB, None]:
    return stack.enter_context(TiDB()), None


SERVERS = {"MariaDB": start_replicating, "TiDB": _start_tidb}


@contextmanager
def grounds(
    folder: Path, *, server: str = "MariaDB", consistency: str, seed: int, per_beat: int, more: tuple[str, ...] = ()
) -> Iterator[tuple[Ground, PatientWatcher]]:
    """A bank at work, from an upstream to a target, with a bridge that is kept running and a reader that watches."""
    folder.mkdir()
    with ExitStack() as stack:
        to_kafka = stack.enter_context(Proxy())
        to_target, to_reader = stack.enter_context(Proxy(0, wire.mysql_packets)), stack.enter_context(Proxy())
        target, replica = SERVERS[server](stack)
        advertised = f"PLAINTEXT://127.0.0.1:{to_kafka.port}"
        kafka = stack.enter_context(Kafka(properties={"advertised.listeners": advertised}))
        to_kafka.server, to_target.server, to_reader.server = kafka.port, target.port, target.port
        kafka.create_topic("bank", 4)
        watcher = PatientWatcher(Target(f"mysql://root@127.0.0.1:{to_reader.port}/"))
        feed = stack.enter_context(
            Feed(kafka.bootstrap_servers, "bank", seed=seed, per_beat=per_beat, copies=False, expect=watcher.expect)
        )
        feed.open_bank()
        settings = ("target.timeout_seconds=3", "source.timeout_seconds=5", "stream.trigger_ms=100")
        options = [part for one in settings for part in ("--set", one)]
        ground = Ground(
            folder, target, replica, kafka, to_target, to_reader, to_kafka, feed, "bank",
            ("--consistency", consistency, *options, *more), random.Random(seed),
            MovedClock(folder) if MovedClock.is_possible() else None,
            stack.enter_context(small_disk(folder / "disk", DISK_BYTES)),
        )  # fmt: skip
        feed.start()
        with watcher, ground.kept_running():
            yield ground, watcher
        ground.left = list((ground.disk or folder).glob("bridge-stream-*"))
