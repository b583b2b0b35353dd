"""What a sender loses by its settings: told where the messages show it, and of the right sender."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bridge.events import Event, Kind
from bridge.protocols.debezium.recognition import DebeziumModes
from bridge.protocols.sender_losses import losses
from tests.support.captures import read_lines
from tests.support.debezium_wire import (
    CUSTOMERS,
    ID,
    NATIVE_SOURCE,
    connect,
    event_of,
    named,
    native,
    payload,
    schema_change,
    ticdc,
)
from tests.support.wire import canal, canal_event, check_sound, compact, decode, open_row, split

CASES = Path(__file__).parents[1] / "cases"
OF_CHANGE = "an ALTER TABLE ... CHANGE that says neither"
"""In what every connector before 3.5 loses, which only its own test looks at."""
NEW = NATIVE_SOURCE | {"version": "3.2.0.Final"}
DEFAULTED: dict[str, Any] = {"type": "int32", "optional": True, "default": 5, "field": "v"}
TRUNCATE, NULLS, TIMES, DATABASES = "TRUNCATE", "NULL", "TIME", "topic of schema changes"


def told(*values: bytes, modes: DebeziumModes | None = None, is_filtered: bool = True) -> list[str]:
    """What is said of messages with these values."""
    sample = [(b"{}", value) for value in values]
    found = losses(sample, modes or DebeziumModes(), is_filtered=is_filtered)
    return [loss.what for loss in found if OF_CHANGE not in loss.what]


def values_of(name: str) -> list[bytes]:
    """The values of a capture."""
    return [base64.b64decode(line["value"]) for line in read_lines(CASES / f"{name}.jsonl") if line["value"]]


def row(values: dict[str, Any], fields: list[dict[str, Any]] | None, **source: Any) -> bytes:
    """A row of the connector."""
    return native("c", values, fields, source=NATIVE_SOURCE | source)


ROW = row({"id": 1}, [ID])


def test_genuine_messages_of_the_newest_connectors_tell_what_they_lack() -> None:
    """3.3.0 and 3.6.1 with their defaults, without schemas."""
    for name in ("debezium_3.3.0_defaults", "f9_debezium_361_partitioned"):
        truncate, nulls, *others = told(*values_of(name))
        assert "sends no TRUNCATE TABLE by default" in truncate
        assert "where the value is NULL" in nulls
        assert others == []


@pytest.mark.parametrize(("version", "is_told"), [("3.0.8.Final", True), ("3.1.3.Final", True), ("3.5.0.Final", False)])
def test_a_column_that_may_be_null_since_a_change(version: str, *, is_told: bool) -> None:
    """Seen with 3.0.8, 3.1.3, 3.5.0 and 3.6.1: behind ALTER TABLE t CHANGE a b TEXT, '' came for NULL of the first
    two."""
    found = losses([(b"{}", row({"id": 1}, [ID], version=version))], DebeziumModes(), is_filtered=True)
    assert any(OF_CHANGE in one.what for one in found) == is_told


def test_rows_without_a_key_may_lie_in_any_partition() -> None:
    """Only rows of Debezium's connector: its other messages never have a key, and TiCDC chooses partitions itself."""
    of_ticdc = [(None, ticdc("c", {"id": 1}))]
    others = [(b"{}", ROW), (None, schema_change("CREATE TABLE t (id INT)")), (None, compact(payload("t", None, NEW)))]
    assert [loss.what for loss in losses([(None, ROW), *others], DebeziumModes(), is_filtered=True)][-1].startswith(
        "rows of d.t have no key"
    )
    for sample in (of_ticdc, others):
        assert not [one for one in losses(sample, DebeziumModes(), is_filtered=True) if "have no key" in one.what]


