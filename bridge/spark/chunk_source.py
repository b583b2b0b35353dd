"""The data source of the bridge itself: chunks of decoded events, of a stream, or of messages that are read once.

Its tasks read and decode, and give a row for each chunk (`event_transfer.Chunk`).  Its offsets are Kafka's, and Spark
asks for them, and for tasks, in a Python process of its own.  There, `Planned` passes each question on to the driver,
which knows what the target takes, what memory allows, and which topics there are.  It answers through a socket in the
query's folder, which only this user may open.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Connection, Listener
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark import RDD, cloudpickle
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa

    from bridge.spark.event_transfer import Chunk

Offsets = dict[str, dict[str, int]]
"""Topic, then partition as text, then offset: the form in which Spark keeps and shows the offsets of a stream."""

_SOCKET: Final = "plans"


class Tasks(Protocol):
    """Answers what Spark asks about messages that are read once."""

    def tasks(self) -> list[bytes]:
        """Gives the tasks of what was planned last, as `ChunkTask` has them."""


class Plans(Tasks, Protocol):
    """Answers what Spark asks about a stream."""

    def initial(self) -> Offsets:
        """Gives where the stream begins."""

    def latest(self) -> Offsets:
        """Gives the end of the next micro-batch, once it has one; the present offsets when the stream has ended."""

    def newest(self) -> Offsets:
        """Gives where the partitions ended when they were last looked at."""


def nested(offsets: Mapping[tuple[str, int], int]) -> Offsets:
    """Puts offsets of partitions into Spark's form."""
    by_topic: Offsets = {}
    for (topic, partition), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return by_topic


def flat(offsets: Offsets) -> dict[tuple[str, int], int]:
    """Reads offsets in Spark's form."""
    return {(topic, int(partition)): at for topic, ats in offsets.items() for partition, at in ats.items()}


@contextmanager
def answering(plans: Tasks, folder: str) -> Iterator[None]:
    """Answers Spark's questions in the block, in a thread for each process that asks."""
    over = threading.Event()
    with _address(folder) as address, Listener(address, "AF_UNIX") as listener:
        accepting = threading.Thread(target=_accept, args=(listener, plans, over), name="plans", daemon=True)
        accepting.start()
        try:
            yield
        finally:
            over.set()
            Client(address, "AF_UNIX").close()  # what waits for a process would wait for ever
            accepting.join()


class Planned:
    """Asks the driver.  It connects at the first question, so that it can be sent to another process."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._connection: Connection[Any, Any] | None = None

    def ask(self, question: str) -> Any:
        """Asks one of the questions of `Plans`, and returns the answer."""
        if self._connection is None:
            with _address(self._folder) as address:
                self._connection = Client(address, "AF_UNIX")
        self._connection.send(question)
        return self._connection.recv()

    def __getstate__(self) -> dict[str, Any]:
        """Gives what another process needs to ask by itself."""
        return {**vars(self), "_connection": None}


def _accept(listener: Listener, plans: Tasks, over: threading.Event) -> None:
    while not over.is_set():
        connection = listener.accept()
        threading.Thread(target=_answer, args=(connection, plans), name="plans-answer", daemon=True).start()


def _answer(connection: Connection[Any, Any], plans: Tasks) -> None:
    with suppress(EOFError, OSError), connection:  # the process has ended
        while True:
            connection.send(getattr(plans, connection.recv())())


@contextmanager
def _address(folder: str) -> Iterator[str]:
    """Gives the address of the socket in a folder whose path may be longer than that of a socket may be."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{_SOCKET}"
    finally:
        os.close(descriptor)


NAME: Final = "bridge-chunks"
FOLDER: Final = "folder"
"""The option that names the query's folder, in which the driver answers."""
CHUNK_ROW: Final = "events binary, rows binary, outline binary"
"""The columns of `Chunk`."""

Work = Callable[[], Iterable["Chunk"]]
"""What a task does; it is pickled.  Gives chunks."""


class ChunkTask(InputPartition):
    """What one task does: a pickled `Work`.  It holds the properties of Kafka's client, secrets too, and is never a
    part of a plan's text."""


def chunks_of(spark: SparkSession, work: Iterable[Work], folder: str) -> RDD[Row]:
    """Gives the chunks (CHUNK_ROW) of tasks that Spark runs when it is asked for them.  folder: as of `answering`."""
    spark.dataSource.register(ChunkSource)
    with answering(_ReadOnce([pickled(one) for one in work]), folder):
        rows = spark.read.format(NAME).option(FOLDER, folder).load().rdd
        rows.getNumPartitions()  # Spark asks for the tasks now
    return rows


class _ReadOnce:
    """The tasks of messages that are read once."""

    def __init__(self, tasks: list[bytes]) -> None:
        self._tasks = tasks

    def tasks(self) -> list[bytes]:
        return self._tasks


def pickled(work: Work) -> bytes:
    """Gives a task in the form that the source reads."""
    return bytes(cloudpickle.dumps(work))  # type: ignore[no-untyped-call]


class ChunkSource(DataSource):
    """Makes the readers of chunks."""

    @classmethod
    def name(cls) -> str:
        """The name for `spark.readStream.format(...)`."""
        return NAME

    def schema(self) -> str:
        """A row is a chunk."""
        return CHUNK_ROW

    def reader(self, schema: StructType) -> ChunkReader:  # noqa: ARG002
        """Makes the reader of what was planned last."""
        return ChunkReader(Planned(self.options[FOLDER]))

    def streamReader(self, schema: StructType) -> ChunkStreamReader:  # noqa: ARG002, N802
        """Makes the reader of what comes."""
        return ChunkStreamReader(Planned(self.options[FOLDER]))


class ChunkReader(DataSourceReader):
    """Reads what the driver has planned."""

    def __init__(self, planned: Planned) -> None:
        self._planned = planned

    def partitions(self, *_: Offsets) -> Sequence[ChunkTask]:
        """Gives the tasks that were planned last."""
        return [ChunkTask(task) for task in self._planned.ask("tasks")]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads and decodes in a task."""
        import pyarrow as pa  # not in the process that plans

        if isinstance(partition, ChunkTask):  # where nothing was planned, Spark runs one task without a plan
            work: Work = pickle.loads(partition.value)
            for chunk in work():
                yield pa.record_batch({name: pa.array([value], pa.binary()) for name, value in chunk._asdict().items()})


class ChunkStreamReader(ChunkReader, DataSourceStreamReader):
    """Reads what the driver plans, one micro-batch after the other."""

    def initialOffset(self) -> Offsets:  # noqa: N802
        """Gives where the stream begins."""
        return self._offsets("initial")

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Gives no limit: the driver plans as much as the target takes."""
        return ReadAllAvailable()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: ARG002, N802
        """Waits until the driver has planned a micro-batch."""
        return self._offsets("latest")

    def reportLatestOffset(self) -> Offsets:  # noqa: N802
        """Gives where the partitions ended when the driver last looked."""
        return self._offsets("newest")

    def stop(self) -> None:
        """Ends the process when its query has ended: Spark would print the end of its socket as a failure."""
        if isinstance(sys.exception(), EOFError):
            os._exit(0)

    def _offsets(self, question: str) -> Offsets:
        offsets: Offsets = self._planned.ask(question)
        return offsets
