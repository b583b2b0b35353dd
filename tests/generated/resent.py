"""The one moment at which what is sent again may stop the bridge: an older state of one row and a newer one of another
hold one unique value (guarantees, "The honest limits").

Nothing but the order of a partition tells what is older there, so that a transaction of the target may end between the
two.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Final, NamedTuple

from tests.generated.tables import Equality, Row, Table
from tests.generated.upstream import Change, Step

_TAKEN: Final = re.compile(r"refused rows of (.+?): 1062 \(Duplicate entry '(.*?)' for key '([^']+)'\)")


class Taken(NamedTuple):
    """A unique value that the target holds already, by the target's words."""

    table: str
    value: str
    key: str

    @classmethod
    def of(cls, words: str, names: Mapping[str, str]) -> Taken | None:
        """None where the words are about something else.  MySQL and TiDB put the table before the key.  names: the
        upstream's, by the target's."""
        found = _TAKEN.search(words)
        return cls(names[found[1]], found[2], found[3].rpartition(".")[2]) if found else None


def two_rows_hold(taken: Taken, sent: Sequence[Step], equality: Equality, *, nets: bool) -> bool:
    """Whether two rows that these transactions write, one transaction after the other, hold that value at one moment.

    sent: in the order in which they are sent; nets: only the end of each must be valid (`Upstream`).
    """
    rows: dict[Hashable, Row] = {}
    for step in sent:
        mine = [change for change in step.changes if change.table.name == taken.table]
        for changes in [mine] if nets else [[change] for change in mine]:
            write(rows, changes, equality)
            if changes and _are_two(taken, changes[0].table, list(rows.values()), equality):
                return True
    return False


def write(rows: dict[Hashable, Row], changes: Sequence[Change], equality: Equality) -> None:
    """Writes row changes to rows by their keys, whatever is there; what is written counts more than what is deleted."""
    for table, before, _ in changes:
        if before is not None:
            rows.pop(equality.key(table, table.uniques[0], before), None)
    for table, _, after in changes:
        if after is not None:
            rows[equality.key(table, table.uniques[0], after)] = after


def _are_two(taken: Taken, table: Table, rows: Sequence[Row], equality: Equality) -> bool:
    for unique in table.uniques[1:]:
        if unique.name == taken.key:
            held = [equality.key(table, unique, row) for row in rows]
            meant = {key for key, row in zip(held, rows, strict=True) if unique.shown(row) == taken.value}
            return any(held.count(key) > 1 for key in meant)
    return False
