"""Loads expected rows into temporary tables, over several sessions at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Final

from pymysql.err import MySQLError

from bridge.mysql.connection.session import Session
from bridge.mysql.schema_changes.upstream_zone import fractions_of
from bridge.mysql.server_errors import REFUSED_VALUE, error_code, server_words
from bridge.verify.log.loaded.expected_tables import Insert
from bridge.verify.log.log_tables import LoggedTable

_AHEAD: Final = 16
"""How many statements of a session may wait."""


@dataclass
class LoadedPart:
    """A part of a table, mostly the whole of it, whose expected rows are in a session.

    number: of the part.
    source: the kind of the upstream, as in `DdlRules`, for rows whose key schema changes have converted.
    refused: what the target said when it refused a value, "" when it took them all.
    """

    table: LoggedTable
    number: int
    session: Session
    source: str = "tidb"
    refused: str = ""

    def create(self) -> None:
        """Makes the temporary table.  Raises the target's error, unless it is about a value."""
        self._run(self.table.expected_table.create())

    def drop(self) -> None:
        """Drops the temporary table."""
        self.session.execute(f"DROP TEMPORARY TABLE {self.table.expected_table.name}")

    def load(self, insert: Insert) -> None:
        """Loads rows, unless the target has refused a value before.  Raises any other error."""
        if self.refused:
            return
        with fractions_of(self.session, self.source) if insert.is_converted else nullcontext():
            self._load(insert)

    def _load(self, insert: Insert) -> None:
        if not self._run(insert.sql, may_refuse=not insert.must_fit):
            for half in insert.halves():
                self._load(half)

    def _run(self, sql: str, *, may_refuse: bool = False) -> bool:
        """Returns whether the target took the values.  may_refuse: whether it need not."""
        try:
            self.session.execute(sql)
        except MySQLError as error:
            if error_code(error) not in REFUSED_VALUE:
                raise
            if may_refuse:
                return False
            self.refused = server_words(error)
        return True


def parts_in(tables: Sequence[LoggedTable], sessions: Sequence[Session], source: str) -> list[LoadedPart]:
    """Spreads the parts of tables over the sessions, in the order of tables and parts.  source: as of `LoadedPart`."""
    places = ((table, part) for table in tables for part in range(len(table.ranges)))
    return [LoadedPart(table, part, sessions[i % len(sessions)], source) for i, (table, part) in enumerate(places)]


def load_parts(parts: Sequence[LoadedPart], inserts: Iterable[tuple[int, int, Insert]]) -> None:
    """Makes the temporary tables and fills them.  inserts: each with the numbers of its table and part.

    Raises the target's error, unless it is about a value.
    """
    places: dict[int, list[LoadedPart]] = {}
    for part in parts:
        places.setdefault(part.table.number, []).append(part)
    with ExitStack() as stack:
        sessions = {part.session for part in parts}
        pools = {session: stack.enter_context(ThreadPoolExecutor(1, "loading")) for session in sessions}
        waiting: dict[Session, deque[Future[None]]] = {session: deque() for session in sessions}

        def begin(part: LoadedPart, work: Callable[[], None]) -> None:
            mine = waiting[part.session]
            if len(mine) >= _AHEAD:
                mine.popleft().result()
            mine.append(pools[part.session].submit(work))

        for part in parts:
            begin(part, part.create)
        for table, number, insert in inserts:
            part = places[table][number]
            begin(part, partial(part.load, insert))
        for futures in waiting.values():
            for future in futures:
                future.result()
