"""Tables of generated runs, the small pools of values they hold, and which of these a server takes for equal."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final, NamedTuple

from tests.generated.kinds import KINDS, VALUES, Value

Row = dict[str, Value]
"""Values by column; never altered once made."""

SCHEMA: Final = "m"
TEXTS: Final = (
    "", "a", "A", "á", "a ", "b", "B", "b ", "ab", "aB", "ß", "ss", "abc-1", "abc-2", "ABC-3", "abd", "abc", "it's",
)  # fmt: skip
"""Of keys and unique values: many pairs of them are one value in one collation or another."""
SPARE_TEXTS: Final = ("spare one", "zz two")
KEYS: Final[dict[str, tuple[Value, ...]]] = {
    "int": (1, 2, 3, 4, 0, -5),
    "varchar": TEXTS,
    "decimal": tuple(map(Decimal, ("0.00", "1.00", "1.50", "-2.25", "99999999.99"))),
    "datetime": (datetime(2024, 1, 1), datetime(2024, 2, 29, 12, 34, 56), datetime(1999, 12, 31), datetime(2024, 1, 2)),
    "unsigned": (0, 1, 2**63, 2**64 - 1, 2**64 - 2),
    "varbinary": (b"", b"a", b"A", b"a ", b"a\0", b"ab\0", b"abc", b"abcd", b"\xff\\'", b"\n"),
    "binary": (b"\0\0\0\0", b"a\0\0\0", b"a\0b\0", b"ab\0\0", b"abcd", b"\0abc", b"\xff\\' "),
    "enum": ("a", "B", "it's"),
    "bit": (b"\0\0", b"\0\1", b"\1\xff", b"\0'"),
    "date": (date(2024, 2, 29), date(1999, 12, 31), date(1000, 1, 1)),
    "timestamp": (datetime(2024, 3, 31, 2, 30), datetime(2024, 3, 31, 2, 30, 0, 500_000), datetime(2038, 1, 19, 3, 14)),
    "float": (0.0, 0.1, -1.5, 65536.0, 3.5e-20, 3.40282e38),
    "double": (0.0, -0.0, 0.1, 0.30000000000000004, 1e22, -1.7976931348623157e308, 5e-324),
    "char": tuple(text for text in TEXTS if not text.endswith(" ")),
    "time": (timedelta(), timedelta(milliseconds=-1500), timedelta(hours=100), -timedelta(hours=838, minutes=59)),
    "year": (0, 1901, 2000, 2155),
    "set": ("", "x", "x,y", "z's", "x,y,z's"),
    "microseconds": (
        datetime(1000, 1, 1, 0, 0, 0, 1),
        datetime(2024, 2, 29, 12, 34, 56, 500_000),
        datetime(1970, 1, 1),
    ),
}
SPARE_KEYS: Final[dict[str, tuple[Value, ...]]] = {
    "int": (90, 91),
    "varchar": SPARE_TEXTS,
    "decimal": (Decimal("90.00"), Decimal("91.25")),
    "datetime": (datetime(2030, 1, 1), datetime(2030, 1, 2)),
    "unsigned": (90, 2**63 + 1),
    "varbinary": (b"spare one", b"zz two"),
    "binary": (b"zz\0\0", b"zz22"),
    "enum": ("ü,v", "zz"),
    "bit": (b"\1\0", b"\0\\"),
    "date": (date(2030, 1, 1), date(2030, 1, 2)),
    "timestamp": (datetime(2030, 1, 1), datetime(2030, 1, 2)),
    "float": (90.0, 91.25),
    "double": (90.0, 91.3),
    "char": SPARE_TEXTS,
    "time": (timedelta(hours=90), timedelta(hours=91)),
    "year": (2090, 2091),
    "set": ("y", "y,z's"),
    "microseconds": (datetime(2030, 1, 1), datetime(2030, 1, 1, 0, 0, 0, 1)),
}
"""Keys that no other change of a run has."""
LARGE: Final = tuple(letter * 60_000 + "é'\\\n" * 10_000 for letter in "xyz")


@dataclass(frozen=True)
class Column:
    """A column of the upstream.

    narrow: the type that the target's column has meanwhile, where it is not wide enough for all values.
    of: what a generated column is computed of; default: the value that rows have when it is added.
    """

    name: str
    type: str
    nullable: bool = True
    collation: str = ""
    narrow: str = ""
    of: str = ""
    default: Value = None

    @property
    def sql(self) -> str:
        """Its definition upstream."""
        collation = f" COLLATE {self.collation}" if self.collation else ""
        if self.of:
            return f"`{self.name}` {KINDS[self.type].sql} AS ({self.of}) STORED"
        default = "" if self.default is None else f" DEFAULT {self.default!r}"
        kind, null = (
            (KINDS[self.type].sql, "") if self.nullable else (KINDS[self.type].sql.removesuffix(" NULL"), " NOT NULL")
        )
        return f"`{self.name}` {kind}{collation}{null}{default}"

    @property
    def target_sql(self) -> str:
        """Its definition on the target, before anything is cured."""
        return replace(self, narrow="").sql.replace(KINDS[self.type].sql, self.narrow) if self.narrow else self.sql

    @property
    def is_text(self) -> bool:
        """Whether a collation compares its values."""
        return self.type in {"varchar", "mediumtext", "char"}

    @property
    def has_beginnings(self) -> bool:
        """Whether a key may hold the beginnings of its values."""
        return self.is_text or self.type == "varbinary"


def _itself(value: Value) -> Value:
    return value


def _doubled(value: Value) -> Value:
    return value * 2 if isinstance(value, int) else None


def _next(value: Value) -> Value:
    return value + 1 if isinstance(value, int) else None


@dataclass(frozen=True)
class Unique:
    """A unique key.  prefix: of so many characters of its texts; sql: its columns, where they are others; of: what
    their value is, computed of its own columns' value."""

    name: str
    columns: tuple[str, ...]
    prefix: int | None = None
    sql: str = ""
    of: Callable[[Value], Value] = _itself

    def shown(self, row: Row) -> str:
        """The value of a row as a server's words have it."""
        return "-".join(str(self.of(row[name]))[: self.prefix] for name in self.columns)


