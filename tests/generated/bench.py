"""The server of generated runs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.ddl.rule import read_version
from bridge.model import quote_name
from bridge.mysql.connection.session import Session
from tests.generated.cases import COLLATIONS, NO_FORCE, Case, make_case
from tests.generated.dimensions import IMPOSSIBLE, Pair
from tests.generated.tables import Equality
from tests.generated.target_tables import SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Bench:
    """A real server, and what runs share.  spark: of runs on executors.  verifies_one_in: of so many runs one has its
    target verified against its messages; 0 for none.  fixes: the file in which verify then writes how it repairs
    rows that are damaged; None for no damage.  damages_one_in: so many runs have rows damaged."""

    url: str
    session: Session
    spark: SparkSession | None = None
    verifies_one_in: int = 1
    fixes: Path | None = None
    damages_one_in: int = 1

    def __post_init__(self) -> None:
        self.equality = Equality(self.session.rows)
        self.flavour, _ = read_version(str(self.session.value("SELECT VERSION()")))
        self._names = itertools.count()
        self.stopped = Counter[str]()
        self.safe_mode = 0
        for schema in SCHEMAS:
            self.session.execute(f"CREATE DATABASE IF NOT EXISTS {quote_name(schema)}")

    def name(self) -> str:
        """Of the next pipeline."""
        return f"generated {next(self._names)}"

    def case(self, seed: int, forced: Mapping[str, str] = NO_FORCE, without: Collection[Pair] = IMPOSSIBLE) -> Case:
        """The run of a seed."""
        return make_case(seed, self.equality, forced, without, COLLATIONS[self.flavour])
