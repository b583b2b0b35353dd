"""An upstream in memory: a bank whose money moves between tables, while its sum never changes."""

from __future__ import annotations

import random
import time
import zlib
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final, NamedTuple

from bridge.demo.model import (
    BankColumn,
    BankRow,
    BankSchemaChange,
    BankTable,
    BankTotals,
    Change,
    DdlKind,
    TableVersion,
    Transaction,
    Value,
)
from bridge.tso import ms_tso, tso_ms

SCHEMA: Final = "bank"
LEDGER: Final = "ledger"
OPENING_BALANCE: Final = 1000
OPENED_AT_ONCE: Final = 6
LEDGER_ROWS: Final = 200
"""The most rows of the ledger; older entries are deleted, two at a time."""
LOGICAL_STEP: Final = 1 << 18
"""The largest step between two commit_ts (TSO); about half of them share a millisecond with the one before."""

_BALANCE: Final = BankColumn("balance", "bigint")
_CHECKING: Final = TableVersion(
    SCHEMA, "checking", (BankColumn("id", "bigint", key="primary"), BankColumn("owner", "varchar", "40"), _BALANCE)
)
_NOTE: Final = BankColumn("note", "varchar", "60", nullable=True, default="none")
_SAVINGS: Final = TableVersion(
    SCHEMA,
    "savings",
    (
        BankColumn("id", "bigint", key="primary"),
        BankColumn("iban", "varchar", "34", key="unique"),
        _BALANCE,
        BankColumn("moves", "int"),
    ),
)
_BROKERAGE: Final = TableVersion(
    SCHEMA,
    "brokerage",
    (BankColumn("code", "varchar", "16", key="unique"), _BALANCE, BankColumn("rate", "decimal", "6,3", nullable=True)),
)
_PENSION: Final = TableVersion(
    SCHEMA, "pension", (BankColumn("id", "bigint", key="primary"), _BALANCE, BankColumn("opened", "datetime"))
)
_LEDGER: Final = TableVersion(
    SCHEMA,
    LEDGER,
    (
        BankColumn("id", "bigint", key="primary"),
        BankColumn("amount", "decimal", "18,2"),
        BankColumn("booked", "datetime", "3"),
        BankColumn("memo", "varchar", "60", nullable=True),
    ),
)
_OWNERS: Final = ("Ada", "Björn", "Chloë", "董明珠", "O'Neill", "back\\slash", "🦊 & <co>")
_MEMOS: Final = ("rent", 'it\'s "quoted"', "50 % off\\", "<b>tea & cake</b>", "工资", "🎂", "two\nlines", "", None)
_EPOCH: Final = datetime(1970, 1, 1)


class Account(NamedTuple):
    """An account, by its table and key."""

    table: str
    key: Value


