"""How the bridge of a run is set, and what is other about it when it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from bridge.config import Settings
from tests.generated.decisions import WAITING
from tests.generated.dimensions import DIMENSIONS, HELD_ONCE, NONE, Choice, fits
from tests.generated.event_filters import EVENT_FILTERS
from tests.generated.tables import Routing

FILTERS: Final[tuple[tuple[str, ...], ...]] = (
    ("m.t0", "M.t?", "m.renamed"),
    ("*.*", "!x.*", "!m.t0s", "!m.Unwanted"),
    (r"/^m$/./^(t\d|renamed)$/",),
)
"""Each leaves out what `RESERVED` has of a table filter, and nothing else."""
DROPPED: Final = "t1"
"""The table that a bridge which goes on with fewer tables leaves out."""
_SIZES: Final = ("rows per transaction", "micro-batch", "statements")


def settings_of(name: str, choice: Choice, routing: Routing, random: Random, *, later: bool = False) -> Settings:
    """The settings of a run's bridge.  choice: what holds now; later: when it goes on."""
    given: dict[str, Any] = {"name": name, "timezone": "UTC", "route": routing.rules}
    rules: tuple[str, ...] = random.choice(FILTERS) if choice["left out"] == "table filter" else ()
    if choice["goes on with"] == "fewer tables" and later:
        rules = (*(rules or ("*.*",)), f"!m.{DROPPED}")
    filters: list[dict[str, Sequence[str]]] = (
        [{"matcher": ["m.unwritten"], "ignore-event": ["all dml"]}] if choice["left out"] == "event filter" else []
    )
    if choice["event filter"] != NONE:
        filters.append({"matcher": ["M.t0", "m.renamed"], "ignore-event": EVENT_FILTERS[choice["event filter"]]})
    if choice["decision"] != NONE:
        # At the other shards nothing is confirmed that is refused.
        is_held_once = choice["route"] == "shards" and choice["schema change"] in HELD_ONCE
        given["ddl"] = {"hold" if is_held_once else random.choice(("hold", "refuse")): WAITING}
    if "native" in choice["protocol"]:
        given["debezium"] = {"time_precision_mode": "adaptive_time_microseconds"}  # as without it -1.5 s is two values
    return Settings.model_validate({**given, "filter": rules, "event_filters": filters})


def at_first(choice: Choice) -> Choice:
    """The choice that holds until the bridge goes on."""
    return {**choice, "event filter": NONE} if choice["goes on with"] == "an event filter" else choice


def gone_on(choice: Choice, random: Random) -> dict[str, str]:
    """The choice that holds when the bridge goes on."""
    how, other = choice["goes on with"], dict(choice)
    dimensions = {
        "other sizes": _SIZES,
        "other mode": ("consistency",),
        "other place": ("where",),
        "other routes": ("route",),
    }
    for name in dimensions.get(how, ()):
        rest = {
            dimension: value for dimension, value in other.items() if dimension not in {name, "goes on with", "crash"}
        }
        values = [value for value in DIMENSIONS[name] if value != choice[name] and fits((name, value), rest)]
        values = [value for value in values if value != NONE or name == "route"]
        other[name] = random.choice([value for value in values if value != "shards"] or [choice[name]])
    return other


def stops(choice: Choice) -> bool:
    """Whether the bridge is stopped on its way."""
    return choice["goes on with"] != NONE or choice["partitions"] == "growing"
