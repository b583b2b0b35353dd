"""Draws the transactions of a run: what users do to rows, in the proportions that hurt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from tests.generated.dimensions import NONE, Choice
from tests.generated.kinds import MODIFIED, VALUES, Value, pool_of
from tests.generated.tables import KEYS, LARGE, REFUSED, SPARE_KEYS, Column, Equality, Row, Table, Unique
from tests.generated.upstream import Alter, Content, Delete, Insert, Statement, Transaction, Update, Upstream
from tests.generated.wires import WIRES

_ADDED: Final = (
    Column("added", "int"),
    Column("added", "int", nullable=False, default=7),
    Column("added", "varchar", collation="utf8mb4_bin"),
)
_ATTEMPTS: Final = 6
_HURTS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "shape": {"target-only": ("swap", "pass on")},
    "key type": {"varchar": ("respell",)},
    "protocol": {"official canal NOBLOB": ("move", "large")},
}
"""Operations that are favoured beside others: for a shape, where rows are written anew; for a type of keys; where rows
come in parts."""


@dataclass
class Draughtsman:
    """Draws transactions on an upstream, which it runs, so that most of them have an effect.

    operations: those that may be drawn; some are favoured in a run.  further: kinds of schema changes that may follow
        the chosen one.
    """

    random: Random
    upstream: Upstream
    choice: Choice
    operations: Sequence[str]
    further: Sequence[str] = ()
    pools: dict[str, tuple[Value, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pools = {kind: tuple(self.random.sample(pool, k=min(len(pool), 6))) for kind, pool in KEYS.items()}
        self._favoured = self.random.sample(list(self.operations), k=min(len(self.operations), 4))
        hurts = [one for dimension, of in _HURTS.items() for one in of.get(self.choice[dimension], ())]
        self._favoured += [operation for operation in hurts if operation in self.operations]
        self._ts = 0
        self._kinds = [self.choice["schema change"]] if self.choice["schema change"] != NONE else []
        if self._kinds and self.further:
            self._kinds += self.random.choices(self.further, k=self.random.choice((0, 0, 1, 2, 3)))

    def rows(self, table: int, count: int) -> list[Transaction]:
        """A load of so many rows, or fewer."""
        return self._kept([Transaction(1, (Insert(table, self._row(self._content(table))),)) for _ in range(count)])

    def transactions(self, count: int) -> list[Transaction]:
        """So many transactions or fewer, with the schema changes somewhere among them."""
        drawn: list[Transaction] = []
        whens = sorted(self.random.randrange(1, max(2, count)) for _ in self._kinds)
        for number in range(count):
            for when, kind in zip(whens, self._kinds, strict=True):
                if when == number:
                    drawn += self._kept([Transaction(2, (self._alter(0, kind),), ("schema change",))])
            drawn += self._transactions()
        if self.choice["quarantine"] != NONE:
            drawn += self._refused()
        return drawn

    # --- one after the other

    def _kept(self, drawn: Sequence[Transaction]) -> list[Transaction]:
        """Those that have an effect."""
        self._ts += 1
        return [one for one in drawn if self.upstream.run(one, self._ts) is not None]

    def _transactions(self) -> list[Transaction]:
        for _ in range(_ATTEMPTS):
            label = self.random.choice(self._favoured if self.random.random() < 0.6 else list(self.operations))
            table = 0 if self.random.random() < 0.8 else self.random.randrange(len(self.upstream.contents))
            content = self._content(table)
            if label not in {"insert", "large", "empty"} and not content.rows:
                label = "insert"
            parts = _OPERATIONS[label](self, table)
            if parts and self.random.random() < 0.3 and not label.startswith("reinsert"):
                parts = [[*parts[0], *self._insert(table)[0]], *parts[1:]]
            after = (
                self.random.choice((0, 1, 1, 2, 9))
                if not self.upstream.nets
                else self.random.choice((1, 1, 1, 2, 7, 1 << 18))
            )
            made = self._kept([Transaction(after, tuple(part), (label,)) for part in parts if part])
            if made:
                return made
        return []

    def _content(self, table: int) -> Content:
        return self.upstream.contents[table]

    def _pick(self, table: int) -> Row | None:
        rows = list(self._content(table).rows.values())
        return self.random.choice(rows) if rows else None

    def _where(self, table: Table, row: Row) -> Row:
        return {name: row[name] for name in table.handle or table.names}

    def _value(self, table: Table, column: Column) -> Value:
        if column.name == "q":
            return None
        if column.name in table.unique_columns:
            kind = pool_of(column.type)
            pool = self.pools[kind if kind in self.pools else "int"]
            return None if column.nullable and self.random.random() < 0.2 else self.random.choice(pool)
        pool = VALUES[pool_of(column.type)]
        return self.random.choice(pool if column.nullable else [value for value in pool if value is not None])

    def _row(self, content: Content) -> Row:
        return {column.name: self._value(content.table, column) for column in content.table.columns if not column.of}

    def _plain_names(self, table: Table) -> list[str]:
        return [c.name for c in table.columns if not c.of and c.name not in table.handle and c.name != "q"]

    def _free_key(self, table: int) -> Row:
        """Values of the handle key, mostly of no row."""
        content = self._content(table)
        held = {self._key(content, row) for row in content.rows.values()}
        for _ in range(_ATTEMPTS):
            row = self._row(content)
            if self._key(content, row) not in held:
                break
        return {name: row[name] for name in content.table.handle}

    def _key(self, content: Content, row: Row) -> object:
        return self.upstream.equality.key(content.table, content.table.uniques[0], row)

    # --- operations: the statements of each transaction

    def _insert(self, table: int) -> list[list[Statement]]:
        return [[Insert(table, self._row(self._content(table)))]]

    def _update(self, table: int) -> list[list[Statement]]:
        row, of = self._pick(table), self._content(table).table
        assert row is not None
        names = self._plain_names(of)
        chosen = self.random.sample(names, k=min(len(names), self.random.choice((1, 1, 2))))
        return [[Update(table, self._where(of, row), {name: self._value(of, of.column(name)) for name in chosen})]]

    def _touch(self, table: int) -> list[list[Statement]]:
        """A change that leaves large values as they are."""
        row, of = self._pick(table), self._content(table).table
        assert row is not None
        name = "n" if "n" in of.names else self._plain_names(of)[-1]
        return [[Update(table, self._where(of, row), {name: self._value(of, of.column(name))})]]

    def _delete(self, table: int) -> list[list[Statement]]:
        row = self._pick(table)
        assert row is not None
        return [[Delete(table, self._where(self._content(table).table, row))]]

    def _large(self, table: int) -> list[list[Statement]]:
        row, of = self._pick(table), self._content(table).table
        value: Row = {"big": self.random.choice(LARGE)}
        if row is None or self.random.random() < 0.3:
            return [[Insert(table, self._row(self._content(table)) | value)]]
        return [[Update(table, self._where(of, row), value)]]

    def _empty(self, table: int) -> list[list[Statement]]:
        of = self._content(table).table
        empty: Row = {
            c.name: "" if self.random.random() < 0.5 else None
            for c in of.columns
            if c.is_text and c.nullable and c.name != "q"
        }
        row = self._pick(table)
        if row is None or self.random.random() < 0.4:
            return [[Insert(table, self._row(self._content(table)) | empty)]]
        return [[Update(table, self._where(of, row), empty)]]

    def _respell(self, table: int) -> list[list[Statement]]:
        """Another spelling of a key, or of a unique value; perhaps with another column."""
        row, of = self._pick(table), self._content(table).table
        assert row is not None
        sets: Row = {}
        for unique in of.uniques:
            for name in unique.columns:
                column, value = of.column(name), row[name]
                if column.type in {"varchar", "char"} and isinstance(value, str):
                    same = self.upstream.equality.same(value, column, unique.prefix)
                    spellings = [
                        text for text in KEYS[column.type]
                        if text != value and self.upstream.equality.same(text, column, unique.prefix) == same
                    ]  # fmt: skip
                    if spellings:
                        sets[name] = self.random.choice(spellings)
        if not sets:
            return []
        if self.random.random() < 0.5:
            sets["n"] = self.random.choice(VALUES["int"])
        where = self._where(of, row)
        if self.random.random() < 0.25:
            return [[Delete(table, where), Insert(table, {**row, **sets})]]
        return [[Update(table, where, sets)]]

    def _move(self, table: int) -> list[list[Statement]]:
        row, of = self._pick(table), self._content(table).table
        assert row is not None
        sets = self._free_key(table)
        if self.random.random() < 0.3:
            sets["n"] = self.random.choice(VALUES["int"])
        return [[Update(table, self._where(of, row), sets)]]

    def _chain(self, table: int) -> list[list[Statement]]:
        """Rows that move on, each to the key of the next, the last to a free one; in one transaction or several."""
        of, rows = self._content(table).table, list(self._content(table).rows.values())
        chosen = self.random.sample(rows, k=min(len(rows), self.random.choice((2, 2, 3))))
        keys = [{name: row[name] for name in of.handle} for row in chosen] + [self._free_key(table)]
        moves: list[Statement] = [
            Update(table, self._where(of, row), key) for row, key in zip(chosen, keys[1:], strict=True)
        ]
        moves.reverse()
        return [moves] if self.random.random() < 0.6 else [[move] for move in moves]

    def _two(self, table: int) -> tuple[Row, Row] | None:
        rows = list(self._content(table).rows.values())
        return tuple(self.random.sample(rows, k=2)) if len(rows) > 1 else None  # type: ignore[return-value]

    def _swap(self, table: int) -> list[list[Statement]]:
        """Two rows exchange a unique value; NULL stands between where every statement must be valid."""
        two, of = self._two(table), self._content(table).table
        others = [unique for unique in of.uniques[1:] if unique.columns]
        if two is None or not others:
            return []
        name = self.random.choice(others).columns[0]
        (one, other), column = two, of.column(name)
        parts: list[Statement] = [
            Update(table, self._where(of, other), {name: one[name]}),
            Update(table, self._where(of, one), {name: other[name]}),
        ]
        if not self.upstream.nets:
            between = None if column.nullable else SPARE_KEYS[pool_of(column.type)][0]
            parts.insert(0, Update(table, self._where(of, one), {name: between}))
        return [parts]

    def _swap_keys(self, table: int) -> list[list[Statement]]:
        two, of = self._two(table), self._content(table).table
        if two is None:
            return []
        one, other = ({name: row[name] for name in of.handle} for row in two)
        if self.upstream.nets:
            return [[Update(table, one, other), Update(table, other, one)]]
        between: Row = {name: SPARE_KEYS[pool_of(of.column(name).type)][0] for name in of.handle}
        return [[Update(table, one, between), Update(table, other, one), Update(table, between, other)]]

    def _pass_on(self, table: int) -> list[list[Statement]]:
        """A unique value goes from one row to another, or to a new one; in one transaction or in two."""
        row, of = self._pick(table), self._content(table).table
        if row is None or len(of.uniques) < 2:
            return []
        name = self.random.choice(of.uniques[1:]).columns[0]
        value = row[name]
        gives: Statement = Delete(table, self._where(of, row))
        if of.column(name).nullable and self.random.random() < 0.7:
            gives = Update(table, self._where(of, row), {name: None})
        taker = self._pick(table)
        takes: Statement = Insert(table, self._row(self._content(table)) | {name: value})
        if taker is not None and taker is not row:
            takes = Update(table, self._where(of, taker), {name: value})
        return [[gives, takes]] if self.random.random() < 0.6 else [[gives], [takes]]

    def _reinsert(self, table: int) -> list[list[Statement]]:
        """A row goes, and one of the same key comes."""
        row, of = self._pick(table), self._content(table).table
        assert row is not None
        new = self._row(self._content(table)) | {name: row[name] for name in of.handle or of.names[:1]}
        return [[Delete(table, self._where(of, row)), Insert(table, new)]]

    def _reinsert_later(self, table: int) -> list[list[Statement]]:
        return [[statement] for statement in self._reinsert(table)[0]]

    # --- schema changes and refusals

    def _alter(self, table: int, kind: str) -> Alter:
        of = self._content(table).table
        if kind == "add column":
            special = self.choice["column type"]
            others = [replace(of.column("x"), name="added")] if special != NONE and "x" in of.names else []
            return Alter(table, kind, column=self.random.choice([*_ADDED, *others]))
        if kind == "drop column":
            return Alter(
                table,
                kind,
                name=self.random.choice([name for name in ("n", "s", "x", "added") if name in of.names] or ["n"]),
            )
        if kind == "modify column":
            return Alter(table, kind, column=self.random.choice([Column("n", "bigint"), *self._modified(of)]))
        if kind == "add unique":
            return Alter(table, kind, unique=Unique("added unique", ("n",)))
        if kind == "drop unique":
            return Alter(table, kind, name=of.uniques[-1].name)
        if kind == "rename column":
            names = [name for name in of.names if name in {"k", "n", "s", "u", "w"}]
            return Alter(table, kind, name=self.random.choice(names or ["n"]))
        if kind == "recreate":
            return Alter(table, kind, made=self._made_anew(of))
        return Alter(table, kind, name="t0" if of.name == "renamed" else "renamed")

    def _made_anew(self, of: Table) -> Table:
        """The table with its columns in another order, one of them less, and perhaps another kind of key."""
        spare = [c.name for c in of.columns if c.name in {"n", "s", "x", "added"} and c.name not in of.unique_columns]
        gone = self.random.choice([*spare, ""])
        columns = tuple(column for column in of.columns if column.name != gone)
        has_primary = of.has_primary and (bool(of.uniques[0].prefix) or self.random.random() < 0.5)
        clustered = has_primary and self.random.random() < 0.6
        shuffled = tuple(self.random.sample(columns, k=len(columns)))
        return replace(of, columns=shuffled, has_primary=has_primary, clustered=clustered)

    def _modified(self, of: Table) -> list[Column]:
        columns = [column for column in of.columns if column.name in {"x", "k"} and column.type in MODIFIED]
        kinds = [MODIFIED[column.type] for column in columns]
        return [replace(c, type=kind, collation=text) for c, (kind, text) in zip(columns, kinds, strict=True)]

    def _refused(self) -> list[Transaction]:
        """Rows that the target refuses, among others: the last that happens to their keys."""
        value, of = REFUSED[self.choice["quarantine"]], self._content(0).table
        drawn = []
        # A retry does not add a row without a key to an equal one, which it may be.
        for number in range(self.random.choice((1, 1, 2)) if of.handle else 1):
            spare: Row = {name: SPARE_KEYS[pool_of(of.column(name).type)][number] for name in of.handle}
            row = self._row(self._content(0)) | {"q": value} | spare
            row |= {name: None for name in of.unique_columns - set(of.handle) if of.column(name).nullable}
            row |= {
                n: SPARE_KEYS[pool_of(of.column(n).type)][number]
                for n in of.unique_columns - set(of.handle)
                if not of.column(n).nullable
            }
            drawn.append(Transaction(1, (Insert(0, row),), ("refused",)))
        kept = self._kept(drawn)
        others = [row for row in self._content(0).rows.values() if row["q"] is None]
        if others and self.random.random() < 0.7:
            touched = others[0]  # which has been there for long, and may have what only the target knows
            sets: Row = {"q": value}
            if self.random.random() < 0.6 and len(drawn) == 1:
                sets |= {name: SPARE_KEYS[pool_of(of.column(name).type)][1] for name in of.handle}
            update = Update(0, self._where(of, touched), sets, is_one=self._is_one_change(of))
            kept += self._kept([Transaction(1, (update,), ("refused",))])
        return kept

    def _is_one_change(self, table: Table) -> bool:
        """An update of a key is told as one row change, which, where it lacks columns, is quarantined as one; among
        shards, it may be one of each."""
        if self.choice["route"] == "shards":
            return False
        wire = WIRES[self.choice["protocol"]]
        is_split = wire.is_tidb and (table.clustered or self.choice["unique updates"] == "split")
        return wire.moves_at_once and not is_split


_OPERATIONS: Final[dict[str, Callable[[Draughtsman, int], list[list[Statement]]]]] = {
    "insert": Draughtsman._insert,
    "update": Draughtsman._update,
    "touch": Draughtsman._touch,
    "delete": Draughtsman._delete,
    "large": Draughtsman._large,
    "empty": Draughtsman._empty,
    "respell": Draughtsman._respell,
    "move": Draughtsman._move,
    "chain": Draughtsman._chain,
    "swap": Draughtsman._swap,
    "swap keys": Draughtsman._swap_keys,
    "pass on": Draughtsman._pass_on,
    "reinsert": Draughtsman._reinsert,
    "reinsert later": Draughtsman._reinsert_later,
}


def make_upstream(tables: Sequence[Table], equality: Equality, *, nets: bool) -> Upstream:
    """An upstream without rows."""
    return Upstream(tables, equality, nets=nets)