class Bank:
    """Accounts in several tables and a ledger.

    The same seed, accounts and start_ms give the same steps, if the calls of `advance_to` are the same.

    accounts: how many accounts are opened, and about how many stay open.
    start_ms: the start of its clock, in milliseconds since 1970; now by default.
    is_new: False for a bank that takes the place of one, whose database it drops first.
    tables: the state, by table name.
    total: the sum of all balances after every transaction.
    """

    def __init__(self, seed: int, *, accounts: int = 300, start_ms: int | None = None, is_new: bool = True) -> None:
        if accounts < 10:
            raise ValueError("a bank has 10 accounts at least")
        self._random = random.Random(seed)
        self._tso = ms_tso(round(time.time() * 1000) if start_ms is None else start_ms)
        self._wanted, self._is_new = accounts, is_new
        self._accounts: list[Account] = []
        self._place: dict[Account, int] = {}
        self._per_table: dict[str, int] = {}
        self._free_ibans: deque[Value] = deque()
        self._weighted = 0
        self._entry = 0
        self._opened = 0
        self.tables: dict[str, BankTable] = {}
        self.total = 2 * OPENING_BALANCE * accounts

    # --- clock

    def advance_to(self, ms: int) -> None:
        """Moves the clock forward to a time (milliseconds since 1970); it never goes back."""
        self._tso = max(self._tso, ms_tso(ms))

    def boundary(self) -> int:
        """Returns a TSO; no further step will be below it, but one may be exactly at it."""
        return self._tso + 1

    def _tick(self) -> int:
        self._tso += self._random.choice((1, self._random.randint(1, LOGICAL_STEP)))
        return self._tso

    def _now(self) -> datetime:
        return _EPOCH + timedelta(milliseconds=tso_ms(self._tso))

    # --- schema changes

    def schema(self) -> list[BankSchemaChange]:
        """Creates the database and the tables of the bank.  Call it once, before everything else."""
        drop = [] if self._is_new else [self._of_database(DdlKind.DROP_DATABASE, "DROP")]
        database = self._of_database(DdlKind.CREATE_DATABASE, "CREATE")
        return [*drop, database, *(self._create(shape) for shape in (_CHECKING, _SAVINGS, _BROKERAGE, _LEDGER))]

    def _of_database(self, kind: DdlKind, verb: str) -> BankSchemaChange:
        return BankSchemaChange(self._tick(), kind, SCHEMA, None, f"{verb} DATABASE `{SCHEMA}`")

    def create_table(self) -> BankSchemaChange:
        """Creates the table `pension`, in which accounts are opened from now on.  Call it once."""
        return self._create(_PENSION)

    def add_column(self) -> BankSchemaChange:
        """Adds a column to `checking`, which transfers write from now on.  Call it once."""
        table = self.tables[_CHECKING.name]
        shape = replace(table.shape, columns=(*table.shape.columns, _NOTE))
        table.add_columns(shape)
        statement = f"ALTER TABLE `{shape.name}` ADD COLUMN {_NOTE.ddl()}"
        return BankSchemaChange(self._tick(), DdlKind.ADD_COLUMN, SCHEMA, shape, statement)

    def _create(self, shape: TableVersion) -> BankSchemaChange:
        self.tables[shape.name] = BankTable(shape)
        if shape is not _LEDGER:
            self._per_table[shape.name] = 0
        statement = f"CREATE TABLE `{shape.name}` ({','.join(column.ddl() for column in shape.columns)})"
        return BankSchemaChange(self._tick(), DdlKind.CREATE_TABLE, SCHEMA, shape, statement)

    # --- transactions

    def transfer(self) -> Transaction:
        """Makes the next transaction, of 2 to 10 rows in several tables.

        The first one opens an account that holds all the money, the next ones open the others.  Then money moves;
        sometimes an account is opened or closed, or two accounts exchange their unique numbers.
        """
        if not self._accounts:
            return self._booked([self._insert(self.total)], self.total)
        if len(self._accounts) < self._wanted and self._opened < self._wanted:
            return self._open(min(OPENED_AT_ONCE, self._wanted - self._opened), self._accounts[0])
        dice = self._random.random()
        if dice < 0.06:
            if len(self._accounts) < self._wanted:
                return self._open(1, self._payer(1))
            return self._close()
        if dice < 0.11 and self._per_table[_SAVINGS.name] >= 2:
            return self._exchange_numbers()
        return self._move(self._random.randint(2, 7))

    def _open(self, count: int, payer: Account) -> Transaction:
        amount = min(OPENING_BALANCE, self._balance(payer) // count)
        changes = [self._update(payer, -amount * count)]
        changes += [self._insert(amount) for _ in range(count)]
        return self._booked(changes, amount * count)

    def _close(self) -> Transaction:
        closed, heir = (self._accounts[i] for i in self._random.sample(range(1, len(self._accounts)), 2))
        amount = self._balance(closed)
        changes = [self._delete(closed)]
        if amount:
            changes.append(self._update(heir, amount))
        return self._booked(changes, amount)

    def _exchange_numbers(self) -> Transaction:
        """Lets two savings accounts exchange their IBANs.  TiCDC sends a changed unique key as a delete and an
        insert."""
        table = self.tables[_SAVINGS.name]
        one, other = (table.rows[key] for key in self._two_of(table))
        at = table.shape.at["iban"]
        after = [_with(one, at, other[at]), _with(other, at, one[at])]
        deleted = [Change(table.shape, row, None) for row in (one, other)]
        inserted = [Change(table.shape, None, row) for row in after]
        for change in (*deleted, *inserted):
            table.apply(change)
        return self._booked(deleted, 0, inserted)

    def _two_of(self, table: BankTable) -> list[Value]:
        """Draws the keys of two accounts of a table, which must hold at least two."""
        drawn: list[Value] = []
        while len(drawn) < 2:
            account = self._random.choice(self._accounts)
            if account.table == table.shape.name and account.key not in drawn:
                drawn.append(account.key)
        return drawn

    def _move(self, count: int) -> Transaction:
        payer = self._payer(count - 1)
        payees = self._payees(payer, count - 1)
        share = self._balance(payer) // len(payees)
        amounts = [self._random.randint(1, min(share, OPENING_BALANCE // 4)) for _ in payees]
        changes = [self._update(payer, -sum(amounts))]
        changes += [self._update(payee, amount) for payee, amount in zip(payees, amounts, strict=True)]
        return self._booked(changes, sum(amounts))

    def _payer(self, least: int) -> Account:
        """Draws an account with at least so much money.  There is always one."""
        while self._balance(account := self._random.choice(self._accounts)) < least:
            continue
        return account

    def _payees(self, payer: Account, count: int) -> list[Account]:
        """Draws other accounts, not all of them in the payer's table."""
        while True:
            drawn = [account for account in self._random.sample(self._accounts, count + 1) if account != payer]
            if any(account.table != payer.table for account in drawn[:count]):
                return drawn[:count]

    def _booked(self, changes: Iterable[Change], amount: int, split_inserts: Iterable[Change] = ()) -> Transaction:
        """Commits a transaction: writes the ledger, and sorts the changes as TiCDC does.

        Within a table deletes come first, then updates, then inserts; inserts of split updates come last.
        """
        commit_ts = self._tick()
        changes = [*changes, *self._ledger(amount)]
        changes.sort(key=lambda change: (change.shape.name, change.after is not None, change.before is None))
        ledger = self.tables[LEDGER]
        moment = BankTotals(len(self._accounts), self.total, self._weighted, len(ledger.rows))
        return Transaction(commit_ts, self._entry, (*changes, *split_inserts), moment)

    def _ledger(self, amount: int) -> list[Change]:
        self._entry += 1
        ledger = self.tables[LEDGER]
        old = list(ledger.rows.values())[:2] if len(ledger.rows) >= LEDGER_ROWS else []
        booked: BankRow = (self._entry, Decimal(amount) / 100, self._now(), self._random.choice(_MEMOS))
        changes = [*(Change(ledger.shape, row, None) for row in old), Change(ledger.shape, None, booked)]
        for change in changes:
            ledger.apply(change)
        return changes

    # --- accounts

    def _balance(self, account: Account) -> int:
        table = self.tables[account.table]
        balance = table.rows[account.key][table.shape.at["balance"]]
        assert isinstance(balance, int)
        return balance

    def _update(self, account: Account, amount: int) -> Change:
        table = self.tables[account.table]
        before, at = table.rows[account.key], table.shape.at
        after = _with(before, at["balance"], self._balance(account) + amount)
        if (moves := at.get("moves")) is not None:
            after = _with(after, moves, before[moves] + 1)  # type: ignore[operator]  # an INT column
        if (note := at.get("note")) is not None:
            after = _with(after, note, self._random.choice(_MEMOS))
        self._weighted += _weight(account) * amount
        return _applied(table, Change(table.shape, before, after))

    def _insert(self, balance: int) -> Change:
        """Opens an account in the table with the fewest accounts."""
        self._opened += 1
        table = self.tables[min(self._per_table, key=self._per_table.__getitem__)]
        is_savings = table.shape.name == _SAVINGS.name
        values: dict[str, Value] = {
            "id": self._opened,
            "code": f"BR{self._opened:08d}",
            "owner": self._random.choice(_OWNERS),
            "iban": self._iban() if is_savings else None,
            "balance": balance,
            "moves": 0,
            "rate": self._random.choice((None, Decimal(self._random.randint(-9999, 9999)).scaleb(-3))),
            "opened": self._now().replace(microsecond=0),
            "note": "opened",
        }
        change = Change(table.shape, None, tuple(values[column.name] for column in table.shape.columns))
        account = Account(table.shape.name, table.shape.key_of(change.after or ()))
        self._place[account] = len(self._accounts)
        self._accounts.append(account)
        self._per_table[account.table] += 1
        self._weighted += _weight(account) * balance
        return _applied(table, change)

    def _iban(self) -> Value:
        """Returns the IBAN of a closed account if there is one, otherwise a new one."""
        return self._free_ibans.popleft() if self._free_ibans else f"XX{self._opened:032d}"

    def _delete(self, account: Account) -> Change:
        table = self.tables[account.table]
        before = table.rows[account.key]
        if account.table == _SAVINGS.name:
            self._free_ibans.append(before[table.shape.at["iban"]])
        self._weighted -= _weight(account) * self._balance(account)
        self._per_table[account.table] -= 1
        last, place = self._accounts.pop(), self._place.pop(account)
        if last != account:
            self._accounts[place], self._place[last] = last, place
        return _applied(table, Change(table.shape, before, None))


def _applied(table: BankTable, change: Change) -> Change:
    table.apply(change)
    return change


def _with(row: BankRow, at: int, value: Value) -> BankRow:
    return (*row[:at], value, *row[at + 1 :])


def _weight(account: Account) -> int:
    return zlib.crc32(f"{account.table}:{account.key}".encode())
