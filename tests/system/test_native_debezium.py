"""Messages of the native Debezium connector through the whole bridge, with schemas and without, in several modes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.captures import Line, write_lines
from tests.support.command import bridge
from tests.support.debezium_wire import NATIVE_SOURCE, TS_MS
from tests.support.golden import Reader
from tests.support.pipelines import sql
from tests.system.test_golden_replay import found as differences

pytestmark = pytest.mark.usefixtures("spark")

CREATE = (
    "CREATE TABLE `t` (`id` bigint unsigned NOT NULL, `b1` bit(1), `b9` bit(9), `i8` tinyint, `d` decimal(10,2),"
    " `d0` decimal(20,0), `f` float, `r` double, `v` varchar(20), `bin` varbinary(9), `day` date NOT NULL,"
    " `t3` time(3), `t6` time(6), `dt` datetime, `dt6` datetime(6), `ts` timestamp(3) NULL, `y` year,"
    " `e` enum('a','b'), `s` set('x','y'), `j` json, `p` point, PRIMARY KEY (`id`)) DEFAULT CHARSET=utf8mb4"
)
ROWS = {
    1: "18446744073709551615, b'1', b'100000000', -128, 123.45, 12345678901234567890, 0.1, 1e-10, 'it''s', x'00ff',"
    " '2024-02-29', '-00:00:01.500', '-838:59:58.999999', '2024-02-29 12:34:56', '2024-02-29 12:34:56.789012',"
    " '2024-02-29 12:34:56.789', 2024, 'b', 'x,y', '{\"a\": 1}', ST_GeomFromText('POINT(1 2)')",
    2: "2, b'0', b'1', 127, -0.01, -1, 16777216, 1e21, '', '', '1000-01-01', '00:00:00', '23:59:59.000001',"
    " '9999-12-31 23:59:59', '1000-01-01 00:00:00.000001', '2038-01-19 03:14:07.999', 1901, 'a', '', 'null', NULL",
    3: "3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '1969-12-31', NULL, NULL, NULL, NULL, NULL, NULL,"
    " NULL, NULL, NULL, NULL",
}


class Variant(NamedTuple):
    """How a connector writes: types of columns in its schema, the three rows' values, and the bridge's settings."""

    fields: dict[str, dict[str, Any]] | None
    changed: dict[str, tuple[Any, ...]]
    settings: tuple[str, ...] = ()


POINT = {"x": 1.0, "y": 2.0, "wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": None}
VALUES: dict[str, tuple[Any, ...]] = {
    "id": (-1, 2, 3), "b1": (True, False, None), "b9": ("AAE=", "AQA=", None), "i8": (-128, 127, None),
    "d": ("MDk=", "/w==", None), "d0": ("AKtUqYzrHwrS", "/w==", None), "f": (0.1, 16777216.0, None),
    "r": (1e-10, 1e21, None), "v": ("it's", "", None), "bin": ("AP8=", "", None), "day": (19782, -354285, -1),
    "t3": (-1500000, 0, None), "t6": (-3020398999999, 86399000001, None),
    "dt": (1709210096000, 253402300799000, None), "dt6": (1709210096789012, -30610223999999999, None),
    "ts": ("2024-02-29T12:34:56.789Z", "2038-01-19T03:14:07.999Z", None), "y": (2024, 1901, None),
    "e": ("b", "a", None), "s": ("x,y", "", None), "j": ('{"a": 1}', "null", None), "p": (POINT, None, None),
}  # fmt: skip


def field(kind: str, name: str | None = None, **parameters: str) -> dict[str, Any]:
    return {"type": kind, "optional": True, "name": name, "parameters": parameters}


FIELDS = {
    "id": field("int64"), "b1": field("boolean"), "b9": field("bytes", "io.debezium.data.Bits", length="9"),
    "i8": field("int16"), "d": field("bytes", "org.apache.kafka.connect.data.Decimal", scale="2"),
    "d0": field("bytes", "org.apache.kafka.connect.data.Decimal", scale="0"), "f": field("float"), "r": field("double"),
    "v": field("string"), "bin": field("bytes"), "day": field("int32", "io.debezium.time.Date"),
    "t3": field("int64", "io.debezium.time.MicroTime"), "t6": field("int64", "io.debezium.time.MicroTime"),
    "dt": field("int64", "io.debezium.time.Timestamp"), "dt6": field("int64", "io.debezium.time.MicroTimestamp"),
    "ts": field("string", "io.debezium.time.ZonedTimestamp"), "y": field("int32", "io.debezium.time.Year"),
    "e": field("string", "io.debezium.data.Enum", allowed="a,b"), "s": field("string", "io.debezium.data.EnumSet"),
    "j": field("string", "io.debezium.data.Json"), "p": field("struct", "io.debezium.data.geometry.Point"),
}  # fmt: skip

STRINGS: dict[str, tuple[Any, ...]] = {
    "d": ("123.45", "-0.01", None), "d0": ("12345678901234567890", "-1", None), "bin": ("00ff", "", None),
    "t3": (-1500, 0, None),
}  # fmt: skip
PRECISE: dict[str, tuple[Any, ...]] = {"id": ("AP//////////", "Ag==", "Aw==")}

VARIANTS = {
    "schemas, default modes": Variant(FIELDS, {}),
    "schemas, precise, string, adaptive, hex": Variant(
        FIELDS
        | {"id": field("bytes", "org.apache.kafka.connect.data.Decimal", scale="0"), "d": field("string")}
        | {"d0": field("string"), "bin": field("string"), "t3": field("int32", "io.debezium.time.Time")},
        PRECISE | STRINGS,
        ("binary_handling_mode=hex",),
    ),
    "no schemas, default modes": Variant(None, {}, ("time_precision_mode=adaptive_time_microseconds",)),
    "no schemas, precise, string, adaptive, hex": Variant(
        None,
        PRECISE | STRINGS,
        ("decimal_handling_mode=string", "time_precision_mode=adaptive", "binary_handling_mode=hex"),
    ),
}


class Connector:
    """Writes what the native connector would: a topic of schema changes, and the topic of the table."""

    def __init__(self, variant: Variant) -> None:
        self._variant = variant
        self._now = TS_MS
        self.lines: list[Line] = []

    def ddl(self, sql: str, snapshot: str = "false") -> None:
        payload = {"source": self._source(snapshot), "ts_ms": self._now, "databaseName": "shop", "ddl": sql}
        self._send("ddl", {"databaseName": "shop"}, payload, {"type": "struct", "fields": []})

    def row(self, op: str, before: int | None, after: int | None) -> None:
        """Numbers of the rows before and after a change."""
        images = [None if number is None else self._row(number) for number in (before, after)]
        payload = {"before": images[0], "after": images[1], "source": self._source(), "op": op, "ts_ms": self._now}
        key = {"id": (images[0] or images[1] or {}).get("id")}
        fields = [spec | {"field": name} for name, spec in (self._variant.fields or {}).items()]
        self._send("rows", key, payload, {"type": "struct", "fields": [{"field": "after", "fields": fields}]})

    def tombstone(self) -> None:
        self._line("rows", b'{"id":2}', None)

    def _row(self, number: int) -> dict[str, Any]:
        return {name: values[number - 1] for name, values in (VALUES | self._variant.changed).items()}

    def _source(self, snapshot: str = "false") -> dict[str, Any]:
        self._now += 1000
        of_snapshot = {} if snapshot == "false" else {"server_id": 0}
        return NATIVE_SOURCE | {"db": "shop", "table": "t", "ts_ms": self._now, "snapshot": snapshot} | of_snapshot

    def _send(self, topic: str, key: dict[str, Any], payload: dict[str, Any], schema: dict[str, Any]) -> None:
        wrapped = self._variant.fields is not None
        content = [
            json.dumps({"schema": schema, "payload": part} if wrapped else part).encode() for part in (key, payload)
        ]
        self._line(topic, *content)

    def _line(self, topic: str, key: bytes, value: bytes | None) -> None:
        offset = sum(line["topic"] == topic for line in self.lines)
        encoded = [None if part is None else base64.b64encode(part).decode() for part in (key, value)]
        self.lines.append(
            {"topic": topic, "partition": 0, "offset": offset, "timestamp": self._now, "key": encoded[0],
             "value": encoded[1]}
        )  # fmt: skip


def history(connector: Connector) -> None:
    """A snapshot of row 3, then the binlog: rows 1 and 2 in a table that is truncated once in between."""
    for text in (
        "SET character_set_server=utf8mb4",
        "DROP TABLE IF EXISTS `shop`.`t`",
        "DROP DATABASE IF EXISTS `shop`",
    ):
        connector.ddl(text, "true")
    connector.ddl("CREATE DATABASE `shop` CHARSET utf8mb4", "true")
    connector.ddl("USE `shop`", "true")
    connector.ddl(CREATE, "true")
    connector.row("r", None, 2)
    connector.row("t", None, None)
    connector.row("r", None, 3)
    connector.row("c", None, 2)
    connector.row("d", 2, None)
    connector.tombstone()
    connector.row("c", None, 1)
    connector.row("c", None, 2)
    connector.row("u", 2, 2)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name.startswith("schemas") else pytest.mark.soak) for name in VARIANTS]
)
def test_the_target_is_what_the_upstream_was(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Every type, in the modes that the message or the settings tell, ends as SQL alone would have left it; verify
    finds that equal, and rows that were damaged."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    connector = Connector(VARIANTS[name])
    history(connector)
    capture = write_lines(tmp_path / "shop.jsonl", connector.lines)
    settings = [part for setting in VARIANTS[name].settings for part in ("--set", f"debezium.{setting}")]
    arguments = ("--protocol", "debezium", "--input", str(capture), "--target", target, *settings)
    ended = bridge("replay", *arguments, "--set", "ddl.source=mysql-8")
    assert ended.code == 0, ended.err
    reader = Reader(target)
    reader.query("CREATE DATABASE truth")
    reader.query(CREATE.replace("`t`", "truth.`t`"))
    for values in ROWS.values():
        reader.query(f"INSERT INTO truth.t VALUES ({values})")
    selected = ", ".join(f"HEX({column})" if column in ("b1", "b9", "bin", "p") else column for column in VALUES)
    found, wanted = (reader.query(f"SELECT {selected} FROM {schema}.t ORDER BY id") for schema in ("shop", "truth"))
    reader.query("DROP DATABASE truth")
    reader.close()
    assert found == wanted
    verified = bridge("verify", *arguments, "--json")
    assert (verified.code, differences(verified)) == (0, set()), verified.err
    sql(target, "UPDATE shop.t SET f = 0.2 WHERE id = 2", "DELETE FROM shop.t WHERE id = 3", "SELECT 1")
    assert differences(bridge("verify", *arguments, "--json")) == {
        ("shop.t", "different", "2", "f"), ("shop.t", "missing", "3"),
    }  # fmt: skip
