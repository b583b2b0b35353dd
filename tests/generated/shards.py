"""One table of the oracle as two shards of the upstream, which the bridge merges again.

The key of a row says whose it is, so that keys never meet.  What gives a row another key may have it go over from one
shard to the other.  A schema change comes to one shard later than to the other: until then its rows are without the new
column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tests.generated.tables import Column, Equality, Row, Table
from tests.generated.upstream import Change, Step

SHARDS: Final = ("m1", "m2")
"""Databases of the upstream."""


@dataclass
class Shards:
    """What is told of the shards of one table.

    late: the shard to which schema changes come later; waits: the schema change that it has yet to see.
    """

    table: str
    equality: Equality
    late: str
    waits: tuple[Table, Table, str] | None = None

    def told(self, changes: Sequence[Change]) -> list[Change]:
        """Row changes as those of the shards; others stay."""
        return [part for change in changes for part in self._parts(change)]

    def first(self, ddl: tuple[Table, Table, str]) -> tuple[Table, Table, str]:
        """The schema change of the one shard; from now on that of the late one waits."""
        if ddl[0].name != self.table:
            return ddl
        [early] = {*SHARDS} - {self.late}
        self.waits = (replace(ddl[0], schema=self.late), replace(ddl[1], schema=self.late), ddl[2])
        return replace(ddl[0], schema=early), replace(ddl[1], schema=early), ddl[2]

    def must_come(self, following: Step | None) -> bool:
        """Whether what the late shard does next needs its schema change: a row says more than the default, or one
        without a key has to be found by all of its columns."""
        changes = self._of_late(following.changes if following else ())
        return any(self._says_more(row) for change in changes for row in change[1:]) or any(
            not change.table.handle and change.before is not None for change in changes
        )

    def later(self) -> tuple[Table, Table, str]:
        """The schema change that waits, and waits no more."""
        assert self.waits is not None
        ddl, self.waits = self.waits, None
        return ddl

    def _of_late(self, changes: Sequence[Change]) -> list[Change]:
        parts = [part for change in changes for part in self._split(change)]
        return [part for part in parts if part.table.schema == self.late]

    def _says_more(self, row: Row | None) -> bool:
        return any(row[column.name] != column.default for column in self._new()) if row is not None else False

    def _new(self) -> list[Column]:
        if self.waits is None:
            return []
        return [column for column in self.waits[1].columns if column.name not in self.waits[0].names]

    def _parts(self, change: Change) -> list[Change]:
        return [self._without_new(part) for part in self._split(change)]

    def _split(self, change: Change) -> list[Change]:
        """One row change, or the delete from one shard and the insert into the other."""
        table, before, after = change
        if table.name != self.table:
            return [change]
        homes = [self._home(table, row) for row in (before, after) if row is not None]
        if len(set(homes)) == 1:
            return [Change(replace(table, schema=homes[0]), before, after)]
        was, now = (replace(table, schema=home) for home in homes)
        return [Change(was, before, None), Change(now, None, after)]

    def _home(self, table: Table, row: Row) -> str:
        key = self.equality.key(table, table.uniques[0], row) if table.handle else repr(row[table.names[0]])
        return SHARDS[sum(repr(key).encode()) % 2]

    def _without_new(self, change: Change) -> Change:
        if self.waits is None or change.table.schema != self.late:
            return change
        names = self.waits[0].names
        before, after = ({n: row[n] for n in names} if row is not None else None for row in change[1:])
        return Change(self.waits[0], before, after)
