"""What must be true of the target of a run: on its way, and in the end."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from tests.generated.cases import Case
from tests.generated.dimensions import NONE
from tests.generated.failures import Failure, cut, difference, sorted_rows
from tests.generated.history import History
from tests.generated.tables import Row, Table
from tests.generated.target_tables import TargetTables
from tests.support.pipelines import Pipeline


def may_be_ahead(case: Case) -> bool:
    """Whether the target may hold what comes again."""
    choice = case.choice
    return choice["redelivery"] != NONE or (
        choice["crash"] != NONE and (choice["consistency"] == "parallel" or choice["goes on with"] == "other mode")
    )


def may_watch(case: Case) -> bool:
    """Whether states between are upstream states: transactions are whole, and the target is not ahead."""
    choice, is_whole = case.choice, case.wire.has_boundaries
    return is_whole and choice["quarantine"] == NONE and choice["redelivery"] != "from below"


@dataclass(frozen=True)
class Comparison:
    """Compares the target with the history of the run."""

    case: Case
    history: History
    target: TargetTables

    # --- on its way

    def check_progress(self, pipeline: Pipeline) -> None:
        """After a transaction of the target: progress never goes back, and not beyond what boundaries vouch for."""
        applied_ts = self.target.session.value(
            "SELECT applied_ts FROM _bridge.progress WHERE name = %s", (pipeline.table.name,)
        )
        order = pipeline.applier.order
        text = f"from {order.applied_ts} to {applied_ts}, the resolved ts is {order.resolved_ts}"
        if applied_ts < order.applied_ts:
            raise Failure("progress goes back", text)
        if not order.by_partition and applied_ts > max(order.resolved_ts, order.applied_ts):
            raise Failure("progress beyond the resolved ts", text)

    def look(self, pipeline: Pipeline) -> None:
        """After a transaction of the target: it holds what the upstream held below applied_ts."""
        [(applied_ts, pending)] = self.target.session.rows(
            "SELECT applied_ts, pending FROM _bridge.progress WHERE name = %s", [pipeline.table.name]
        )
        steps = self.history.steps
        applied_ts = self._first_pending(pending, applied_ts)
        at = bisect_left([step.ts for step in steps], applied_ts)
        state = steps[at].before if at < len(steps) else steps[-1].after if steps else None
        if state is None:
            return
        for name, rows in state.items():
            if name in self.history.frozen:
                continue
            names = tuple(rows[0]) if rows else None
            found = self.target.rows(name, names)
            if sorted_rows(found) != sorted_rows([tuple(row.values()) for row in rows]):
                raise Failure(
                    "a state that the upstream never had", f"at {applied_ts}, {difference(name, rows, found)}"
                )

    def _first_pending(self, pending: str, applied_ts: int) -> int:
        """The rows are those before the schema change that is still to run; that of a late shard runs nothing."""
        waiting = {change["commit_ts"] for change in orjson.loads(pending)}
        return next((step.ts for step in self.history.steps if step.ddl and step.ts in waiting), applied_ts)

    # --- in the end

    def compare(self) -> None:
        """The end state: rows byte for byte, and what a target-only column may hold; without a commit ts a row takes
        it from the target's row of the key that it had, which is another one's where the target is ahead."""
        names, extras = self.history.names, self.history.extras()
        if self.target.there() != set(map(self.target.place, names)):
            raise Failure("tables differ", f"{names}, now {self.target.there()}")
        self.compare_rows()
        for content in self.history.contents:
            table, rows = content.table, self.history.end_state[content.table.name]
            if (
                table.name not in self.history.frozen
                and table.extra
                and (self.case.wire.has_commit_ts or not may_be_ahead(self.case))
            ):
                self._compare_extras(table, rows, extras[table.name])

    def compare_rows(self, *, signs_of_zeros: bool = True) -> None:
        """The rows of the end state alone.  signs_of_zeros: whether -0 is another value than 0."""
        for content in self.history.contents:
            table, rows = content.table, self.history.end_state[content.table.name]
            if table.name in self.history.frozen:
                self._compare_frozen(table.name)
                continue
            found = self.target.rows(table.name, table.names)
            expected: list[tuple[object, ...]] = [tuple(row.values()) for row in rows]
            if not signs_of_zeros:
                found, expected = ([tuple(map(_without_sign, row)) for row in some] for some in (found, expected))
            if sorted_rows(found) != sorted_rows(expected):
                raise Failure("rows differ", difference(table.name, rows, found))

    def _compare_frozen(self, name: str) -> None:
        found, frozen = self.target.rows(name, None), self.history.frozen[name]
        if sorted_rows(found) != sorted_rows(frozen):
            raise Failure("a table that is left out changes", cut(f"{name}: {frozen}, now {found}"))

    def _compare_extras(self, table: Table, rows: Sequence[Row], allowed: Sequence[frozenset[Any]]) -> None:
        found = self.target.rows(table.name, (*table.names, table.extra))
        values = {repr(row[:-1]): row[-1] for row in found}
        is_strict = self._keeps_extras()
        for row, some in zip(rows, allowed, strict=True):
            value = values[repr(tuple(row.values()))]
            if value not in some and (is_strict or value is not None):
                raise Failure("a target-only value is lost", f"{row} has {value}, not one of {sorted(some, key=repr)}")

    def _keeps_extras(self) -> bool:
        """Whether a row keeps its target-only value: not when it is written anew, nor when the two halves of an update
        can be cut apart, as nothing tells where a transaction ends."""
        is_in_halves = self.case.choice["unique updates"] == "split" and not self.case.wire.has_boundaries
        return not may_be_ahead(self.case) and not is_in_halves


def _without_sign(value: object) -> object:
    """A value, where -0 is 0."""
    return value + 0.0 if isinstance(value, float) else value
