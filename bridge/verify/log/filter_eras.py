"""Leaves out of the messages what event filters have left out of the target.

These were not always the same, and what lies below the beginning of the pipeline came with the copy that it began from,
whatever it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import Kind
from bridge.filters.row_rules import RowRules
from bridge.model import TableName, topic_begins
from bridge.mysql.state.progress import Progress
from bridge.mysql.state.routes_record import FilterEra, FilterRecord
from bridge.protocols.batch_decode import EventDecoder, Messages
from bridge.protocols.ruled_rows import routed, without_ignored
from bridge.rows.gathering import masked
from bridge.rows.grouping import Bools
from bridge.rows.moments import last_ms
from bridge.tso import tso_ms
from bridge.verify.log.row_groups import are_reached, per_partition


@dataclass(frozen=True)
class FilterHistory:
    """With which event filters a pipeline came as far as it is.

    start_ts, begins: where it began (TSO), and topics that were added later.
    eras: those that have ended, the first one first; now: the rules since then.
    came_between: whether what was left out came to the target, by a copy or a fix file, as soon as it was not left out
        any more.  The messages do not tell.
    """

    start_ts: int
    begins: Mapping[str, int]
    eras: tuple[FilterEra, ...]
    now: RowRules
    came_between: bool = False

    @classmethod
    def of(cls, progress: Progress, record: FilterRecord | None, given: RowRules) -> Self:
        """Takes the given rules for those with which the pipeline ran where nobody has recorded any."""
        eras, now = (record.eras, record.now) if record else ((), given)
        return cls(progress.start_ts, topic_begins(progress.positions), eras, now)

    @property
    def identity(self) -> str:
        """Everything that says which row changes were left out."""
        return repr((self.start_ts, self.begins, self.eras, self.now.ignored, self.came_between))

    def set_again(self, name: TableName) -> frozenset[Kind]:
        """Gives the kinds of row changes of a table that were left out, then not, and are now.  Only people know
        whether what was left out the first time has come to the target in between."""
        told = [rules.ignored_kinds(*name) for rules in self._told]
        came = (told[-1] & before - frozenset.intersection(*told[at:]) for at, before in enumerate(told))
        return frozenset[Kind]().union(*came)

    @property
    def _told(self) -> tuple[RowRules, ...]:
        return (*(era.rules for era in self.eras), self.now)

    def parts(self, events: pa.Table) -> Iterator[tuple[pa.Table, tuple[RowRules, ...]]]:
        """Divides events; gives with each part the rules by all of which a row change has to be left out, to be
        missing on the target."""
        yield masked(events, is_copied := self._are_copied(events)), (RowRules(),)
        events = masked(events, ~is_copied)
        for at, era in enumerate(self.eras):
            is_in = are_reached(events, era.applied_ts, era.positions, {})
            yield masked(events, is_in), self._told[at:] if self.came_between else (era.rules,)
            events = masked(events, ~is_in)
        yield events, (self.now,)

    def _are_copied(self, events: pa.Table) -> Bools:
        """As the bridge takes them for being on the target when it begins."""
        begins = per_partition(events, lambda where: max(self.start_ts, self.begins.get(where[0], 0)))
        moments = per_partition(events, lambda where: tso_ms(max(self.start_ts, self.begins.get(where[0], 0))))
        by_time = events["by_time"].to_numpy(zero_copy_only=False)
        last = pc.cast(last_ms(events["commit_ts"]), pa.int64()).to_numpy()
        return np.asarray(np.where(by_time, last < moments, events["commit_ts"].to_numpy() < begins))


def ruled_by_history(decode: EventDecoder, rules: RowRules, history: FilterHistory) -> EventDecoder:
    """Makes a decoder that applies the rules to what another one gives, which applies none.  It can be sent to Spark's
    Python workers.

    A row change is left out where an event filter leaves it out now and one did when it came.  What is not left out any
    more is missing; what was not left out then is on the target.
    """

    def decoded(messages: Iterable[Messages]) -> Iterator[pa.Table]:
        for events in decode(messages):
            yield routed(pa.concat_tables(_kept(events, rules, history)), rules.routes)

    return decoded


def _kept(events: pa.Table, rules: RowRules, history: FilterHistory) -> Iterator[pa.Table]:
    for mine, then in history.parts(events):

        def by_all(schema: str, table: str, then: tuple[RowRules, ...] = then) -> frozenset[Kind]:
            return frozenset.intersection(*(one.ignored_kinds(schema, table) for one in (rules, *then)))

        yield without_ignored(mine, by_all)
