"""Runs one statement that writes rows, checks the target's answer, and turns a refusal into an error; or finds the
row changes that the target refuses, each of which is a statement of its own then."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from pymysql.err import MySQLError

from bridge.errors import ApplyError, RefusedRowsError
from bridge.events import Code
from bridge.model import Advance
from bridge.mysql.apply import load_data
from bridge.mysql.connection.session import Session, nothing
from bridge.mysql.server_errors import (
    DUPLICATE_KEY,
    NO_DEFAULT,
    PACKET_TOO_LARGE,
    REFUSED_VALUE,
    TOO_LARGE_ROW,
    TRANSIENT,
    TooLargeError,
    error_code,
    limit_fix,
    server_words,
)
from bridge.rows.key_spellings import other_spelling
from bridge.rows.net_changes import OrderedChanges
from bridge.rows.sql.in_order import Change, Moment, moments
from bridge.rows.sql.statement import STATEMENT_BYTES, Rendering, Stage, Statement

_DEFAULT_FIX: Final = (
    "the messages do not hold this column, and rows cannot be written without it, not even those that are there: give"
    " it a default on the target (ALTER TABLE ... ALTER COLUMN ... SET DEFAULT ...), or drop it there"
)
_QUARANTINE: Final = "or quarantine such rows with --on-bad-message quarantine"
_ALWAYS_SENT: Final = 2 * STATEMENT_BYTES
"""In bytes: a statement of several rows is smaller, so that the target's limit is the reason where it refuses one."""
_EXCHANGE_BYTES: Final = 64 * 1024
"""About so many bytes of small statements are sent together."""


def _refused(statement: Statement, error: MySQLError) -> ApplyError:
    what = f"the target refused rows of {statement.table}: {server_words(error)}"
    where = f"table {statement.table}; statement begins {statement.beginning}"
    if error_code(error) == PACKET_TOO_LARGE and statement.size < _ALWAYS_SENT:
        what = f"max_allowed_packet of the target is too small: {server_words(error)}"
        return ApplyError(
            what, where=where, fix="set max_allowed_packet on the target to 64M, and start the bridge again"
        )
    fix = "compare the table's columns on the target with the upstream's; nothing of this transaction is written"
    if isinstance(error, TooLargeError):
        what = f"a row of {statement.table} is too large for the target: {server_words(error)}"
        fix = f"{limit_fix(error)}, and start the bridge again"
    elif error_code(error) == NO_DEFAULT:
        fix = f"{_DEFAULT_FIX}, and start the bridge again; nothing of this transaction is written"
    elif error_code(error) not in REFUSED_VALUE | DUPLICATE_KEY:
        return ApplyError(what, where=where, fix=fix)
    fix = f"{fix}; {_QUARANTINE}"
    return RefusedRowsError(what, table=statement.table, code=Code.TARGET_REFUSED, where=where, fix=fix)


class Ahead:
    """Statements, of which the next one can be made before it is asked for: while the server works at the one before.

    A catch-up of 600,000 rows into 1,000 tables, 50 rows of each in a transaction, was 12 to 14 % faster so, one of
    real rows 1 to 3 % (pairs, two cores).
    """

    def __init__(self, statements: Iterable[Statement]) -> None:
        self._statements = iter(statements)
        self._queue: deque[Statement | None] = deque()

    def make(self) -> None:
        """Makes the next one."""
        self._queue.append(next(self._statements, None))

    def __iter__(self) -> Iterator[Statement]:
        while (statement := self._queue.popleft() if self._queue else next(self._statements, None)) is not None:
            yield statement


class Volume(NamedTuple):
    """What a transaction has sent so far."""

    statements: int = 0
    size: int = 0


def refused_transaction(step: Advance, error: Exception, volume: Volume) -> ApplyError:
    """Makes the error of a transaction that the target refuses, no single row of which is known to be the reason."""
    what, where = "the target refused rows", f"commit ts {step.old_ts} to {step.new_ts}"
    fix = f"compare the table on the target with the upstream's; the target is unchanged since commit ts {step.old_ts}"
    if isinstance(error, TooLargeError):
        what = f"a transaction of {volume.statements:,} statements, {volume.size:,} bytes, is too large for the target"
        fix = (
            f"{limit_fix(error)}; or lower stream.rows_per_transaction, which puts fewer upstream transactions into"
            " one; or have a single one divided over connections, as readers may see, by --consistency parallel"
        )
    return ApplyError(f"{what}: {server_words(error)}", where=where, fix=fix)


def execute_statement(
    session: Session, statement: Statement, *, safe_mode: bool, meanwhile: Callable[[], None] = nothing
) -> None:
    """Runs one statement that writes rows, in the session's open transaction.  meanwhile: as `Session.write`.

    Raises RefusedRowsError or ApplyError when the target refuses rows or would change a value; MySQLError for errors
    that a retry may cure, and for a duplicate key unless in safe mode.
    """
    if statement.load is not None:
        load_data.run(session, statement.sql, statement.load, meanwhile)
        return
    try:
        matched = matched_rows(session, statement, meanwhile)
    except MySQLError as error:
        is_whole = isinstance(error, TooLargeError) and error_code(error) not in TOO_LARGE_ROW  # of no single row
        if isinstance(error, TRANSIENT) or is_whole or (error_code(error) in DUPLICATE_KEY and not safe_mode):
            raise
        raise _refused(statement, error) from error
    check_matched(statement, matched)