def test_genuine_schema_changes_of_a_database_that_is_not_read() -> None:
    """The connector's table.include.list named shop.t; its topic of schema changes holds those of archive."""
    assert told(*values_of("debezium_3.3.0_defaults"), is_filtered=False)[-1] == (
        "the topic of schema changes also holds those of archive, of which no row is read"
    )


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([ROW], []),
        ([row({"id": 1}, [ID], version="3.1.3.Final")], []),
        ([row({"id": 1}, [ID], version="3.2.0.Final")], [TRUNCATE]),
        ([row({"id": 1}, [ID], version="10.0.0.Beta1", connector="mariadb")], [TRUNCATE]),
        ([row({"id": 1}, [ID], version=None)], []),
        ([row({"id": 1}, [ID], version="3.2.0.Final"), compact(payload("t", None, NEW))], []),
        ([row({"id": 1, "v": 5}, [ID, DEFAULTED])], [NULLS]),
        ([row({"id": 1, "v": 5}, [ID, DEFAULTED]), row({"id": 2, "v": None}, [ID, DEFAULTED])], []),
        ([row({"id": 1, "v": 5}, [ID, DEFAULTED | {"optional": False}])], []),
        ([row({"id": 1}, None)], [NULLS]),
        ([row({"t": 1}, [connect("int32", "Time", field="t")])], [TIMES]),
        ([row({"t": "10:00:00Z"}, [named("string", "time.IsoTime", field="t")])], [TIMES]),
        ([row({"t": 1}, [named("int64", "time.MicroTime", field="t")])], []),
        ([native("c", {"id": 1}, [ID], source=CUSTOMERS), schema_change("CREATE TABLE t (id INT)")], []),
        ([schema_change("CREATE TABLE t (id INT)")], [NULLS]),
        ([ticdc("c", {"id": 1}), ticdc("c", {"id": 1, "v": 5}, [ID, DEFAULTED])], []),
        ([b"", b"[]", b"{}", b'{"payload":null}', b'{"schema":1,"payload":{"op":"c","source":{}}}'], []),
        ([canal("INSERT", {"id": ("int", "1")})], []),
    ],
)  # fmt: skip
def test_what_the_messages_show_is_told(values: list[bytes], words: list[str]) -> None:
    """And nothing else; nothing of TiCDC."""
    found = told(*values)
    assert len(found) == len(words), found
    assert all(word in one for word, one in zip(words, found, strict=True))


def test_the_settings_tell_the_mode_of_messages_without_schemas() -> None:
    """With schemas, these tell it."""
    modes = DebeziumModes(time="connect")
    assert any("time.precision.mode=connect" in one for one in told(row({"id": 1}, None), modes=modes))
    assert told(ROW, modes=modes) == []


def test_what_canal_cannot_send_right_is_told() -> None:
    """Its columns of utf16; the order of schema changes without GTIDs; the databases of others, where no filter leaves
    them out."""
    server: dict[str, Any] = {"id": 7, "gtid": "", "_tidb": None}
    insert = canal("INSERT", {"id": ("int", "1")}, **server)
    made = canal("CREATE", {}, isDdl=True, data=None, sql="CREATE TABLE t (v TEXT CHARACTER SET ucs2)", **server)
    wide, unordered = told(insert)
    assert wide == "Canal reads the values of columns of utf16, ucs2 wrongly"
    assert unordered.startswith("Canal without GTIDs does not always tell whether a TRUNCATE")
    assert "a row whose key changed may come back" in unordered
    assert "in another spelling ('A' for 'a') may be lost" in unordered
    assert told(canal("INSERT", {"id": ("int", "1")}, **{**server, "gtid": "aaaaaaaa-0000:1-3"})) == [wide]
    assert told(insert, made)[0] == "Canal reads the values of columns of ucs2 wrongly"
    assert ["DATABASE" in one for one in told(insert, is_filtered=False)] == [False, False, True]


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


def _open(column: dict[str, Any], _: str) -> Any:
    [event] = decode("open-protocol", *open_row({"u": {"v": column}}))
    return event


def _canal(sample: list[Any], _: str) -> Any:
    _sql_type, mysql_type, value = sample
    return canal_event(canal("INSERT", {"v": (mysql_type, value)}))


def _debezium(sample: list[Any], column_type: str) -> Any:
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
    assert event.kind is Kind.INSERT, event
    check_sound([event])
    [literal] = split(event.after)
    return literal


@pytest.mark.parametrize(
    ("old", "is_told"), [({}, True), ({"OLD_VALUES": None}, True), ({"OLD_VALUES": {"id": "1"}}, False)]
)
def test_ckafka_without_old_values(old: dict[str, Any], is_told: bool) -> None:
    """Nothing tells that a row had another key."""
    update = {
        "BINLOG_NAME": "b.1",
        "BINLOG_POS": 4,
        "DATABASE": "m",
        "TABLE": "t",
        "TYPE": "U",
        "NEW_VALUES": {"id": "2"},
        **old,
    }
    assert [("OLD_VALUES" in what) for what in told(compact(update))] == [True] * is_told
