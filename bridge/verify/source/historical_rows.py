"""Reads whole rows from the upstream as they were at a commit ts (TiDB, "Read historical data")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pymysql.err import MySQLError

from bridge.ends import End
from bridge.errors import SourceError
from bridge.model import TableName, quote_name
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import LOST, error_code, server_words, trouble
from bridge.mysql.table_definition import ColumnInfo, Definition, decoded, load_definitions
from bridge.pipeline.truncated_rows import Literals, RowsGoneError
from bridge.verify.compare.checksums import literal_of, readable

ROWS_PER_QUERY: Final = 16
"""It is small, since rows that were too large for a message are large."""
_TOO_OLD: Final = frozenset({8055, 9006})
"""The snapshot is older than the GC safe point; GC life time is shorter than the transaction (TiDB, Error codes)."""
_UNKNOWN_VARIABLE: Final = 1193


def enter_moment(session: Session, commit_ts: int) -> None:
    """Moves the session to a moment: from now on it reads what was committed at or below commit_ts (TSO)."""
    session.execute(f"SET @@session.tidb_snapshot = '{commit_ts}'")


class UpstreamRows:
    """Reads rows from the upstream; its session is opened when it is needed.  retry_seconds: how long the upstream may
    be away; 0 is for ever."""

    def __init__(self, upstream: Target, *, retry_seconds: float) -> None:
        self._upstream = upstream
        self._end = End("upstream", upstream.place, retry_seconds=retry_seconds)
        self._session: Session | None = None

    def rows_at(self, commit_ts: int, name: TableName, keys: Sequence[Literals]) -> list[Literals | None]:
        """Gives the rows of these keys as they were at commit_ts (TSO), None where there is none; values by the
        upstream's column names.

        Raises RowsGoneError when the upstream cannot show that moment any more, SourceError when it does not answer or
        refuses.
        """
        return self._end.retried(
            lambda: self._attempt(commit_ts, name, keys), "reading rows back", LOST, trouble, self._no_answer
        )

    def close(self) -> None:
        """Ends the session."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _attempt(self, commit_ts: int, name: TableName, keys: Sequence[Literals]) -> list[Literals | None]:
        try:
            session = self._open()
            enter_moment(session, commit_ts)
            definition = load_definitions(session, [name]).get(name)
            if definition is None:
                raise RowsGoneError(f"the upstream shows no table {name} at commit ts {commit_ts}")
            starts = range(0, len(keys), ROWS_PER_QUERY)
            return [row for i in starts for row in _read(session, definition, keys[i : i + ROWS_PER_QUERY])]
        except (MySQLError, OSError) as error:
            self.close()
            if isinstance(error, LOST) and error_code(error) not in _TOO_OLD:
                raise
            raise self._refused(error, commit_ts, name) from error

    def _open(self) -> Session:
        if self._session is None:
            self._session = self._upstream.connect(autocommit=True)
            self._upstream.announce(self._session)
        return self._session

    def _refused(self, error: Exception, commit_ts: int, name: TableName) -> Exception:
        if error_code(error) in _TOO_OLD:
            return RowsGoneError(
                f"the upstream does not show commit ts {commit_ts} any more, because it is older than"
                f" tidb_gc_life_time: {server_words(error)}"
            )
        fault = "the upstream is not TiDB" if error_code(error) == _UNKNOWN_VARIABLE else "the upstream refused a query"
        return SourceError(
            f"{fault}: {server_words(error)}",
            where=f"{self._upstream}, table {name}, commit ts {commit_ts}",
            fix="point --upstream at the TiDB that the changefeed reads, with a user that may read its tables",
        )

    def _no_answer(self, error: BaseException) -> SourceError:
        return SourceError(
            f"the upstream does not answer: {server_words(error)}",
            where=str(self._upstream),
            fix="rows that were too large for the topic are read back from it; check --upstream and that it runs",
        )


def _read(session: Session, definition: Definition, keys: Sequence[Literals]) -> Iterator[Literals | None]:
    columns = [column for column in definition.columns.values() if not column.generated]
    rows = session.rows(_query(definition, columns, keys))
    rows_by_number = {int(number): row_of(definition, columns, nulls, values) for number, nulls, *values in rows}
    yield from (rows_by_number.get(number) for number in range(len(keys)))


def _query(definition: Definition, columns: Sequence[ColumnInfo], keys: Sequence[Literals]) -> str:
    """Writes one SELECT for each key, with its number, which of the values are NULL, and the values in hex."""
    values = ",".join(readable(column) for column in columns)
    nulls = ",".join(f"ISNULL({quote_name(column.name)})" for column in columns)
    table, names = quote_name(*definition.name), definition.columns
    return " UNION ALL ".join(
        f"SELECT {number},CONCAT({nulls}),{values} FROM {table} WHERE "
        + " AND ".join(f"{quote_name(names[name.lower()].name)}={value}" for name, value in key.items())
        for number, key in enumerate(keys)
    )


def row_of(definition: Definition, columns: Sequence[ColumnInfo], nulls: str, values: Sequence[Any]) -> Literals:
    """Turns what was read into a row.  nulls: has a 1 for each column that is NULL.  values: in hex.

    TiDB gives NULL, with a warning only, where the result of a function is larger than a packet.
    """
    row: dict[str, str] = {}
    for column, is_null, value in zip(columns, nulls, values, strict=True):
        if value is None and is_null == "0":
            raise SourceError(
                f"a value of {definition.name}, column {column.name}, is larger than the source's max_allowed_packet",
                where=str(definition.name),
                fix="raise max_allowed_packet on the source",
            )
        row[column.name] = literal_of(column, None if value is None else bytes.fromhex(decoded(value)))
    return row