def in_exchanges(statements: Iterable[Statement]) -> Iterator[list[Statement]]:
    """Gives statements in their order, those together that are sent in one exchange."""
    together: list[Statement] = []
    size = 0
    for statement in statements:
        if together and (not statement.joins or size + statement.size > _EXCHANGE_BYTES):
            yield together
            together, size = [], 0
        together.append(statement)
        size += statement.size
        if not statement.joins:
            yield together
            together, size = [], 0
    if together:
        yield together


def one_by_one(statements: Iterable[Statement]) -> Iterator[list[Statement]]:
    """Gives statements in their order, each to be sent alone."""
    return ([statement] for statement in statements)


class UnnamedWarningError(Exception):
    """The server warned of a statement that was sent together with others, and can no longer be asked of what."""


def execute_together(session: Session, statements: Sequence[Statement], *, safe_mode: bool) -> None:
    """Does what `execute_statement` does, for statements that may be sent together.  Raises UnnamedWarningError where
    the server warns of one: the transaction has to be written again, statement by statement."""
    try:
        if session.write_together([statement.sql for statement in statements]):
            raise UnnamedWarningError
    except MySQLError as error:
        if isinstance(error, TRANSIENT) or (error_code(error) in DUPLICATE_KEY and not safe_mode):
            raise
        raise _refused(statements[session.ran], error) from error


def matched_rows(session: Session, statement: Statement, meanwhile: Callable[[], None] = nothing) -> int:
    """Runs one statement of rows and tells how many rows it matched.  meanwhile: as `Session.write`.

    Raises ApplyError where it finds a row that the messages would overwrite under another spelling of its key.
    """
    if statement.expect == 0:
        for row in session.rows(statement.sql.decode()):
            what = f"the target has the row with the key {', '.join(map(repr, row))}, and messages spell it otherwise"
            raise other_spelling(statement.table, what, f"table {statement.table}")
        return 0
    matched = session.write(statement.sql, meanwhile)
    for sql in statement.otherwise:
        if matched:
            break
        matched = session.write(sql)
    return matched


def check_size(session: Session, statement: Statement) -> None:
    """Raises RefusedRowsError or ApplyError for a statement that the target would not read."""
    try:
        for sql in (statement.sql, *statement.otherwise):
            session.require_packet(sql)
    except TooLargeError as error:
        raise _refused(statement, error) from error


def check_matched(statement: Statement, matched: int) -> None:
    """Raises RefusedRowsError when a statement did not match the rows that it must match."""
    if statement.expect is None or matched == statement.expect:
        return
    counts = f"({matched} found, {statement.expect} expected)"
    what = f"a row of {statement.table}, which has no key, is not on the target as the message describes it {counts}"
    if statement.is_part:
        what = (
            f"a message holds only a part of a row of {statement.table} that is not on the target, so the rest of it is"
            f" not known {counts}"
        )
    raise RefusedRowsError(
        what,
        table=statement.table,
        code=Code.ROW_NOT_FOUND,
        where=f"table {statement.table}; statement {statement.beginning}",
        fix="the target differs from the upstream; "
        + ("" if statement.is_part else "give the table a key, or ")
        + f"copy it anew and begin there; {_QUARANTINE}",
    )


class Refusal(NamedTuple):
    """A row change, or its half that takes the row away or brings it, and why the target refuses it."""

    change: Change
    why: RefusedRowsError


class _Failure(NamedTuple):
    number: int
    stage: Stage
    why: RefusedRowsError


def refused_changes(session: Session, net: OrderedChanges, rendering: Rendering, *, only_first: bool) -> list[Refusal]:
    """Applies row changes in the session's open transaction, without those that the target refuses, and gives these.

    Raises ApplyError for what is the fault of no row, MySQLError for what a retry may cure.
    """
    refusals: list[Refusal] = []
    for moment in moments(net, rendering):
        session.execute("SAVEPOINT moment")
        while moment.changes and (failure := _failure(session, moment, rendering)):
            session.execute("ROLLBACK TO SAVEPOINT moment")
            moment, change = moment.without(failure.number, failure.stage)
            refusals.append(Refusal(change, failure.why))
            if only_first:
                return refusals
    return refusals


def _failure(session: Session, moment: Moment, rendering: Rendering) -> _Failure | None:
    for number, statement in moment.statements(rendering, is_single=True):
        try:
            check_size(session, statement)
            execute_statement(session, statement, safe_mode=True)
        except RefusedRowsError as refusal:
            return _Failure(number, statement.stage, refusal)
    return None
