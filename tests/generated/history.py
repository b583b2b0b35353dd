"""What the upstream of a run did, and what its target must hold of that."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import numpy as np

from bridge.rows.moments import latest_beside
from bridge.tso import tso_ms
from tests.generated.cases import Case
from tests.generated.decisions import UNLIKE, DecidedTable
from tests.generated.dimensions import Choice
from tests.generated.event_filters import FilteredTable, left_out, missed
from tests.generated.settings import at_first
from tests.generated.tables import Equality, Table
from tests.generated.target_tables import TargetTables
from tests.generated.upstream import Alter, Change, Content, State, Step, Upstream

BEGIN: Final = 470_611_860_099_956_769
"""A real TSO: it has 59 bits, so that 64 of them are one number in 64 bits of floating point, which is larger than
this one and the `ROUNDED_UP` behind it."""
ROUNDED_UP: Final = 8
SECOND: Final = 1000 << 18


class History:
    """The steps of a run, with the states that the target has.

    now: what holds since the bridge began, or went on, which `is_later` tells.
    steps: as the target has them; told_steps: as the messages tell them.
    loaded: the rows before the first step; end_state: those after the last one, on the target.
    start_ts: the commit ts at which the pipeline begins.
    early: the numbers of the steps that were in the target when the bridge went on; None before.
    frozen: rows of tables that are not replicated any more, from then on.
    """

    def __init__(self, case: Case, equality: Equality, random: Random, target: TargetTables) -> None:
        self._case, self._equality, self._random, self._target = case, equality, random, target
        wire = case.wire
        self._upstream = Upstream(case.tables, equality, nets=wire.is_tidb, is_whole=wire.has_boundaries)
        self._wire = wire(Random(case.seed), case.choice["unique updates"] == "split")
        self.now: Choice = at_first(case.choice)
        self.is_later = False
        self.steps: list[Step] = []
        self.told_steps: list[Step] = []
        self.loaded: State = {}
        self.end_state: State = {}
        self.start_ts = self._copied = 0
        """So many steps lie below the commit ts at which the pipeline begins."""
        self.early: frozenset[int] | None = None
        self.frozen: dict[str, list[tuple[Any, ...]]] = {}

    @property
    def contents(self) -> Sequence[Content]:
        """Each table as it is in the end, upstream."""
        return self._upstream.contents

    @property
    def names(self) -> list[str]:
        """Those of all tables in the end, upstream."""
        return [content.table.name for content in self.contents]

    def extras(self) -> dict[str, list[frozenset[Any]]]:
        """What the target-only column of each row may hold in the end."""
        return self._upstream.extras()

    def load(self) -> None:
        """Upstream and target hold what is there before the first message."""
        self._target.make(self._case.tables)
        for transaction in self._case.loaded:
            self._upstream.run(transaction, 0)
        for content in self._upstream.contents:
            for number, row in content.rows.items():
                if content.table.extra:
                    content.extras[number] = frozenset({number})
                self._target.insert(content.table, row, number)

    def run(self) -> set[str]:
        """The upstream does what it does; gives the kinds of operations that had an effect."""
        unit, ts = self._case.wire.unit, BEGIN + self._case.seed % ROUNDED_UP
        if unit != 1:
            ts = ts // SECOND * SECOND
        labels: set[str] = set()
        self.loaded = self._upstream.state()
        for transaction in self._case.transactions:
            ts += transaction.after * unit
            is_ddl = isinstance(transaction.statements[0], Alter)
            # With neither TSO nor place, what has a schema change's time counts as earlier, in whole seconds.
            aside = 2 * unit if is_ddl and not self._case.wire.has_places else 0
            ts += aside
            step = self._upstream.run(transaction, ts)
            ts += aside
            if step is not None:
                self.steps.append(step)
                labels.update(step.labels)
        self.end_state = self._upstream.state()
        if self._case.choice["decision"] in UNLIKE:
            first, decision = self._case.tables[0], self._case.choice["decision"]
            decided = DecidedTable(first, decision, self._wire.told, self._equality, nets=self._wire.is_tidb)
            self.steps = decided.steps(self.loaded[first.name], self.steps)
        self.told_steps = self.steps
        return labels

    def copy(self) -> bool:
        """The target gets what the upstream had at some moment, at which the pipeline begins; False where that is the
        first one."""
        numbers = [0, *(number for number in range(1, len(self.steps)) if self._may_begin(number))]
        self._copied = self._random.choice(numbers)
        if not self._copied:
            return False
        step = self.steps[self._copied]
        self.start_ts = step.ts
        for table in self._case.tables:
            self._target.replace_rows(table, step.before[table.name])
        return True

    def _may_begin(self, number: int) -> bool:
        """Whether all that comes before a step, and nothing else, is below its commit ts."""
        early, rest = self.steps[:number], self.steps[number:]
        if any(step.ddl or "refused" in step.labels for step in early):
            return False
        ts = [step.ts for step in early]
        begin = rest[0].ts
        if self._case.wire.has_commit_ts:
            return max(ts) < begin
        has_early_ddl = self._case.wire.has_places and any(step.ddl for step in rest)
        return not has_early_ddl and latest_beside(np.array([*map(tso_ms, ts)]), 1).max() < tso_ms(begin)

    def leave_out(self) -> None:
        """The states that the target has where some of what the upstream did is left out."""
        self.steps = self._without_left_out(self._filtered())
        self.end_state = self.steps[-1].after if self.steps else self.loaded

    def looked_at(self) -> State:
        """What verify takes for right in the end."""
        steps = self._without_left_out(self._filtered(is_looked_at=True))
        return steps[-1].after if steps else self.loaded

    def kept(self, number: int, step: Step) -> Sequence[Change]:
        """The row changes of a step that verify does not take for left out."""
        changes = self._wire.told(step.changes)
        for filtered in self._filtered(is_looked_at=True):
            changes = filtered.kept(number, changes)
        return changes

    def _without_left_out(self, tables: Sequence[FilteredTable]) -> list[Step]:
        steps = self.told_steps
        for filtered in tables:
            steps = filtered.steps(self.loaded[filtered.table.name], steps)
        return steps

    def _filtered(self, *, is_looked_at: bool = False) -> list[FilteredTable]:
        """The tables of which something is left out.

        is_looked_at: as verify sees them, with the settings of now, instead of as the target has them.
        """
        wire, found = self._wire, []

        def add(table: Table, names: set[str], first: frozenset[str], last: frozenset[str]) -> None:
            def left_out_of(number: int) -> frozenset[str]:
                if number < self._copied:
                    return frozenset()
                then = first if self.early is None or number in self.early else last
                return missed(last, then) if is_looked_at else then

            nets = wire.is_tidb
            found.append(FilteredTable(table, frozenset(names), left_out_of, wire.told, self._equality, nets=nets))

        filters = [left_out(choice["event filter"]) for choice in (at_first(self._case.choice), self.now)]
        if any(filters):
            first = self._case.tables[0]
            add(first, {first.name, "renamed"}, *filters)
        return found
