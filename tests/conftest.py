"""The servers that the tests run against: one of each kind for the whole run, started by the first test that asks."""

from __future__ import annotations

from tests.support import bytecode  # noqa: F401

# isort: split
import gc
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit

import pymysql
import pytest
import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from hypothesis import settings

from bridge.local import Kafka, LocalError, MariaDB, MySQL
from bridge.local.kafka import VERSION as KAFKA_VERSION
from bridge.local.mariadb import OLD_VERSION
from bridge.local.mysql import OLD_VERSION as OLD_MYSQL
from bridge.local.server import Server, free_port
from bridge.local.sql_server import SqlServer
from tests.support import class_archive
from tests.support import tidb as tidb_server
from tests.support.tidb import TiDB
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from testcontainers.core.container import DockerContainer

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell has what it starts in the background ignore Ctrl-C, and so would every process that a test interrupts."""

pytest_plugins = ["tests.support.fixtures"]

settings.register_profile("bridge", deadline=None, derandomize=True)
settings.load_profile("bridge")
"""An example that takes long on a busy machine is no failure; and every run has the same examples, so that none fails
by chance.  Others are for the soak."""

AnySqlServer = TypeVar("AnySqlServer", bound=SqlServer)

MEMORY = Path("/dev/shm")
MEMORY_BYTES = 4 << 30
"""With so much room there the servers keep their data in it."""
SYSTEM_DATABASES = {"information_schema", "metrics_schema", "mysql", "performance_schema", "sys"}
TIERS = {
    "system": {"kafka", "broker", "spark", "victims"},
    "server": {"mariadb", "old_mariadb", "mysql", "old_mysql", "tidb", "secured", "url", "server", "upstream"},
    "unit": set[str](),
}
"""The tiers of tests, the heaviest first, and the fixtures and parameters that make a test one of them."""
SYSTEM_SHARE = 0.85
"""Files of the system begin within this share of what follows the servers'; the rest are units, which are short."""
MOST_PROCESSES = 4
"""Each has servers, a broker and a Spark session of its own: about 3 GiB with all of them."""
LOCK_WAIT_SECONDS = 15
CONTAINER_SECONDS = 120


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--servers",
        choices=["auto", "embedded", "docker"],
        default="embedded",
        help="where Kafka and MariaDB come from; auto: docker where an engine answers, else embedded",
    )


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Whole tiers run in a process for each core, and one more where tests wait for servers half of the time; files
    that are named, and the soak, in this one."""
    more = int(config.option.markexpr != "unit")  # unit tests wait for nothing: one more took them a third longer
    return min(MOST_PROCESSES, len(os.sched_getaffinity(0)) + more) if _is_whole(config) else 0


def _is_whole(config: pytest.Config) -> bool:
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and config.option.markexpr != "soak"


def pytest_sessionstart(session: pytest.Session) -> None:
    """The process that runs no tests itself begins to make the class archive, while the others test servers."""
    config = session.config
    runs = config.option.numprocesses and not config.option.collectonly
    if _is_whole(config) and runs and config.option.markexpr in {"not soak", "system"}:
        config.add_cleanup(class_archive.begin(config._tmp_path_factory.getbasetemp()))  # type: ignore[attr-defined]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sets each test's tier, unless it names one: by the fixtures that it uses, whatever their way to it.  Soak tests
    are of no tier, so that none runs with one.  Files of servers come first, while the class archive is made; then
    those of the system, which wait half of the time, with those of units in between, which never wait.  Units come
    last: what is left at the end, when one process has nothing more to do, is short."""
    tiers: dict[Path, set[str]] = {}
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if not marks & {*TIERS, "soak"}:
            marks.add(tier := _tier(set(getattr(item, "fixturenames", ()))))
            item.add_marker(tier)
        tiers.setdefault(item.path, set()).update(marks)
    heaviest: dict[str, list[Path]] = {}
    for path, found in tiers.items():
        heaviest.setdefault(next((tier for tier in TIERS if tier in found), "unit"), []).append(path)
    places = {
        path: _place(tier, number / len(paths)) for tier, paths in heaviest.items() for number, path in enumerate(paths)
    }
    items.sort(key=lambda item: places[item.path])


def _place(tier: str, share: float) -> float:
    """Where a file comes that has this share of the files of its tier before it."""
    return {"server": 0.0, "system": 1 + SYSTEM_SHARE * share}.get(tier, 1 + share)


