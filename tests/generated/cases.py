"""A run as it is drawn: its dimensions, its tables, and what its upstream does."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from bridge.ddl.rule import Flavour
from tests.generated.dimensions import IMPOSSIBLE, NONE, Choice, Pair, draw, fits, further_of, operations_of
from tests.generated.drawing import Draughtsman
from tests.generated.tables import SHAPES, Equality, Table, make_table
from tests.generated.upstream import Transaction, Upstream, written
from tests.generated.wires import WIRES, Wire


@dataclass(frozen=True)
class Case:
    """A run, drawn from its seed, or what shrinking has left of it."""

    seed: int
    choice: Choice
    tables: tuple[Table, ...]
    loaded: tuple[Transaction, ...]
    transactions: tuple[Transaction, ...]

    @property
    def wire(self) -> type[Wire]:
        """What writes its messages."""
        return WIRES[self.choice["protocol"]]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: " + ", ".join(f"{name} {value!r}" for name, value in self.choice.items())]
        lines += [table.create(on_target=True) for table in self.tables]
        lines += [f"  loaded: {written(s, self.tables)}" for one in self.loaded for s in one.statements]
        for number, transaction in enumerate(self.transactions):
            lines.append(f"  transaction {number}, {transaction.after} later ({', '.join(transaction.labels)}):")
            lines += [f"    {written(statement, self.tables)}" for statement in transaction.statements]
        return "\n".join(lines)


NO_FORCE: Final[Mapping[str, str]] = {}


_MYSQL_COLLATIONS: Final = {
    "utf8mb4_uca1400_ai_ci": "utf8mb4_0900_as_ci",
    "utf8mb4_nopad_bin": "utf8mb4_0900_bin",
    "utf8mb4_general_nopad_ci": "utf8mb4_0900_as_cs",
    "utf8mb4_uca1400_nopad_ai_ci": "utf8mb4_0900_ai_ci",
}
COLLATIONS: Final[dict[Flavour, Mapping[str, str]]] = {
    Flavour.MARIADB: {},
    Flavour.MYSQL: _MYSQL_COLLATIONS,
    Flavour.TIDB: {
        **_MYSQL_COLLATIONS,
        **{"utf8mb4_uca1400_ai_ci": "utf8mb4_unicode_ci", "utf8mb4_general_nopad_ci": "utf8mb4_0900_bin"},
        "latin1_swedish_ci": "latin1_bin",
    },
}
"""What each server has for the collations of MariaDB, by which runs are drawn."""


def make_case(
    seed: int,
    equality: Equality,
    forced: Mapping[str, str] = NO_FORCE,
    without: Collection[Pair] = IMPOSSIBLE,
    collations: Mapping[str, str] = NO_FORCE,
) -> Case:
    """The run of a seed.  forced: values of dimensions; without: what does not meet; collations: the server's."""
    random = Random(seed)
    choice = draw(random, forced, without)
    wire = WIRES[choice["protocol"]]
    kinds_of = (choice["shape"], choice["key type"], choice["collation"], choice["quarantine"])
    tables = [make_table("t0", *kinds_of, random, choice["column type"])]
    has_hidden = choice["shape"] == "no key" and wire.has_commit_ts and choice["route"] != "shards"
    if has_hidden and random.random() < 0.5:
        tables = [replace(tables[0], hidden=("`mine` INT DEFAULT 5",))]
    if random.random() < 0.4 or choice["goes on with"] == "fewer tables" or choice["schema change"] == "swap names":
        # What is left out stays, and holds values of unique keys that other rows take upstream.
        shapes = [shape for shape in SHAPES if shape not in {"no key", "prefix key"}]
        shapes = [shape for shape in shapes if fits(("shape", shape), {"begins": choice["begins"]}, without)]
        shape = random.choice(shapes)
        kinds = [kind for kind in ("int", "varchar") if fits(("key type", kind), choice, without)]
        tables.append(make_table("t1", shape, random.choice(kinds or ["int"]), choice["collation"], NONE, random))
    tables = [table.with_collations(collations) for table in tables]
    upstream = Upstream(tables, equality, nets=wire.is_tidb)
    draughtsman = Draughtsman(random, upstream, choice, operations_of(choice, without), further_of(choice, without))
    loaded = [one for number in range(len(tables)) for one in draughtsman.rows(number, random.choice((0, 2, 4)))]
    most = (4, 7) if choice["where"] == "executors" else (2, 4, 6, 9, 14)
    transactions = draughtsman.transactions(random.choice(most))
    return Case(seed, choice, tuple(tables), tuple(loaded), tuple(transactions))
