"""What verify says of the target of a run: nothing of what is right, and how to fix what is missing or damaged."""

from __future__ import annotations

import traceback
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final
from unittest.mock import patch

from bridge.config import Settings
from bridge.errors import BridgeError, StoppedError
from bridge.model import quote_name
from bridge.protocols.batch_decode import Messages
from bridge.verify import snapshots
from bridge.verify.report import Report
from tests.generated.bench import Bench
from tests.generated.comparison import Comparison
from tests.generated.dimensions import NONE
from tests.generated.failures import Failure
from tests.generated.kinds import Value
from tests.generated.message_log import Placed, messages_of
from tests.generated.tables import Row, Table
from tests.generated.verifying import verify
from tests.support.clients import run_file

_UNLIKE: Final = {"float", "bit", "all bits"}
"""Types whose values are not found by their literals."""

_MOST_FILES: Final = 6
_NOT_COVERED: Final = ("only a part", "none of its rows are covered")
"""Words of notes on tables of which rows are not covered: a damaged one may be among them."""
_KEYLESS: Final = "it has no key"
"""How such a note begins on tables that are not damaged."""


@dataclass(frozen=True)
class Repairs:
    """Verifies the target of a run against its messages.  settings: those that the bridge has now."""

    bench: Bench
    comparison: Comparison
    random: Random
    settings: Settings

    def verify_meanwhile(self, log: Sequence[Placed]) -> None:
        """While a schema change waits, or has been decided about, nothing right is called wrong."""
        if self.comparison.history.early is not None:
            return  # something is wrong
        with patch.object(snapshots, "_PENDING_SECONDS", 0.0):
            try:
                report = verify(self.bench.url, self.settings, self._protocol, *self._in_parts(log))
            except StoppedError:
                return
        if different := [str(one) for one in report.tables if not one.is_equal]:
            raise Failure("verify differs meanwhile", "\n".join(different))

    def verify(self, log: Sequence[Placed]) -> None:
        """What is right must be equal to the messages, in whatever parts executors read them; what a table filter has
        left out, and does not any more, must be missing until the file has fixed it."""
        parts, ends = self._in_parts(log)
        history, fixes = self.comparison.history, self.bench.fixes
        expected = history.looked_at()
        differ = {name for name, rows in expected.items() if _differ(rows, history.end_state[name])}
        if any(content.table.name in differ and not content.table.handle for content in history.contents):
            return  # of a table without a key nothing is compared
        if fixes and differ and not self._has_event_filter:  # from before such filters change, nothing is covered
            history.end_state = expected
            self._repair("what was left out", parts, ends, fixes)
            return
        if different := self._different(parts, ends):
            raise Failure("verify differs", different)
        is_damaged = self.comparison.case.seed % self.bench.damages_one_in == 0
        if fixes and is_damaged and (damage := self._damage()):
            self._repair(damage, parts, ends, fixes)

    @property
    def _protocol(self) -> str:
        return self.comparison.case.wire.protocol

    def _in_parts(self, log: Sequence[Placed]) -> tuple[list[Messages], dict[tuple[str, int], int]]:
        parts, ends = [], {}
        for where in sorted({(one.topic, one.partition) for one in log}):
            mine = sorted((one for one in log if (one.topic, one.partition) == where), key=lambda one: one.offset)
            ends[where] = mine[-1].offset + 1
            at = self.random.randrange(len(mine) + 1)
            parts += [messages_of(part) for part in (mine[:at], mine[at:]) if part]
        return parts, ends

    def _repair(self, damage: str, parts: Sequence[Messages], ends: dict[tuple[str, int], int], fixes: Path) -> None:
        """What is damaged is found, and equal to the model once the file has fixed it."""
        report = self._report(parts, ends, fixes)
        notes = [note for table in report.tables for note in table.notes if not note.startswith(_KEYLESS)]
        if any(words in note for note in notes for words in _NOT_COVERED):
            return
        if report.is_equal:
            raise Failure("damage is not found", damage)
        run_file(self.bench.url, fixes)
        for _ in range(_MOST_FILES):
            if "have verify write a new file" not in fixes.read_text() or not self._different(parts, ends, fixes):
                break
            run_file(self.bench.url, fixes)
        if "by hand" in fixes.read_text():
            return
        told = f"{damage}\n{fixes.read_text()}"
        if different := self._different(parts, ends):
            raise Failure("the fix does not repair", f"{told}\n{different}")
        try:
            self.comparison.compare_rows(signs_of_zeros=False)  # to verify, and in its fix file, -0 is 0
        except Failure as failure:
            raise Failure("verify calls other rows equal after the fix", f"{told}\n{failure}") from failure

    def _different(self, parts: Sequence[Messages], ends: dict[tuple[str, int], int], fixes: Path | None = None) -> str:
        return "\n".join(str(one) for one in self._report(parts, ends, fixes).tables if not one.is_equal)

    def _report(self, parts: Sequence[Messages], ends: dict[tuple[str, int], int], fixes: Path | None) -> Report:
        try:
            return verify(self.bench.url, self.settings, self._protocol, parts, ends, fixes)
        except BridgeError as error:
            text = "".join(traceback.format_exception(error))
            raise Failure(f"verify ended with {type(error).__name__}", text) from error

    # --- damage

    def _damage(self) -> str:
        """Damages up to six rows; tells how, "" where there are none."""
        count = self.random.choice((1, 1, 2, 3, 6))
        return "\n".join(filter(None, (self._damage_row() for _ in range(count))))

    def _damage_row(self) -> str:
        """Deletes a row that the messages tell of, or changes it; tells what, "" where there is none.  Of a table
        without a key nothing is compared, nor do messages say anything of what is left out.  Rows from before the last
        ALTER of a table may not be covered, nor are those whose key messages spell in several ways."""
        history, spellings = self.comparison.history, self._spellings()
        altered = {step.ddl[0].name: n for n, step in enumerate(history.steps) if step.ddl}
        altered |= {step.ddl[1].name: n for n, step in enumerate(history.steps) if step.ddl}
        told = [
            (change.table.name, change.after)
            for number, step in list(enumerate(history.steps))[self._first_sure() :]
            for change in history.kept(number, step)
            if change.after in history.end_state.get(change.table.name, [])
            and change.table.name not in history.frozen
            and change.table.handle
            and number > altered.get(change.table.name, -1)
            and len(spellings[self._key(change.table, change.after or {})]) == 1
        ]
        is_altered_twice = self.comparison.case.choice["route"] == "shards" and altered  # by the late shard again
        if not told or self._has_event_filter or is_altered_twice:
            return ""
        name, row = self.random.choice(told)
        [table] = (content.table for content in history.contents if content.table.name == name)
        return self._harm(table, row or {})

    def _spellings(self) -> dict[Hashable, set[tuple[Value, ...]]]:
        """The values that stand in messages for each key."""
        spellings = defaultdict[Hashable, set[tuple[Value, ...]]](set)
        for step in self.comparison.history.steps:
            for one in step.changes:
                for row in filter(None, (one.before, one.after) if one.table.handle else ()):
                    spellings[self._key(one.table, row)].add(tuple(row[name] for name in one.table.handle))
        return spellings

    def _key(self, table: Table, row: Row) -> Hashable:
        return table.name, self.bench.equality.key(table, table.uniques[0], row)

    @property
    def _has_event_filter(self) -> bool:
        return self.comparison.case.choice["event filter"] != NONE

    def _harm(self, table: Table, row: Row) -> str:
        """Deletes or changes this row; tells how."""
        target = self.comparison.target
        free = [
            column.name
            for column in table.columns
            if column.type == "int" and not column.of
            and column.name not in {"a", "x", *table.handle, *table.unique_columns}
        ]  # fmt: skip
        where, values = [], []
        for name, value in row.items():
            if not table.column(name).of and table.column(name).type not in _UNLIKE:
                where.append(f"{quote_name(target.names(name))} <=> %s")
                values.append(value)
        there, rest = target.quoted(table.name), f" WHERE {' AND '.join(where)} LIMIT 1"
        columns = [quote_name(target.names(name)) for name in free[:1]]
        changes = [f"UPDATE {there} SET {column} = IF({column} <=> 7, 8, 7)" for column in columns]
        statement = self.random.choice([*changes, f"DELETE FROM {there}"]) + rest
        with target.session._raw.cursor() as cursor:
            changed = cursor.execute(statement.replace("%", "%%").replace("<=> %%s", "<=> %s"), values)
        return f"{statement}: {row}" if changed else ""  # JSON of MySQL and TiDB is not found by its text

    def _first_sure(self) -> int:
        """The number of the first step whose rows are sure to be there: those before a TRUNCATE that was skipped may
        be gone."""
        steps, choice = self.comparison.history.steps, self.comparison.case.choice
        emptied = [n for n, step in enumerate(steps) if step.ddl and step.ddl[2].startswith("TRUNCATE")]
        return emptied[-1] if emptied and choice["decision"] == "skip" else 0


def _differ(some: Sequence[Row], others: Sequence[Row]) -> bool:
    return sorted(map(repr, some)) != sorted(map(repr, others))
