"""The data source of the bridge itself: chunks of decoded events.

Its tasks read and decode, and give a row for each chunk (`event_transfer.Chunk`).  Its offsets are Kafka's; the driver
plans them (`plans`).
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from bridge.spark.source.plans import Offsets, Planned

if TYPE_CHECKING:  # the process that plans does without
    import pyarrow as pa

    from bridge.spark.event_transfer import Chunk

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


class ChunkSource(DataSource):
    """Makes readers of chunks."""

    @classmethod
    def name(cls) -> str:
        """The name for `spark.readStream.format(...)`."""
        return NAME

    def schema(self) -> str:
        """A row is a chunk."""
        return CHUNK_ROW

    def reader(self, schema: StructType) -> ChunkReader:  # noqa: ARG002
        """Makes the reader of a part of a micro-batch that is read again."""
        return ChunkReader(Planned(self.options[FOLDER]))

    def streamReader(self, schema: StructType) -> ChunkStreamReader:  # noqa: ARG002, N802
        """Makes the reader of what comes."""
        return ChunkStreamReader(Planned(self.options[FOLDER]))


class _Reading:
    """What both readers do."""

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


class ChunkReader(_Reading, DataSourceReader):
    """Reads what the driver has planned, once."""


class ChunkStreamReader(_Reading, DataSourceStreamReader):
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
        return self._offsets("known")

    def stop(self) -> None:
        """Ends the process when its query has ended: Spark would print the end of its socket as a failure."""
        if isinstance(sys.exception(), EOFError):
            os._exit(0)

    def _offsets(self, question: str) -> Offsets:
        offsets: Offsets = self._planned.ask(question)
        return offsets
