"""Asks the server which keys it takes for one (see `rows.keys.key_spellings`)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pymysql.err import MySQLError

from bridge.model import Table
from bridge.mysql.connection.session import Session
from bridge.mysql.server_errors import TRANSIENT
from bridge.quoting import free_name, quote_name
from bridge.rows.arrow_images import TEXT, parts_of, runs, wrapped
from bridge.rows.keys.key_spellings import Spellings
from bridge.rows.sql.scratch_tables import definition
from bridge.rows.sql.statement import STATEMENT_BYTES


def ask(session: Session, scratch_schema: str, table: Table, key: tuple[str, ...], literals: pa.Array) -> Spellings:
    """Has the server say which of these keys are one to it; raises MySQLError when it cannot be asked.

    A value that the column does not take is left to the statement that writes it.
    """
    scratch = quote_name(scratch_schema, "spellings")
    definitions = [definition(table.columns[part].name, table.columns[part]) for part in key]
    columns = [quote_name(table.columns[part].name) for part in key]
    number = quote_name(free_name("key number", key))
    lengths = table.prefixes.get(key, (None,) * len(key))
    compared = [f"LEFT({c},{n})" if n else c for c, n in zip(columns, lengths, strict=True)]
    session.execute(f"DROP TEMPORARY TABLE IF EXISTS {scratch}")
    # Servers with sql_require_primary_key want a primary key of every table.
    numbered = f"{number} BIGINT AUTO_INCREMENT PRIMARY KEY"
    session.execute(f"CREATE TEMPORARY TABLE {scratch} ({','.join([numbered, *definitions])})")
    into = f"INSERT INTO {scratch} ({number},{','.join(columns)}) VALUES "
    _insert(session, into, _numbered_rows(literals, len(key)))
    session.execute("SET SESSION group_concat_max_len = 4294967295")
    found = session.rows(
        f"SELECT GROUP_CONCAT({number} ORDER BY {number}) FROM {scratch}"
        f" GROUP BY {','.join(compared)} HAVING COUNT(*) > 1"
    )
    session.execute(f"DROP TEMPORARY TABLE {scratch}")
    same: dict[str, str] = {}
    for (numbers,) in found:
        texts = [literals[int(number) - 1].as_py() for number in _text(numbers).split(",")]
        same.update(dict.fromkeys(texts, texts[0]))
    return same


def _text(numbers: str | bytes) -> str:
    return numbers.decode() if isinstance(numbers, bytes) else numbers


def _numbered_rows(literals: pa.Array, parts: int) -> pa.Array:
    numbers = pa.array(np.arange(1, len(literals) + 1)).cast(TEXT)
    texts = [numbers, *([literals] if parts == 1 else parts_of(literals, range(parts)))]
    return wrapped(["(", *([","] * parts), ")"], texts)


def _insert(session: Session, into: str, rows: pa.Array) -> None:
    """Inserts the rows that the columns take, found by halves where they do not take all."""
    for run in runs(rows, STATEMENT_BYTES):
        try:
            session.execute(into + ",".join(run.to_pylist()))
        except MySQLError as error:
            if isinstance(error, TRANSIENT):
                raise
            half = len(run) // 2
            for part in (run.slice(0, half), run.slice(half)) if half else ():
                _insert(session, into, part)
