"""Whole runs drawn at random, against an oracle that is a dictionary per table.

One seed is one run: `GENERATED_SEEDS=17,18` with `-k one_seed` runs some again.  What fails is made as small as
it stays failing, and printed with what the upstream did.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pytest

from bridge.ddl.rule import Flavour
from tests.generated.bench import Bench
from tests.generated.cases import NO_FORCE, Case
from tests.generated.dimensions import Coverage, Rule, besides, never
from tests.generated.failures import Failure
from tests.generated.runs import run
from tests.generated.shrinking import shrunk
from tests.generated.wires import WIRES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BLOCKS: Final = 5
RUNS: Final = 17
"""Of each block."""
EXECUTOR_RUNS: Final = 3
EXECUTORS: Final = {"where": "executors"}
VERIFIES_ONE_IN: Final = 4
"""So many of these runs are verified against their messages; of the soak, every one."""
DAMAGES_ONE_IN: Final = 12
"""Of so many runs some rows of the target are then damaged, and fixed; of the soak, of every one."""
ONE_IN: Final = 40
"""So many runs of the soak are on executors."""
MOST_KINDS: Final = 10
"""Of failures that the soak shrinks; it ends then."""
_PARTIAL: Final = {name for name, wire in WIRES.items() if wire.is_partial}
LIMITS: Final[tuple[Rule, ...]] = (
    # A row of which a part came is completed from the target's own row, which must not be ahead of the log.
    Rule("protocol", _PARTIAL, "redelivery", {"copies", "whole topic", "from below"}),
    # Without boundaries, two updates of one transaction that are not split may be cut apart.
    Rule("protocol", {"debezium TiCDC plain"}, "unique updates", {"whole"}),
)
"""What the manual says cannot be had (guarantees, "Limits"), and no run draws."""
OTHERS: Final[dict[Flavour, tuple[Rule, ...]]] = {
    Flavour.MARIADB: (
        # Documents with fractions may become other texts than the upstream's, and are held.
        Rule("column type", {"json"}, "schema change", {"modify column"}),
    ),
    Flavour.MYSQL: (
        # MySQL 8.0 refuses to drop a column whose name is that long (3507).
        Rule("names", {"long"}, "schema change", {"drop column"}),
        # TiDB's documents become other texts than MySQL's, and are held.
        Rule("column type", {"json"}, "schema change", {"modify column"}),
    ),
    Flavour.TIDB: (
        never("names", "alike but for case"),
        Rule("column type", {"json"}, "schema change", {"modify column"}),
        # TiDB takes the error value of an ENUM from a column alone, which verify has not.
        never("column type", "enum with errors"),
        # TiDB refuses to alter these in a primary key (8200): the order of an ENUM's members, a CHAR's collation.
        Rule("key type", {"enum", "char"}, "schema change", {"modify column"}),
    ),
}
"""What does not meet on other servers than MariaDB."""
WITHOUT: Final = {flavour: besides((*LIMITS, *rules)) for flavour, rules in OTHERS.items()}
OTHER_RUNS: Final = 6


def failure_of(bench: Bench, case: Case) -> Failure | None:
    """How a run fails."""
    try:
        run(bench, case)
    except Failure as failure:
        return failure
    return None


def shown(bench: Bench, case: Case, failure: Failure) -> str:
    """A failing run and its smallest form."""
    small, why = shrunk(case, failure, lambda smaller: failure_of(bench, smaller))
    return f"the run of seed {case.seed} failed; the smallest that fails alike:\n{small}\n{why}"


def check(bench: Bench, seed: int, forced: Mapping[str, str] = NO_FORCE) -> None:
    """The run of a seed ends as its upstream did."""
    case = bench.case(seed, forced, WITHOUT[bench.flavour])
    failure = failure_of(bench, case)
    if failure is not None:
        pytest.fail(shown(bench, case, failure), pytrace=False)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_runs(bench: Bench, block: int) -> None:
    """Whatever the protocol, the mode, the tables, the windows, the crash: the target ends as the upstream did, byte
    for byte, and in between holds only what the upstream held, where transactions are whole; and verify says so.  Rows
    that are damaged then are found, and fixed."""
    bench.verifies_one_in, bench.damages_one_in = VERIFIES_ONE_IN, DAMAGES_ONE_IN
    for seed in range(block * RUNS, (block + 1) * RUNS):
        check(bench, seed)


def test_runs_on_mysql(mysql_bench: Bench) -> None:
    """The same with another server, which has other collations."""
    run_some(mysql_bench)
    check(mysql_bench, 0, {"column type": "enum with errors"})


def run_some(bench: Bench) -> None:
    """A few runs on another server; those with a type that servers treat unlike come first."""
    bench.verifies_one_in, bench.damages_one_in = VERIFIES_ONE_IN, DAMAGES_ONE_IN
    for seed, kind in enumerate(("all bits", "set", "timestamp", "double")):
        check(bench, seed, {"column type": kind})
    for seed in range(OTHER_RUNS):
        check(bench, seed)


def test_runs_on_executors(bench: Bench, spark: SparkSession) -> None:
    """The same where row changes stay on Spark's executors."""
    bench.spark = spark
    for seed in range(EXECUTOR_RUNS):
        check(bench, seed, EXECUTORS)


@pytest.mark.soak
def test_one_seed(bench: Bench, spark: SparkSession) -> None:
    """The runs of the seeds in GENERATED_SEEDS; `17x` is that of seed 17 on executors."""
    bench.spark = spark
    for seed in os.environ.get("GENERATED_SEEDS", "0").split(","):
        check(bench, int(seed.rstrip("x")), EXECUTORS if seed.endswith("x") else NO_FORCE)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_generated_runs_for_long(chosen_bench: Bench, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """The same for as long as GENERATED_MINUTES says (5), from the seed GENERATED_FROM on, and every run is verified: a
    row that is damaged is found and repaired.  On the server whose fixture GENERATED_ON names, such as tidb; with the
    values of dimensions in GENERATED_WITH, such as "route=shards,crash=begun".  Prints which pairs of dimensions have
    met."""
    bench = chosen_bench
    bench.spark = spark
    coverage, failures = Coverage(), dict[str, str]()
    kinds = Counter[str]()
    first = seed = int(os.environ.get("GENERATED_FROM", "1000000"))
    deadline = time.monotonic() + 60 * float(os.environ.get("GENERATED_MINUTES", "5"))
    wanted = dict(one.split("=") for one in os.environ.get("GENERATED_WITH", "").split(",") if one)
    while time.monotonic() < deadline and len(failures) < MOST_KINDS:
        case = bench.case(seed, wanted or (EXECUTORS if seed % ONE_IN == 0 else NO_FORCE), WITHOUT[bench.flavour])
        try:
            coverage.add(run(bench, case))
        except Failure as failure:
            kind = f"{failure.kind}, {case.choice['protocol']}, {case.choice['consistency']}"
            kinds[kind] += 1
            if kind not in failures:
                failures[kind] = shown(bench, case, failure)
        seed += 1
    with capsys.disabled():
        print(f"\nseeds {first} to {seed - 1}")
        print(coverage.report())
        print("stopped where a value is told nowhere:", dict(bench.stopped))
        print("failures:", dict(kinds))
    assert not failures, "\n\n".join(failures.values())
