"""Every column type of `golden/types-seen.txt`, with every value that TiCDC's encoders wrote, in each protocol."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bridge.events import Event, Kind
from tests.support.debezium_wire import event_of, ticdc
from tests.support.wire import canal, canal_event, check_sound, decode, open_row, split

CUT = "…"
"""Stands in a value that the list does not show whole."""
_BETWEEN = re.compile(r" ~ (?=[\[{])")


class Seen(NamedTuple):
    """A column, and what each protocol wrote of it, None for a value that is not shown whole."""

    name: str
    type: str
    samples: dict[str, list[Any]]


def columns_seen(golden: Path) -> list[Seen]:
    """The list, read."""
    found: list[Seen] = []
    for line in (golden / "types-seen.txt").read_text(encoding="utf-8").strip().split("\n"):
        if line.startswith("### "):
            _, name, kind = line.split(" ", 2)
            found.append(Seen(name, kind.strip(), {}))
        else:
            protocol, _, samples = line.strip().partition(" ")
            whole = [None if CUT in one else json.loads(one) for one in _BETWEEN.split(samples)]
            found[-1].samples[protocol] = whole
    return found


def _open(column: dict[str, Any], _: str) -> Event:
    [event] = decode("open-protocol", *open_row({"u": {"v": column}}))
    return event


def _canal(sample: list[Any], _: str) -> Event:
    _sql_type, mysql_type, value = sample
    return canal_event(canal("INSERT", {"v": (mysql_type, value)}))


def _debezium(sample: list[Any], column_type: str) -> Event:
    kind, name, value = sample
    word = re.sub(r"\(.*\)", "", column_type)
    field = {"type": kind, "optional": True, "field": "v", "tidb_type": word} | ({"name": name} if name else {})
    return event_of(ticdc("c", {"v": value}, [field]), b'{"payload":{}}')


DECODERS: dict[str, Callable[[Any, str], Any]] = {"open": _open, "canal": _canal, "dbz": _debezium}


def test_every_value_seen(golden: Path) -> None:
    """Each decodes to a literal that is ready, or made so by the target's column; Open Protocol and Canal-JSON give the
    same literals for the same values."""
    columns = columns_seen(golden)
    assert len(columns) == 103
    for seen in columns:
        literals = {
            protocol: [None if one is None else _literal(DECODERS[protocol](one, seen.type)) for one in samples]
            for protocol, samples in seen.samples.items()
        }
        assert literals.keys() == DECODERS.keys(), seen.name
        assert any(literals["open"]), seen.name
        assert any(literals["canal"]), seen.name
        if len(literals["open"]) == len(literals["canal"]):
            pairs = zip(literals["open"], literals["canal"], strict=True)
            assert [pair for pair in pairs if None not in pair and pair[0] != pair[1]] == [], seen.name


def _literal(event: Event) -> str:
    assert event.kind is Kind.INSERT, event.text
    check_sound([event])
    [literal] = split(event.after)
    return literal
