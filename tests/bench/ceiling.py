"""What the server itself takes: ready-made multi-row statements, nothing but sending them is timed.

They are made here and not by the bridge, so that the ceiling does not move with it: in transactions of 50,000 row
changes, folded per key, deletes by lists of keys, writes by INSERT ... ON DUPLICATE KEY UPDATE of 512 KiB.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import pymysql
from pymysql.converters import escape_string

from bridge.demo.model import BankColumn, BankRow, Change, TableVersion, Value
from tests.bench.database import connect, fingerprint, make_tables
from tests.bench.workload import Upstream, Workload

ROWS_PER_TRANSACTION = 50_000
STATEMENT_BYTES = 512 * 1024
KEYS_PER_DELETE = 2000
_DEADLOCK = 1213


class ReadyMade:
    """Statements in files, one file for each connection; keys are spread over the connections."""

    def __init__(self, folder: Path, workload: Workload, events: int, connections: int) -> None:
        self.workload, self.events = workload, 0
        self._paths = [folder / f"{workload.name}-{connections}-{number}" for number in range(connections)]
        with ExitStack() as stack:
            files: list[IO[bytes]] = [stack.enter_context(path.open("wb")) for path in self._paths]
            upstream = Upstream(workload)
            self._write(files, upstream, events)
        self._expected = upstream.fingerprint()

    def _write(self, files: list[IO[bytes]], upstream: Upstream, events: int) -> None:
        held: list[list[Change]] = [[] for _ in files]
        for transaction in upstream.transactions(events):
            for change in transaction.changes:
                held[_key_of(change) % len(files)].append(change)
            self.events += len(transaction.changes)
            for file, changes in zip(files, held, strict=True):
                if len(changes) >= ROWS_PER_TRANSACTION:
                    pickle.dump(list(statements(changes)), file)
                    changes.clear()
        for file, changes in zip(files, held, strict=True):
            pickle.dump(list(statements(changes)), file)

    def rate(self, url: str) -> float:
        """Row changes a second, on empty tables; the end is compared."""
        make_tables(url, self.workload)
        seconds = [0.0] * len(self._paths)

        def run(number: int) -> None:
            seconds[number] = _seconds_to_send(url, self._paths[number])

        threads = [threading.Thread(target=run, args=(number,)) for number in range(len(self._paths))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(seconds), "a connection failed"
        assert fingerprint(url, self.workload) == self._expected, "the ready-made statements are wrong"
        return self.events / max(seconds)


def statements(changes: list[Change]) -> Iterator[bytes]:
    """One transaction's statements: the last image of each key."""
    tables: dict[str, tuple[TableVersion, dict[int, BankRow | None]]] = {}
    for change in changes:
        tables.setdefault(change.shape.name, (change.shape, {}))[1][_key_of(change)] = change.after
    for shape, images in tables.values():
        for keys in _chunks([str(key) for key, row in images.items() if row is None], KEYS_PER_DELETE):
            yield f"DELETE FROM {shape.schema}.{shape.name} WHERE id IN ({','.join(keys)})".encode()
        yield from _writes(shape, [row for row in images.values() if row is not None])


def _writes(shape: TableVersion, rows: list[BankRow]) -> Iterator[bytes]:
    names = [column.name for column in shape.columns]
    head = f"INSERT INTO {shape.schema}.{shape.name} ({','.join(names)}) VALUES "
    tail = " ON DUPLICATE KEY UPDATE " + ",".join(f"{name}=VALUES({name})" for name in names[1:])
    bodies = [f"({','.join(map(_literal, shape.columns, row))})" for row in rows]
    if not bodies:
        return
    per_statement = max(1, STATEMENT_BYTES * len(bodies) // sum(map(len, bodies)))
    for some in _chunks(bodies, per_statement):
        yield (head + ",".join(some) + tail).encode()


def _chunks(items: list[str], size: int) -> Iterator[list[str]]:
    return (items[at : at + size] for at in range(0, len(items), size))


def _literal(column: BankColumn, value: Value) -> str:
    if value is None:
        return "NULL"
    if column.mysql_type == "blob":
        return f"x'{str(value).encode('latin-1').hex()}'"
    if isinstance(value, str):
        return f"'{escape_string(value)}'"
    return str(value) if isinstance(value, int) else f"'{value}'"


def _key_of(change: Change) -> int:
    row = change.before if change.after is None else change.after
    assert row is not None
    key = row[0]
    assert isinstance(key, int)
    return key


def _seconds_to_send(url: str, path: Path) -> float:
    """Seconds that one connection needs for a file of transactions, reading the file left out."""
    total = 0.0
    with connect(url) as connection, path.open("rb") as file:
        while (transaction := _next(file)) is not None:
            began = time.perf_counter()
            _apply(connection, transaction)
            total += time.perf_counter() - began
    return total


def _next(file: IO[bytes]) -> list[bytes] | None:
    try:
        loaded: list[bytes] = pickle.load(file)
    except EOFError:
        return None
    return loaded


def _apply(connection: pymysql.connections.Connection[Any], transaction: list[bytes]) -> None:
    while True:
        try:
            for statement in transaction:
                connection.query(statement)
            connection.commit()
        except pymysql.err.OperationalError as error:
            if error.args[0] != _DEADLOCK:
                raise
            connection.rollback()
        else:
            return
