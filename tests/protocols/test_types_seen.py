"""Every column type of `golden/types-seen.txt`, with every value that TiCDC's encoders wrote, in each protocol."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bridge.events import Event, Kind
from tests.support.debezium_wire import event_of, ticdc
from tests.support.wire import canal, canal_event, check_sound, decode, open_row, split

CUT = "…"
"""Stands in a value that the list does not show whole."""
_BETWEEN = re.compile(r" ~ (?=[\[{])")
_COLUMNS = 103
"""Of the list; so many tests there are, whether it is at hand or not."""


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


@pytest.mark.parametrize("number", range(_COLUMNS))
def test_every_value_seen(golden: Path, number: int) -> None:
    """Each decodes to a literal that is ready, or made so by the target's column; Open Protocol and Canal-JSON give the
    same literals for the same values."""
    seen = columns_seen(golden)[number]
    literals: dict[str, list[str | None]] = {}
    for protocol, samples in seen.samples.items():
        literals[protocol] = [None if s is None else _literal(DECODERS[protocol](s, seen.type)) for s in samples]
    assert literals.keys() == DECODERS.keys()
    assert any(literals["open"])
    assert any(literals["canal"])
    if len(literals["open"]) == len(literals["canal"]):
        pairs = zip(literals["open"], literals["canal"], strict=True)
        assert [pair for pair in pairs if None not in pair and pair[0] != pair[1]] == []


def _literal(event: Event) -> str:
    assert event.kind is Kind.INSERT, event.text
    check_sound([event])
    [literal] = split(event.after)
    return literal


def test_the_whole_list(golden: Path) -> None:
    """No column of the list is left out."""
    assert len(columns_seen(golden)) == _COLUMNS