def _tier(fixtures: set[str]) -> str:
    return next((tier for tier, needed in TIERS.items() if needed & fixtures), "unit")


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is there once the tests are known stays: the collector of garbage need not look at it again and again.

    A TiDB that is asked for and not built is built now, which no test's timeout cuts short.  The processes of a whole
    run do not wait for it: their tests skip.
    """
    gc.freeze()
    is_alone = not hasattr(session.config, "workerinput") and not session.config.option.collectonly
    if is_alone and any(map(_asks_for_tidb, session.items)) and not tidb_server.is_built():
        subprocess.run([sys.executable, "-m", tidb_server.__name__], cwd=session.config.rootpath, check=True)


def _asks_for_tidb(item: pytest.Item) -> bool:
    """By a fixture, or by a parameter that names one; of a unit test that is a word."""
    if item.get_closest_marker("unit"):
        return False
    parameters = item.callspec.params.values() if isinstance(item, pytest.Function) and "callspec" in vars(item) else ()
    return bool({"tidb", "tidb_target"} & {*getattr(item, "fixturenames", ()), *map(str, parameters)})


def pytest_report_header() -> str | None:
    """Says at once what a whole run leaves out."""
    return (
        None if tidb_server.is_built() else f"TiDB: not built, its tests skip; `{tidb_server.BUILD_COMMAND}` builds it"
    )


@pytest.fixture(autouse=True)
def _logs_as_they_are_by_default() -> Iterator[None]:
    """A command that runs in this process configures the log; the next test finds it as if there had been none."""
    yield
    structlog.reset_defaults()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """A unit test that starts a server or a JVM, by a fixture of whatever scope, fails: it is of another tier."""
    with _nothing_starts() if item.get_closest_marker("unit") else nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """The same for the test itself."""
    with _nothing_starts() if item.get_closest_marker("unit") else nullcontext():
        return (yield)


@contextmanager
def _nothing_starts() -> Iterator[None]:
    refuse = "a unit test must not start a server or a JVM: mark it `server` or `system`"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Server, "start", lambda _: pytest.fail(refuse))
        patch.setattr("pyspark.core.context.launch_gateway", lambda *_, **__: pytest.fail(refuse))
        yield


@pytest.fixture(scope="session")
def use_docker(pytestconfig: pytest.Config) -> bool:
    """Whether the servers are containers."""
    choice = pytestconfig.getoption("--servers")
    if choice == "docker" and not _docker_answers():
        pytest.exit("--servers docker: no Docker engine answers (try `docker version`)", returncode=4)
    return choice != "embedded" and _docker_answers()


def _docker_answers() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "version"], capture_output=True, timeout=30, check=False).returncode == 0


@pytest.fixture(autouse=True, scope="session")
def _no_certificates() -> Iterator[None]:
    """PyMySQL reads the machine's certificates for every connection, 30 ms each; the tests open thousands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", "/dev/null")
        yield


@contextmanager
def _in_memory(server: AnySqlServer) -> Iterator[AnySqlServer]:
    """Starts it with its data in memory: what a disk does is not under test, and schema changes take two thirds."""
    with pytest.MonkeyPatch.context() as patch:
        if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES:
            patch.setattr(tempfile, "tempdir", str(MEMORY))
        server.start()
    try:
        yield server
    finally:
        server.stop(0)


@pytest.fixture(scope="session")
def mariadb(use_docker: bool) -> Iterator[MariaDB | MariaDBInDocker]:
    """A MariaDB 11.4: `.url`, `.host`, `.port`, `.kill()`, `.restart()`. Tests that write take `target`."""
    with MariaDBInDocker() if use_docker else _in_memory(MariaDB()) as server:
        yield server


@pytest.fixture(scope="session")
def old_mariadb() -> Iterator[MariaDB]:
    """A MariaDB 10.11, always embedded. Tests that write take `old_target`."""
    with _in_memory(MariaDB(version=OLD_VERSION)) as server:
        yield server


@contextmanager
def _if_it_can_be_had(server: AnySqlServer) -> Iterator[AnySqlServer]:
    """Skips where it does not start; tests/local/test_mysql.py fails then, unless no machine of that kind can."""
    with ExitStack() as stack:
        try:
            stack.enter_context(_in_memory(server))
        except LocalError as error:
            pytest.skip(str(error))
        yield server


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySQL]:
    """A MySQL 8.0, always embedded. Tests that write take `mysql_target`."""
    with _if_it_can_be_had(MySQL()) as server:
        yield server


