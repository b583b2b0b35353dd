"""Loads expected rows into temporary tables, over several sessions at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from pymysql.err import MySQLError

from bridge.mysql.connection import Session
from bridge.mysql.server_errors import REFUSED_VALUE, error_code, server_words
from bridge.verify.log.log_tables import LoggedTable

_AHEAD: Final = 16
"""How many statements of a session may wait."""


@dataclass
class LoadedPart:
    """A part of a table, mostly the whole of it, whose expected rows are in a session.

    number: of the part.
    refused: what the target said when it refused a value, "" when it took them all.
    """

    table: LoggedTable
    number: int
    session: Session
    refused: str = ""

    def load(self, sql: str) -> None:
        """Runs a statement, unless the target has refused a value before.  Raises any other error."""
        if self.refused:
            return
        try:
            self.session.execute(sql)
        except MySQLError as error:
            if error_code(error) not in REFUSED_VALUE:
                raise
            self.refused = server_words(error)


def parts_in(tables: Sequence[LoggedTable], sessions: Sequence[Session]) -> list[LoadedPart]:
    """Spreads the parts of tables over the sessions, in the order of tables and parts."""
    places = ((table, part) for table in tables for part in range(len(table.ranges)))
    return [LoadedPart(table, part, sessions[i % len(sessions)]) for i, (table, part) in enumerate(places)]


def load_parts(parts: Sequence[LoadedPart], statements: Iterable[tuple[int, int, str]]) -> None:
    """Makes the temporary tables and fills them.  statements: each with the numbers of its table and part.

    Raises the target's error, unless it is about a value.
    """
    places: dict[int, list[LoadedPart]] = {}
    for part in parts:
        places.setdefault(part.table.number, []).append(part)
    with ExitStack() as stack:
        sessions = {part.session for part in parts}
        pools = {session: stack.enter_context(ThreadPoolExecutor(1, "loading")) for session in sessions}
        waiting: dict[Session, deque[Future[None]]] = {session: deque() for session in sessions}

        def load(part: LoadedPart, sql: str) -> None:
            mine = waiting[part.session]
            if len(mine) >= _AHEAD:
                mine.popleft().result()
            mine.append(pools[part.session].submit(part.load, sql))

        for part in parts:
            load(part, part.table.expected_table.create())
        for table, number, sql in statements:
            load(places[table][number], sql)
        for futures in waiting.values():
            for future in futures:
                future.result()
