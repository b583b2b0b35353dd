"""Writers on an upstream, and what a change log would hold of them: each transaction with its row changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

import pymysql
from sqlalchemy import make_url

SETUP: Final = """
CREATE DATABASE m;
CREATE TABLE m.accounts (id INT PRIMARY KEY, code INT UNIQUE, balance INT NOT NULL, owner VARCHAR(40));
CREATE TABLE m.notes (writer INT NOT NULL, text VARCHAR(40));
"""
ROWS: Final = 40
"""How many accounts a writer has at most."""
Row = tuple[int | str | None, ...]


class RowChange(NamedTuple):
    """One row change; an image is None where there is no row."""

    table: str
    before: Row | None
    after: Row | None


class Transaction(NamedTuple):
    """A transaction; at: its commit ts, or the time of its commit."""

    at: int
    writer: int
    changes: tuple[RowChange, ...]


@dataclass
class Writer:
    """Changes accounts of its own: ids, codes and notes that no other writer touches; codes move between its rows."""

    number: int
    random: Random
    rows: dict[int, Row] = field(default_factory=dict)
    notes: int = 0

    def transaction(self, *, with_notes: bool) -> list[tuple[str, RowChange]]:
        """A few statements, each with the row change that it makes."""
        made = [self._any_change() for _ in range(self.random.randint(1, 4))]
        if with_notes:
            self.notes += 1
            note = (self.number, f"note {self.notes % 3}")  # rows of a table without a key may be the same
            made.append((f"INSERT INTO m.notes VALUES {note}", RowChange("notes", None, note)))
        return made

    def _any_change(self) -> tuple[str, RowChange]:
        id_ = self.number * 1000 + self.random.randrange(ROWS)
        before = self.rows.get(id_)
        if before is not None and self.random.random() < 0.3:
            del self.rows[id_]
            return f"DELETE FROM m.accounts WHERE id = {id_}", RowChange("accounts", before, None)
        free = {self.number * 1000 + n for n in range(ROWS)} - {row[1] for row in self.rows.values()}
        code = self.random.choice(sorted(free))
        after: Row = (id_, code, self.random.randrange(1_000_000), f"owner {self.random.randrange(99)}")
        self.rows[id_] = after
        if before is None:
            return f"INSERT INTO m.accounts VALUES {after}", RowChange("accounts", None, after)
        text = f"UPDATE m.accounts SET code = {code}, balance = {after[2]}, owner = '{after[3]}' WHERE id = {id_}"
        return text, RowChange("accounts", before, after)


@contextmanager
def write_load(
    url: str, committed_at: Callable[[Any], int], *, writers: int = 3, with_notes: bool = True
) -> Iterator[list[Transaction]]:
    """Writes until the block ends; gives what was committed, which is complete after the block.

    committed_at: tells when the transaction was committed that a cursor has just committed.
    """
    log: list[Transaction] = []
    failures: list[BaseException] = []
    stop = threading.Event()

    def work(number: int) -> None:
        writer, parts = Writer(number, Random(number)), make_url(url)
        connection: Any = pymysql.connect(host=parts.host, port=parts.port or 3306, user=parts.username)
        try:
            with connection.cursor() as cursor:
                while not stop.wait(0.005):
                    made = writer.transaction(with_notes=with_notes)
                    cursor.execute("BEGIN")
                    for statement, _ in made:
                        cursor.execute(statement)
                    cursor.execute("COMMIT")
                    log.append(Transaction(committed_at(cursor), number, tuple(change for _, change in made)))
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    try:
        yield log
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not failures, failures