@pytest.fixture(scope="session")
def old_mysql() -> Iterator[MySQL]:
    """A MySQL 5.7, always embedded. Tests that write take `old_mysql_target`."""
    with _if_it_can_be_had(MySQL(version=OLD_MYSQL)) as server:
        yield server


@pytest.fixture(scope="module")
def tidb() -> Iterator[TiDB]:
    """A TiDB, always embedded, where it was built. Tests that write take `tidb_target`.

    It ends with the file, as no other server: it works when nobody asks it for anything.
    """
    if not tidb_server.is_built():
        pytest.skip(f"TiDB is not built: `{tidb_server.BUILD_COMMAND}` does it, once; {tidb_server.NEEDS}")
    with _if_it_can_be_had(TiDB()) as server:
        yield server


@pytest.fixture(scope="session")
def _class_archive(tmp_path_factory: pytest.TempPathFactory) -> None:
    class_archive.ensure(tmp_path_factory.getbasetemp().parent)


@pytest.fixture(scope="session")
def kafka(use_docker: bool, _class_archive: None) -> Iterator[Kafka | KafkaInDocker]:
    """A Kafka broker: `.bootstrap_servers`, `.create_topic()`, `.kill()`, `.restart()`.

    Whoever asks for one starts bridges.
    """
    with KafkaInDocker() if use_docker else Kafka() as server:
        yield server


@pytest.fixture(scope="session")
def spark(_class_archive: None) -> Iterator[SparkSession]:
    """The Spark session of this process, which every command that runs in it shares."""
    from bridge.spark.session import start_session

    session = start_session({})
    yield session
    session.stop()


@pytest.fixture
def target(mariadb: MariaDB | MariaDBInDocker) -> Iterator[str]:
    """The URL of a server without databases of its own; those made by the test are dropped after it.

    Global variables and accounts are not put back: a test that changes them does so itself. A transaction left
    open on a table makes the drop fail after 15 s.
    """
    yield mariadb.url
    _drop_databases(mariadb.url)


@pytest.fixture
def old_target(old_mariadb: MariaDB) -> Iterator[str]:
    """The same on a MariaDB 10.11."""
    yield old_mariadb.url
    _drop_databases(old_mariadb.url)


@pytest.fixture
def mysql_target(mysql: MySQL) -> Iterator[str]:
    """The same on a MySQL 8.0."""
    yield mysql.url
    _drop_databases(mysql.url)


@pytest.fixture
def old_mysql_target(old_mysql: MySQL) -> Iterator[str]:
    """The same on a MySQL 5.7."""
    yield old_mysql.url
    _drop_databases(old_mysql.url)


@pytest.fixture
def tidb_target(tidb: TiDB) -> Iterator[str]:
    """The same on a TiDB."""
    yield tidb.url
    _drop_databases(tidb.url)


@pytest.fixture
def topic(kafka: Kafka | KafkaInDocker) -> Callable[..., str]:
    """`topic(partitions=1, config=None)` creates a topic and returns its name, which no other test has."""

    def create(partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = f"test-{uuid.uuid4().hex[:12]}"
        kafka.create_topic(name, partitions, config)
        return name

    return create


@pytest.fixture(scope="session")
def golden() -> Iterator[Path]:
    """The folder of genuine captures, unpacked (tests/golden/README.md says what they are)."""
    yield from _unpacked("captures")


@pytest.fixture(scope="session")
def real_senders() -> Iterator[Path]:
    """The folder of genuine captures of official senders, unpacked (tests/golden/README.md)."""
    yield from _unpacked("real-senders")


@pytest.fixture(scope="session")
def avro_captures() -> Iterator[Path]:
    """The folder of genuine captures in Avro, with their schemas, unpacked (tests/golden/README.md)."""
    yield from _unpacked("debezium-avro")


def _unpacked(archive: str) -> Iterator[Path]:
    with (
        tempfile.TemporaryDirectory(prefix="bridge-golden-") as folder,
        tarfile.open(Path(__file__).parent / "golden" / f"{archive}.tar.xz") as captures,
    ):
        captures.extractall(folder, filter="data")
        yield Path(folder)


def _connect(url: str) -> pymysql.connections.Connection[Any]:
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname, port=parts.port or 3306, user=parts.username, password=parts.password or ""
    )