@dataclass(frozen=True)
class Table:
    """A table of the upstream.

    uniques: the handle key first, where `has_handle`; has_primary: it is the primary key.
    clustered: TiDB keeps its rows by their key: a row that is deleted and inserted again is one update.
    hidden: columns that stand in no message: of the target only, or virtual; extra: the name of one that a user of the
        target writes.  schema: the database, `SCHEMA` but for reserved ones.
    """

    name: str
    columns: tuple[Column, ...]
    uniques: tuple[Unique, ...] = ()
    has_handle: bool = True
    has_primary: bool = True
    clustered: bool = True
    hidden: tuple[str, ...] = ()
    extra: str = ""
    schema: str = SCHEMA

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of its messages."""
        return tuple(column.name for column in self.columns)

    @property
    def handle(self) -> tuple[str, ...]:
        """The columns of the handle key, () where there is none."""
        return self.uniques[0].columns if self.has_handle else ()

    @property
    def primary(self) -> tuple[str, ...]:
        """The columns of the primary key."""
        return self.handle if self.has_primary else ()

    @property
    def unique_columns(self) -> set[str]:
        """The columns of all unique keys, and what they are computed of."""
        return {name for unique in self.uniques for name in unique.columns}

    def column(self, name: str) -> Column:
        """A column by its name."""
        return next(column for column in self.columns if column.name == name)

    def with_collations(self, others: Mapping[str, str]) -> Table:
        """The table with other collations in the place of some."""
        columns = tuple(replace(c, collation=others.get(c.collation, c.collation)) for c in self.columns)
        return replace(self, columns=columns)

    def create(self, *, on_target: bool) -> str:
        """CREATE TABLE."""
        parts = [column.target_sql if on_target else column.sql for column in self.columns]
        parts += self.hidden
        for number, unique in enumerate(self.uniques):
            is_primary = number == 0 and self.has_primary
            parts.append(f"{'PRIMARY KEY' if is_primary else f'UNIQUE KEY `{unique.name}`'} ({self.key_sql(unique)})")
        return f"CREATE TABLE `{self.name}` (" + ", ".join(parts) + ") DEFAULT CHARSET=utf8mb4"

    def key_sql(self, unique: Unique) -> str:
        """The columns of a unique key as SQL has them."""
        if unique.sql:
            return unique.sql
        return ", ".join(
            f"`{name}`({unique.prefix})" if unique.prefix and self.column(name).has_beginnings else f"`{name}`"
            for name in unique.columns
        )

    def with_names(self, name: str) -> Table:
        """The table where a column of this name has another one."""

        def named(one: str) -> str:
            return f"{name}2" if one == name else one

        columns = tuple(replace(column, name=named(column.name)) for column in self.columns)
        uniques = tuple(replace(unique, columns=tuple(map(named, unique.columns))) for unique in self.uniques)
        return replace(self, columns=columns, uniques=uniques)

    def complete(self, row: Row) -> Row:
        """The row with its generated columns."""
        return {c.name: (_doubled(row["a"]) if c.of else row.get(c.name)) for c in self.columns}


Ask = Callable[[str], list[tuple[Any, ...]]]


class Equality:
    """Which values are one key, asked of the server once per collation and length of prefix."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._classes: dict[tuple[str, int | None], dict[str, int]] = {}

    def same(self, value: Value, column: Column, prefix: int | None = None) -> Hashable:
        """Equal for equal values of a column."""
        if isinstance(value, bytes):
            return value[:prefix]
        if not isinstance(value, str) or not column.is_text:
            return value
        classes = self._classes.get((column.collation, prefix)) or self._classes_of(column.collation, prefix)
        return classes[value]

    def key(self, table: Table, unique: Unique, row: Row) -> Hashable:
        """Equal for rows that cannot be side by side; None where a part is NULL."""
        parts = [(row[name], table.column(name)) for name in unique.columns]
        if any(value is None for value, _ in parts):
            return None
        return tuple(self.same(value, column, unique.prefix) for value, column in parts)

    def _classes_of(self, collation: str, prefix: int | None) -> dict[str, int]:
        known = sorted({*TEXTS, *SPARE_TEXTS, *(text for text in VALUES["varchar"] if isinstance(text, str))})
        place = f"LEFT(CONVERT(x'%s' USING utf8mb4), {prefix or 1000}) COLLATE {collation}"
        pool = " UNION ALL ".join(f"SELECT {n} i, {place % text.encode().hex()} v" for n, text in enumerate(known))
        found = self._ask(f"SELECT a.i, MIN(b.i) FROM ({pool}) a JOIN ({pool}) b ON a.v = b.v GROUP BY a.i")
        self._classes[collation, prefix] = {known[i]: first for i, first in found}
        return self._classes[collation, prefix]


