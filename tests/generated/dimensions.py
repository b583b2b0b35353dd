"""The dimensions of generated runs, which of their values can meet, and which have met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from random import Random
from typing import Final, NamedTuple

from tests.generated.decisions import DECISIONS, UNLIKE
from tests.generated.event_filters import EVENT_FILTERS
from tests.generated.kinds import SPECIAL
from tests.generated.names import NAMES
from tests.generated.tables import KEYS, OTHER_UNIQUES, QUARANTINES, RESERVED, ROUTES, SHAPES
from tests.generated.wires import WIRES

Choice = Mapping[str, str]
"""A value for each dimension but the operations."""
Met = Mapping[str, Collection[str]]
"""Values of each dimension that a run had."""

NONE: Final = "none"
OPERATIONS: Final = (
    *("insert", "update", "touch", "delete", "large", "empty", "respell", "move", "chain", "swap", "swap keys"),
    *("pass on", "reinsert", "reinsert later"),
)
_DDL_STEPS: Final = ("ddl intent", "ddl executed", "ddl recorded", "ddl taken off")
_PART_STEPS: Final = ("marked", "part begun", "before part commit", "part committed")
SOME_SHARDS: Final = "some shards"
"""Of those that executors write: the driver ends when some of them are committed."""
_STEPS: Final = ("begun", "advanced", "statement", "before commit", "committed")

HELD_ONCE: Final = frozenset({"add unique", "drop unique"})
"""Schema changes that wait for people at the first of merged shards; the others confirm what was decided."""
FILTER_CHANGE: Final = "an event filter"
"""What the bridge goes on with.  The event filter of a run is the one that it gets then.  What a filter has left out is
not read again, so that nothing is said of one that lets more in."""

DIMENSIONS: Final[dict[str, tuple[str, ...]]] = {
    "protocol": tuple(WIRES),
    "consistency": ("atomic", "parallel"),
    "where": ("driver", "executors"),
    "shape": SHAPES,
    "key type": tuple(KEYS),
    "column type": (NONE, *SPECIAL),
    "collation": (
        *("utf8mb4_bin", "utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_uca1400_ai_ci"),
        *("utf8mb4_nopad_bin", "utf8mb4_general_nopad_ci", "utf8mb4_uca1400_nopad_ai_ci"),
    ),
    "rows per transaction": ("1000", "1", "3"),
    "micro-batch": ("all", "1", "3", "10"),
    "messages": ("parsed", "read by forms"),
    "statements": ("usual", "tiny", "loads"),
    "boundaries": (NONE, "each transaction", "some", "last"),
    "partitions": ("one", "by table", "by key", "growing"),
    "unique updates": ("whole", "split"),
    "schema change": (
        *(NONE, "add column", "drop column", "modify column", "add unique", "drop unique", "truncate", "rename"),
        *("rename column", "recreate", "swap names"),
    ),
    "decision": (NONE, *DECISIONS),
    "redelivery": (NONE, "copies", "whole topic", "from below"),
    "crash": (NONE, *_STEPS, *_PART_STEPS, *_DDL_STEPS, SOME_SHARDS),
    "quarantine": (NONE, *QUARANTINES),
    "left out": (NONE, *RESERVED),
    "route": (NONE, *ROUTES),
    "names": (NONE, *NAMES),
    "event filter": (NONE, *EVENT_FILTERS),
    "begins": (NONE, "from a copy"),
    "goes on with": (
        *(NONE, "the same", "other sizes", "other mode", "other place", "other routes"),
        *("fewer tables", FILTER_CHANGE),
    ),
}
"""The first value of each is the simplest; `operations`, of which a run has several, are a dimension besides."""
ALL: Final[dict[str, tuple[str, ...]]] = {**DIMENSIONS, "operations": OPERATIONS}
FREE: Final = (
    *("where", "consistency", "rows per transaction", "micro-batch", "messages", "statements", "boundaries"),
    *("partitions", "unique updates", "redelivery", "crash", "left out", "route", "begins", "goes on with", "names"),
)
"""Dimensions that change how a run goes, not what the upstream did."""

_BOUNDED: Final = {name for name, wire in WIRES.items() if wire.has_boundaries}
_UNBOUNDED: Final = WIRES.keys() - _BOUNDED
_MYSQL: Final = {name for name, wire in WIRES.items() if not wire.is_tidb}
_BY_KEY: Final = {"canal-json ext delete-key", "open-protocol delete-key"}
_OTHERS: Final = {dimension: set(values) - {NONE} for dimension, values in ALL.items()}
_KEYED_ONLY: Final = {"respell", "move", "chain", "swap", "swap keys", "pass on"}


Pair = frozenset[tuple[str, str]]
"""Two values, each with its dimension."""


class Rule(NamedTuple):
    """Values of one dimension that do not meet values of another."""

    one: str
    firsts: Collection[str]
    other: str
    seconds: Collection[str]

    def pairs(self) -> Iterator[Pair]:
        """Each two of them."""
        for first in self.firsts:
            for second in self.seconds:
                yield frozenset({(self.one, first), (self.other, second)})


def never(dimension: str, *values: str) -> Rule:
    """Values that meet nothing."""
    other = "consistency" if dimension != "consistency" else "where"
    return Rule(dimension, values, other, DIMENSIONS[other])


_IMPOSSIBLE: Final[tuple[Rule, ...]] = (
    # What comes without boundaries is never left on executors.
    Rule("where", {"executors"}, "protocol", _UNBOUNDED),
    # A micro-batch on executors takes a second.
    Rule("where", {"executors"}, "micro-batch", {"1"}),
    Rule("boundaries", {NONE}, "protocol", _BOUNDED),
    Rule("boundaries", _OTHERS["boundaries"], "protocol", _UNBOUNDED),
    # A row whose key changes may lie in two partitions, whose order only boundaries tell.
    Rule("partitions", {"by key", "growing"}, "protocol", _UNBOUNDED),
    Rule("partitions", {"by key", "growing"}, "boundaries", {NONE}),
    # What is left out stays, and holds values of unique keys that other rows take upstream; by a key that holds the
    # beginnings of values only, whether a later change finds such a row depends on what is written with it.
    Rule("event filter", _OTHERS["event filter"], "shape", set(SHAPES) - {"single key"}),
    Rule("event filter", _OTHERS["event filter"] - {"schema changes"}, "schema change", {"add unique"}),
    Rule("event filter", _OTHERS["event filter"], "schema change", {"rename column", "recreate", "swap names"}),
    # What the target's table has of its own, or is too narrow for, goes with it.
    Rule("schema change", {"recreate"}, "shape", {"target-only", "no key"}),
    Rule("schema change", {"recreate"}, "quarantine", _OTHERS["quarantine"]),
    # The other table's name is left out, or leads elsewhere.
    Rule("schema change", {"swap names"}, "left out", {"table filter"}),
    Rule("schema change", {"swap names"}, "goes on with", {"fewer tables"}),
    # A part of a row is no row where the rest was left out, nor is one that was refused.
    Rule("event filter", _OTHERS["event filter"], "protocol", {name for name in WIRES if WIRES[name].is_partial}),
    Rule("event filter", _OTHERS["event filter"], "quarantine", _OTHERS["quarantine"]),
    # A row that goes over to another shard stops what is ordered by event time.
    Rule("route", {"shards"}, "protocol", {name for name, wire in WIRES.items() if not wire.has_commit_ts}),
    # Every other one is never run as it came, waits at each shard, or makes values that the late shard's type lacks.
    Rule("route", {"shards"}, "schema change", _OTHERS["schema change"] - {"add column", *HELD_ONCE}),
    # Filters speak of the upstream's database.
    Rule("route", {"shards"}, "left out", {"table filter"}),
    Rule("route", {"shards"}, "event filter", _OTHERS["event filter"]),
    # What is merged cannot be moved apart.
    Rule("goes on with", {"other routes"}, "route", {"shards"}),
    # Routes stay while the quarantine, or what an operator wrote, names tables of the target.
    Rule("goes on with", {"other routes"}, "quarantine", _OTHERS["quarantine"]),
    Rule("goes on with", {"other routes"}, "decision", _OTHERS["decision"]),
    # Routes and filters speak of the plain names.
    Rule("names", _OTHERS["names"], "route", _OTHERS["route"] - {"database"}),
    Rule("names", _OTHERS["names"], "event filter", _OTHERS["event filter"]),
    Rule("names", _OTHERS["names"], "left out", {"table filter"}),
    Rule("names", _OTHERS["names"], "goes on with", {"fewer tables"}),
    Rule("goes on with", {FILTER_CHANGE}, "event filter", {NONE}),
    # What was left out comes again, or a pipeline begins anew with other settings.
    Rule("goes on with", {FILTER_CHANGE}, "redelivery", _OTHERS["redelivery"]),
    # A copy knows nothing of what only the target has; nobody counts what is left out below the beginning.
    Rule("begins", {"from a copy"}, "shape", {"target-only"}),
    Rule("begins", {"from a copy"}, "left out", _OTHERS["left out"]),
    # What is sent again goes where it went.
    Rule("partitions", {"growing"}, "redelivery", _OTHERS["redelivery"]),
    # Row changes of a driver only would need a Spark of their own.
    Rule("goes on with", {"other place"}, "where", {"driver"}),
    Rule("unique updates", {"split"}, "protocol", _MYSQL),
    Rule("where", {"executors"}, "boundaries", {NONE}),
    # Such a delete is no row change at all (TiCDC stops the changefeed, or sends no columns).
    Rule("protocol", _BY_KEY, "shape", {"no key"}),
    # The README's limit: what a producer sends again doubles rows of a table without a key.
    Rule("redelivery", _OTHERS["redelivery"], "shape", {"no key"}),
    # The target is ahead in its schema, too.
    Rule("redelivery", {"from below"}, "schema change", _OTHERS["schema change"]),
    # A row that was quarantined, and is sent again, is a question for people.
    Rule("redelivery", _OTHERS["redelivery"], "quarantine", _OTHERS["quarantine"]),
    # The placeholder is one of the messages that stop, or are quarantined, by themselves.
    Rule("protocol", {"debezium native unavailable"}, "quarantine", _OTHERS["quarantine"]),
    # Without a schema the scale of a DECIMAL is the target's: nothing tells that the upstream's is another.
    Rule("quarantine", {"digits"}, "protocol", {"debezium native noschema"}),
    # Nothing tells how it writes bytes, so a setting has to.
    Rule("column type", {"varbinary", "binary", "blob", "binary by another name"}, "protocol", {"ckafka"}),
    Rule("key type", {"varbinary", "binary"}, "protocol", {"ckafka"}),
    # It reads other character sets as UTF-8, so that the bridge stops at the first text beyond ASCII.
    Rule("column type", {"latin1"}, "protocol", {name for name in WIRES if "official canal" in name}),
    # It sends no bytes of it, so that the statement is held.
    Rule("column type", {"binary by another name"}, "protocol", {name for name in WIRES if "native" in name}),
    Rule("crash", {*_PART_STEPS, SOME_SHARDS}, "consistency", {"atomic"}),
    # Executors write tables whose equal keys are equal literals.
    Rule("crash", {SOME_SHARDS}, "where", {"driver"}),
    Rule("crash", {SOME_SHARDS}, "shape", set(SHAPES) - {"single key"}),
    Rule("crash", {SOME_SHARDS}, "key type", KEYS.keys() - {"int", "unsigned"}),
    Rule("crash", _DDL_STEPS, "schema change", {NONE}),
    Rule("operations", _KEYED_ONLY, "shape", {"no key"}),
    Rule("decision", _OTHERS["decision"], "schema change", {NONE}),
    # Rows behind what was not done need it.
    Rule("decision", {"skip"}, "schema change", _OTHERS["schema change"] - {"drop column", "add unique", "truncate"}),
    Rule(
        "decision",
        {"replace unlike"},
        "schema change",
        _OTHERS["schema change"] - {"add column", "add unique", "truncate"},
    ),
    # A statement takes the place of one.
    Rule("decision", {"replace alike", "by hand"}, "schema change", {"recreate", "swap names"}),
    # Rows that are gone upstream hold values of unique keys that other rows take there.
    Rule("decision", UNLIKE, "shape", set(SHAPES) - {"single key"}),
    # A retry looks for the row as it was upstream.
    Rule("decision", {"replace unlike"}, "quarantine", _OTHERS["quarantine"]),
    # Two things are then left out; and messages do not tell what a change by hand has made of rows that were left out.
    Rule("decision", {*UNLIKE, "by hand"}, "event filter", _OTHERS["event filter"]),
    Rule("decision", UNLIKE, "route", {"shards"}),
    Rule("operations", {"swap", "pass on"}, "shape", set(SHAPES) - OTHER_UNIQUES),
    # Without a commit ts nothing tells that two updates are one transaction, which only its end makes valid.
    Rule("protocol", {"canal-json plain"}, "unique updates", {"whole"}),
    # Of these, equal values are the same bytes.
    Rule("operations", {"respell"}, "collation", {"utf8mb4_nopad_bin"}),
    Rule("key type", KEYS.keys() - {"varchar", "varbinary"}, "shape", {"prefix key"}),
    Rule("schema change", {"drop unique"}, "shape", set(SHAPES) - OTHER_UNIQUES),
    # The generated column's key would go, not that of what it is computed of.
    Rule("schema change", {"drop unique"}, "shape", {"generated"}),
)
"""Pairs that make no sense; whoever adds one says why."""


IMPOSSIBLE: Final = frozenset(pair for rule in _IMPOSSIBLE for pair in rule.pairs())


def possible(first: tuple[str, str], second: tuple[str, str], without: Collection[Pair] = IMPOSSIBLE) -> bool:
    """Whether two values, each with its dimension, can meet."""
    return frozenset({first, second}) not in without


def besides(excluded: Sequence[Rule]) -> Collection[Pair]:
    """What does not meet when some more rules hold."""
    return IMPOSSIBLE.union(*(rule.pairs() for rule in excluded))


def is_sound(choice: Choice) -> bool:
    """What pairs alone do not tell: without a commit ts, a schema change that is sent again did happen again; and the
    late shard's has the commit ts of rows that were sent before, which only a boundary completes.  What waits for
    people at the first shard is decided as it came; while it waits at the other, rows that were refused are missing.
    """
    is_held_once = choice["route"] == "shards" and choice["schema change"] in HELD_ONCE
    if is_held_once and (choice["decision"] not in {"approve", "replace alike"} or choice["quarantine"] != NONE):
        return False
    is_told_twice = choice["redelivery"] != NONE or choice["route"] == "shards"
    return not (is_told_twice and choice["schema change"] != NONE and choice["protocol"] in _UNBOUNDED)


def draw(random: Random, forced: Mapping[str, str], without: Collection[Pair] = IMPOSSIBLE) -> dict[str, str]:
    """A value for each dimension, all of which can meet.  Executors only when they are forced: they cost seconds."""
    forced = {"where": "driver"} | dict(forced)
    while True:
        choice: dict[str, str] = {}
        share, meetings = MEETINGS[forced["where"]]
        given = {**(random.choice(meetings) if random.random() < share else {}), **forced}
        others = [name for name in DIMENSIONS if name not in given]
        for name in [*given, *random.sample(others, len(others))]:
            values = [given[name]] if name in given else _weighted(random, name)
            fitting = [value for value in values if fits((name, value), choice, without)]
            if not fitting:
                break
            choice[name] = random.choice(fitting)
        if len(choice) == len(DIMENSIONS) and is_sound(choice):
            return choice


def fits(value: tuple[str, str], choice: Choice, without: Collection[Pair] = IMPOSSIBLE) -> bool:
    """Whether a value, with its dimension, can meet all of a choice."""
    return all(possible(value, met, without) for met in choice.items())


_SPECIAL: Final = {
    "column type": 0.5,
    "schema change": 0.5,
    "decision": 0.4,
    "redelivery": 0.35,
    "crash": 0.35,
    "quarantine": 0.25,
    "left out": 0.15,
    "route": 0.3,
    "names": 0.2,
    "event filter": 0.15,
    "begins": 0.2,
    "goes on with": 0.3,
}
"""How often these are not none."""


MEETINGS: Final[dict[str, tuple[float, tuple[Mapping[str, str], ...]]]] = {
    "driver": (
        0.12,
        (
            # Keys that a server holds for one, in statements that several connections run in any order.
            {"consistency": "parallel", "shape": "single key", "key type": "varchar"},
            {"consistency": "parallel", "shape": "prefix key", "key type": "varchar"},
            # A row of which a part came moves, or cannot be quarantined by halves.
            {"protocol": "official canal NOBLOB", "quarantine": "digits"},
            # What a retry writes anew would lose.
            {"shape": "target-only", "quarantine": "length", "protocol": "canal-json ext", "unique updates": "whole"},
            # Rows stay that are gone upstream, or get what they have not there.
            {"decision": "skip", "schema change": "truncate", "shape": "single key"},
            {"decision": "replace unlike", "schema change": "add column", "shape": "single key"},
        ),
    ),
    "executors": (
        0.85,
        (
            # Several pieces of one transaction keep values that only the target has.
            {"shape": "target-only", "rows per transaction": "1000", "micro-batch": "all", "boundaries": "last"},
            # A window is cut between commit ts that floating point does not tell apart.
            {"rows per transaction": "1", "micro-batch": "all", "boundaries": "last"},
            # Executors write.
            {"consistency": "parallel", "shape": "single key", "key type": "int"},
        ),
    ),
}
"""Values of several dimensions that hurt when they meet, and seldom do by chance: by where the rows are, in which share
of the runs, and which."""


def _weighted(random: Random, name: str) -> Sequence[str]:
    """So that what is special in one way is often special in no other."""
    if name in _SPECIAL and random.random() >= _SPECIAL[name]:
        return (NONE,)
    return DIMENSIONS[name]


def operations_of(choice: Choice, without: Collection[Pair] = IMPOSSIBLE) -> list[str]:
    """The operations that can meet all of a choice."""
    return [operation for operation in OPERATIONS if fits(("operations", operation), choice, without)]


def further_of(choice: Choice, without: Collection[Pair] = IMPOSSIBLE) -> list[str]:
    """The kinds of schema changes that may follow another one; none where some of them do not reach the target, or
    do something else there, or come to a second shard."""
    if choice["event filter"] != NONE or choice["route"] == "shards" or choice["decision"] in UNLIKE:
        return []
    others = {dimension: value for dimension, value in choice.items() if dimension != "schema change"}
    return [
        kind for kind in DIMENSIONS["schema change"] if kind != NONE and fits(("schema change", kind), others, without)
    ]


class Coverage:
    """Which pairs of values have met."""

    def __init__(self) -> None:
        self.runs = 0
        self._met: Counter[frozenset[tuple[str, str]]] = Counter()

    def add(self, met: Met) -> None:
        """One run."""
        self.runs += 1
        values = [(name, value) for name in ALL for value in met.get(name, ())]
        self._met.update(frozenset(pair) for pair in combinations(values, 2) if pair[0][0] != pair[1][0])

    def pairs(self) -> Iterator[tuple[str, str, str, str, int]]:
        """All possible pairs, and how often each has met."""
        for one, other in combinations(ALL, 2):
            for first in ALL[one]:
                for second in ALL[other]:
                    if possible((one, first), (other, second)):
                        yield one, first, other, second, self._met[frozenset({(one, first), (other, second)})]

    def report(self) -> str:
        """A table of the pairs of dimensions: how many pairs of values have met, of how many; then those that never
        have."""
        found: dict[tuple[str, str], list[int]] = {}
        never = []
        for one, first, other, second, count in self.pairs():
            found.setdefault((one, other), []).append(count)
            if not count:
                never.append(f"  {one} {first!r} with {other} {second!r}")
        met = sum(count > 0 for counts in found.values() for count in counts)
        total = sum(map(len, found.values()))
        lines = [f"{self.runs} runs; {met} of {total} possible pairs have met"]
        for (one, other), counts in found.items():
            lines.append(f"  {one + ' x ' + other:48}{sum(count > 0 for count in counts):5} of {len(counts)}")
        return "\n".join([*lines, "never met:" if never else "every possible pair has met", *never])
