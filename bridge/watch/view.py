"""What the port shows, as the last look at the pipeline found it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bridge.model import PartitionId, TableName
from bridge.mysql.state.ddl_journal import JournalEntry
from bridge.pipeline.watching.sample import Sample


@dataclass(frozen=True)
class TargetLook:
    """What the target tells of the pipeline.

    changes: the last schema changes, the newest first.
    states: the number of schema changes in each state.
    quarantined: the number of entries that are held, by code.
    looked_at: Unix time; None until the target has answered.
    """

    changes: tuple[JournalEntry, ...] = ()
    states: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[str, int] = field(default_factory=dict)
    looked_at: float | None = None


@dataclass(frozen=True)
class View:
    """What is shown.

    at, started_at: Unix time of the look, and of the start of the process.
    reason: why the pipeline does not apply what comes; "" while it does.
    sample: None until the pipeline reads.
    ends: where the partitions end, as far as Kafka has told.
    rate, table_rates: row changes per second of the last seconds.
    phases: where the time of the last seconds went.
    """

    at: float
    started_at: float
    reason: str
    sample: Sample | None = None
    ends: Mapping[PartitionId, int] = field(default_factory=dict)
    rate: float = 0.0
    table_rates: Mapping[TableName, float] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)
    target: TargetLook = TargetLook()

    def behind(self, where: PartitionId) -> int | None:
        """Counts the messages of a partition that are not, or not surely, in the target; None while Kafka has not told
        where it ends."""
        if self.sample is None or where not in self.ends or where not in self.sample.committed:
            return None
        return max(0, self.ends[where] - self.sample.committed[where].offset)