_COLLATIONS: Final = {"latin1": "latin1_swedish_ci"}
_MESSAGE_COLUMNS: Final = (Column("n", "int"), Column("big", "mediumtext"))
SHAPES: Final = (
    *("single key", "no key", "unique keys", "unique NOT NULL", "prefix key", "prefix unique", "generated"),
    *("target-only", "composite"),
)
OTHER_UNIQUES: Final = {"unique keys", "unique NOT NULL", "prefix unique", "generated", "target-only", "composite"}
"""Shapes with a unique key besides the handle key."""
QUARANTINES: Final[dict[str, Column]] = {
    "digits": Column("q", "decimal", narrow="DECIMAL(10,1)"),
    "length": Column("q", "varchar", collation="utf8mb4_bin", narrow="VARCHAR(3)"),
    "blanks": Column("q", "varchar", collation="utf8mb4_bin", narrow="VARCHAR(3)"),
}
"""Why the target refuses a row: the column that is too narrow there."""
REFUSED: Final[dict[str, Value]] = {"digits": Decimal("1.25"), "length": "toolong", "blanks": "abc "}


RESERVED: Final[dict[str, tuple[Table, ...]]] = {
    "server": tuple(
        Table("x", (Column("k", "int", nullable=False), Column("v", "varchar")), (Unique("kk", ("k",)),), schema=schema)
        for schema in ("mysql", "MySQL", "sys")
    ),
    "bridge": tuple(
        Table(
            "progress",
            (Column("name", "varchar", nullable=False), Column("applied_ts", "bigint", nullable=False)),
            (Unique("kk", ("name",)),),
            schema=schema,
        )
        for schema in ("_bridge", "_BRIDGE", "_Bridge")
    ),
    "event filter": (
        Table("unwritten", (Column("k", "int", nullable=False), Column("v", "varchar")), (Unique("kk", ("k",)),)),
    ),
    "table filter": tuple(
        Table(
            name, (Column("k", "int", nullable=False), Column("v", "varchar")), (Unique("kk", ("k",)),), schema=schema
        )
        for schema, name in (("x", "t0"), ("x", "renamed"), (SCHEMA, "t0s"), (SCHEMA, "unwanted"))
    ),
}
"""Tables whose rows a bridge leaves out, by whose they are, or what leaves them out."""
COUNTED: Final = {"server", "bridge"}
"""Whose rows a bridge counts that leaves them out."""


