"""Schema changes that wait for people: what is decided about them, and what the target then holds."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from pymysql.constants import ER
from pymysql.err import MySQLError

from bridge.commands.ddl import entries, release, site_for, translate
from bridge.config import Settings
from bridge.ddl.parser import Classified, classify
from bridge.model import quote_name
from bridge.mysql.connection.target import Target
from bridge.mysql.schema_changes.ddl_session import set_fractions
from bridge.mysql.server_errors import error_code
from bridge.mysql.state.ddl_journal import OPEN, JournalEntry, JournalState
from bridge.mysql.state.progress import ProgressTable
from tests.generated.event_filters import Told
from tests.generated.kinds import Value
from tests.generated.names import Names
from tests.generated.resent import write
from tests.generated.tables import Column, Equality, Row, Table
from tests.generated.upstream import Step, with_defaults

DECISIONS: Final = ("approve", "replace alike", "replace unlike", "skip", "by hand")
"""What is decided.  Alike: by a statement that does the same; unlike: by one that does something else."""
UNLIKE: Final = frozenset({"replace unlike", "skip"})
"""Those after which the target is another than the upstream."""
WAITING: Final = (
    *("add column", "drop column", "modify column", "add index", "drop index", "truncate table", "rename table"),
    *("drop table", "create table"),
)
"""The classes of all schema changes of runs."""
_REFUSED_BY_THE_TARGET: Final = "ALTER TABLE {} DROP COLUMN `nowhere`"
_OTHERS: Final[dict[str, tuple[str, Value]]] = {"int": ("bigint", 77), "varchar": ("varchar", "kept")}


def unlike(column: Column) -> Column:
    """What is added in the place of a column: it holds the same, and has another default where it can have one."""
    kind, default = _OTHERS.get(column.type, (column.type, column.default))
    return replace(column, type=kind, default=default)


def instead(ddl: tuple[Table, Table, str], there: str, names: Names) -> str:
    """The statement that does something else than a schema change of the table that is `there` on the target."""
    was, now, text = ddl
    if text.startswith("TRUNCATE"):
        return f"ALTER TABLE {there} COMMENT 'kept'"
    added = [column for column in now.columns if column.name not in was.names]
    if added:
        return f"ALTER TABLE {there} ADD COLUMN {names.sql(unlike(added[0]).sql)}"
    return f"ALTER TABLE {there} ADD INDEX `added` ({names.sql(now.key_sql(now.uniques[-1]))})"


@dataclass
class Operator:
    """Decides about the schema changes of a run, one after the other, while its bridge does not run.

    there: the first table on the target; instead: what runs in the place of a change where it is something else.
    seen: the ids of those that were looked at before.
    """

    target: Target
    settings: Settings
    decision: str
    there: str
    instead: str
    random: Random
    seen: set[str]

    def decide(self) -> bool:
        """Decides about what waits, or lets the bridge look at it once more; False where nothing waits."""
        waiting = [entry for entry in entries(self.target, self._table) or [] if entry.state in OPEN]
        for entry in waiting:
            if entry.id not in self.seen and self.random.random() < 0.4:
                self.seen.add(entry.id)
                self._begin_wrongly(entry)
            else:
                self._decide(entry)
        return bool(waiting)

    @property
    def _table(self) -> ProgressTable:
        return ProgressTable(self.settings.name)

    def _begin_wrongly(self, entry: JournalEntry) -> None:
        """Nothing is decided, or something that the target refuses."""
        if self.decision != "approve" and self.random.random() < 0.5:
            self._release(entry, JournalState.REPLACED, _REFUSED_BY_THE_TARGET.format(self.there))

    def _decide(self, entry: JournalEntry) -> None:
        match self.decision:
            case "approve":
                self._release(entry, JournalState.APPROVED)
            case "replace alike":
                self._release(entry, JournalState.REPLACED, self._translated(entry))
            case "replace unlike":
                self._release(entry, JournalState.REPLACED, self.instead)
            case "skip":
                self._release(entry, JournalState.SKIPPED)
            case _:
                text = self._translated(entry)
                self._run(text)
                is_told = bool(entry.replacement) or self.random.random() < 0.5
                self._release(entry, JournalState.DONE, text if is_told else "")

    def _run(self, text: str) -> None:
        """Runs it by hand, unless another shard has brought it."""
        session = self.target.connect(autocommit=True)
        try:
            set_fractions(session, "tidb")
            session.execute("SET time_zone = '+00:00'")
            session.execute(text)
        except MySQLError as error:
            if error_code(error) != ER.DUP_FIELDNAME:
                raise
        finally:
            session.close()

    def _translated(self, entry: JournalEntry) -> str:
        with site_for(self.settings, self.target, None) as (rules, site):
            text = translate(entry.statement, entry.schema, rules, site).text
        assert text is not None
        return _with_databases(text, entry.schema)

    def _release(self, entry: JournalEntry, state: JournalState, text: str = "") -> None:
        release(self.target, self._table, entry.id, state, text, settings=self.settings)


def _with_databases(text: str, schema: str) -> str:
    """A statement in which every table has its database."""
    known = classify(text, schema)
    assert isinstance(known, Classified)
    for named in sorted(known.touched, key=lambda named: -named.span[0]):
        start, end = named.span
        text = text[:start] + quote_name(*named.table) + text[end:]
    return text


@dataclass(frozen=True)
class DecidedTable:
    """The rows of the first table where its schema change was left out, or was something else.

    nets: of a transaction, what is written counts more than what is deleted.
    """

    table: Table
    decision: str
    told: Told
    equality: Equality
    nets: bool

    def steps(self, loaded: Sequence[Row], steps: Sequence[Step]) -> list[Step]:
        """The steps with the states that the target has instead of the upstream's."""
        rows = {self._key(row): row for row in loaded}
        made = []
        for step in steps:
            before = {**step.before, self.table.name: list(rows.values())}
            if step.ddl:
                rows = {key: self._altered(step.ddl[1], row) for key, row in rows.items()}
            mine = [change for change in self.told(step.changes) if change.table.name == self.table.name]
            for some in [mine] if self.nets else [[change] for change in mine]:
                write(rows, some, self.equality)
            made.append(step._replace(before=before, after={**step.after, self.table.name: list(rows.values())}))
        return made

    def _altered(self, now: Table, row: Row) -> Row:
        if self.decision == "skip":
            return now.complete(row)
        columns = tuple(column if column.name in row else unlike(column) for column in now.columns)
        return now.complete(with_defaults(replace(now, columns=columns), row))

    def _key(self, row: Row) -> Hashable:
        return self.equality.key(self.table, self.table.uniques[0], row)