def _drop_databases(url: str) -> None:
    with _connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("SET lock_wait_timeout = %s, foreign_key_checks = 0", (LOCK_WAIT_SECONDS,))
        cursor.execute("SELECT schema_name FROM information_schema.schemata")
        for name in [name for (name,) in cursor.fetchall() if name.lower() not in SYSTEM_DATABASES]:
            cursor.execute("DROP DATABASE `{}`".format(name.replace("`", "``")))


class InDocker:
    """A container with the embedded servers' attributes. Its port is fixed, so that it survives a restart."""

    def __init__(self, container: DockerContainer, inner_port: int) -> None:
        self.port = free_port()
        self._container = container.with_bind_ports(inner_port, self.port)

    def __enter__(self) -> Self:
        self._container.start()
        self._wait()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._container.stop()

    @property
    def host(self) -> str:
        return self._container.get_container_host_ip()

    def kill(self) -> None:
        self._container.get_wrapped_container().kill()

    def restart(self) -> None:
        self._container.get_wrapped_container().restart()
        self._wait()

    def _wait(self) -> None:
        wait_for(self._answers, f"{type(self).__name__} does not answer", CONTAINER_SECONDS)

    def _answers(self) -> bool:
        raise NotImplementedError


class MariaDBInDocker(InDocker):
    """The image `mariadb:11.4` with the embedded server's settings."""

    def __init__(self) -> None:
        from testcontainers.community.mysql import MySqlContainer

        options = "--skip-name-resolve --character-set-server=utf8mb4 --max-allowed-packet=64M"
        container = MySqlContainer("mariadb:11.4", username="root", password="bridge").with_command(options)
        super().__init__(container, 3306)

    def __enter__(self) -> Self:
        super().__enter__()
        _drop_databases(self.url)  # the image insists on making one
        return self

    @property
    def url(self) -> str:
        return f"mysql://root:bridge@{self.host}:{self.port}/"

    def _answers(self) -> bool:
        try:
            _connect(self.url).close()
        except pymysql.Error:
            return False
        return True


class KafkaInDocker(InDocker):
    """The image of Kafka that docker-compose.yml takes, in the embedded broker's version and with its settings."""

    def __init__(self) -> None:
        from testcontainers.core.container import DockerContainer

        container = DockerContainer(f"apache/kafka:{KAFKA_VERSION}")
        super().__init__(container, 9092)
        container.with_envs(
            KAFKA_NODE_ID="1",
            KAFKA_PROCESS_ROLES="broker,controller",
            KAFKA_CONTROLLER_QUORUM_VOTERS="1@localhost:9093",
            KAFKA_CONTROLLER_LISTENER_NAMES="CONTROLLER",
            KAFKA_LISTENERS="PLAINTEXT://:9092,CONTROLLER://:9093",
            KAFKA_LISTENER_SECURITY_PROTOCOL_MAP="CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR="1",
            KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR="1",
            KAFKA_TRANSACTION_STATE_LOG_MIN_ISR="1",
            KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS="0",
            KAFKA_AUTO_CREATE_TOPICS_ENABLE="false",
            KAFKA_MESSAGE_MAX_BYTES=str(64 << 20),
            KAFKA_LOG_RETENTION_MS="-1",
        )
        # Under which address it is reached is known once it has started.
        container.with_command(
            [
                "sh",
                "-c",
                "until [ -s /tmp/address ]; do sleep 0.1; done; export KAFKA_ADVERTISED_LISTENERS=$(cat"
                " /tmp/address); exec /etc/kafka/docker/run",
            ]
        )

    def __enter__(self) -> Self:
        self._container.start()
        self._container.exec(["sh", "-c", f"echo PLAINTEXT://{self.bootstrap_servers} > /tmp/address"])
        self._wait()
        return self

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host}:{self.port}"

    def create_topic(self, name: str, partitions: int, config: dict[str, str] | None = None) -> None:
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
        admin = self._admin()  # without a name of its own it would be gone before the answer
        admin.create_topics([new], operation_timeout=30)[name].result(30)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def _answers(self) -> bool:
        try:
            return bool(self._admin().list_topics(timeout=5).brokers)
        except KafkaException:
            return False