class Routing(NamedTuple):
    """Routes of a run.  rules: as given to the bridge.  names: the target's names of tables, where they are others.
    schema: the target's database of tables that have their own names."""

    rules: tuple[str, ...]
    names: dict[str, tuple[str, str]]
    schema: str = SCHEMA

    def there(self, table: str) -> tuple[str, str]:
        """The database and name of a table on the target."""
        return self.names.get(table, (self.schema, table))


UNROUTED: Final = Routing((), {})
ROUTES: Final[dict[str, Routing]] = {
    "database": Routing(("m.* -> r.*",), {}, "r"),
    "tables": Routing(("M.t0 -> r.`a b`", "*.t1 -> *.one"), {"t0": ("r", "a b"), "t1": (SCHEMA, "one")}),
    "swap": Routing(("m.t0 -> m.t1", "m.t1 -> m.t0"), {"t0": (SCHEMA, "t1"), "t1": (SCHEMA, "t0")}),
    "shards": Routing(("m?.t0 => m.t0",), {}),
    "chain": Routing(
        ("m.t0 -> m.renamed", "m.renamed -> r.other", "m.t1 -> m.t0"),
        {"t0": (SCHEMA, "renamed"), "renamed": ("r", "other"), "t1": (SCHEMA, "t0")},
    ),
}
"""Routes, and independently of them where the tables go."""


def reserved_row(table: Table, random: Random) -> Row:
    """A row of such a table."""
    return {c.name: random.choice((1, 2, 7)) if c.type in {"int", "bigint"} else "generated" for c in table.columns}


def make_table(
    name: str, shape: str, key_type: str, collation: str, quarantine: str, random: Random, special: str = "none"
) -> Table:
    """A table of a shape.  special: the type of one more column."""

    def text(column: str, *, nullable: bool = True) -> Column:
        return Column(column, "varchar", nullable, collation)

    key = Column("k", key_type, shape == "no key", collation if key_type in {"varchar", "char"} else "")
    rest = (*_MESSAGE_COLUMNS, text("s"), *((QUARANTINES[quarantine],) if quarantine != "none" else ()))
    if special != "none":
        rest = (rest[0], Column("x", special, collation=_COLLATIONS.get(special, "")), *rest[1:])
    handle = Unique("kk", ("k",), 3 if shape == "prefix key" else None)
    table = Table(name, (key, *rest), (handle,), clustered=random.random() < 0.6)
    u, w = text("u"), Column("w", "int")
    if shape == "no key":
        table = replace(table, uniques=(), has_handle=False, has_primary=False, clustered=False)
    elif shape == "unique keys":
        table = replace(table, columns=(key, u, w, *rest), uniques=(handle, Unique("uu", ("u",)), Unique("uw", ("w",))))
    elif shape == "unique NOT NULL":
        w = replace(w, nullable=False)
        table = replace(
            table, columns=(w, key, *rest), uniques=(handle, Unique("uw", ("w",))), has_primary=False, clustered=False
        )
    elif shape == "prefix unique":
        table = replace(table, columns=(key, *rest, u), uniques=(handle, Unique("uu", ("u",), 2)))
    elif shape == "generated":
        a, g = Column("a", "int"), Column("g", "int", of="`a` * 2")
        others = (Unique("ug", ("a",), sql="`g`", of=_doubled), Unique("uv", ("a",), sql="`v`", of=_next))
        virtual = "`v` INT AS (`a` + 1) VIRTUAL"
        table = replace(table, columns=(key, a, g, *rest), uniques=(handle, *others), hidden=(virtual,))
    elif shape == "target-only":
        if key_type == "varchar" and random.random() < 0.5:
            handle = replace(handle, prefix=3)
        table = replace(
            table,
            columns=(key, u, *rest),
            uniques=(handle, Unique("uu", ("u",))),
            hidden=("`extra` INT",),
            extra="extra",
        )
    elif shape == "composite":
        a = Column("a", "int", nullable=False)
        both = Unique("kk", ("a", "k"))
        table = replace(table, columns=(*rest, key, w, a), uniques=(both, Unique("uw", ("w",))))
    return table
