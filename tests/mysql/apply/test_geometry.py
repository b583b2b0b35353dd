"""Spatial values reach the target as the upstream's server stores them: their SRID, then their WKB."""

from __future__ import annotations

import base64
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.generated.verifying import verify_events
from tests.support.clients import run_file
from tests.support.debezium_wire import ID, NATIVE_SOURCE, native
from tests.support.pipelines import run_all, sql
from tests.support.wire import compact, decoded_lot, official

POSITIONS = count(484)
"""Each message of Debezium has a place of its own in the binlog."""
SERVERS = ("target", "old_target", "mysql_target", "old_mysql_target")
SHAPES = {
    "POINT": "POINT(116.5 39.25)",
    "LINESTRING": "LINESTRING(0 0,1 1,2 -1.5)",
    "POLYGON": "POLYGON((0 0,4 0,4 4,0 4,0 0),(1 1,2 1,2 2,1 1))",
    "MULTIPOINT": "MULTIPOINT(0 0,1 1)",
    "MULTILINESTRING": "MULTILINESTRING((0 0,1 1),(2 2,3 3))",
    "MULTIPOLYGON": "MULTIPOLYGON(((0 0,1 0,1 1,0 0)),((5 5,6 5,6 6,5 5)))",
    "GEOMETRYCOLLECTION": "GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(0 0,1 1))",
    "GEOMETRY": "POINT(1 2)",
}
COLUMNS = [name.lower() for name in SHAPES]
TABLES = {"a key": "id INT PRIMARY KEY", "no key": "id INT"}


def canal(kind: str, number: int, values: dict[str, bytes | None], *, has_key: bool) -> bytes:
    """Official Canal's message of a row."""
    row = {name: (name.upper(), value and value.decode("latin-1")) for name, value in values.items()}
    codes = dict.fromkeys(values, 2004) | {"id": 4}
    return official(kind, {"id": ("INT", str(number)), **row}, pkNames=["id"] if has_key else None, sqlType=codes)


def debezium(kind: str, number: int, values: dict[str, bytes | None], *, has_schema: bool) -> bytes:
    """The native connector's; a delete has no new row."""
    row: dict[str, Any] = {"id": number}
    fields = [ID]
    for name, value in values.items():
        srid = int.from_bytes(value[:4], "little") if value else 0
        told = value and {"wkb": base64.b64encode(value[4:]).decode(), "srid": srid or None}
        row[name] = told | {"x": 1.0, "y": 2.0} if told and name == "point" else told
        semantic = "io.debezium.data.geometry." + ("Point" if name == "point" else "Geometry")
        fields.append({"type": "struct", "name": semantic, "optional": True, "field": name})
    source = NATIVE_SOURCE | {"db": "m", "pos": next(POSITIONS)}
    return native({"INSERT": "c", "DELETE": "d"}[kind], row, fields if has_schema else None, source=source)


@pytest.mark.parametrize("url", SERVERS, indirect=True)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("way", ["canal-json", "debezium", "debezium without schema"])
def test_every_type(url: str, table: str, way: str, tmp_path: Path) -> None:
    """With and without an SRID, and NULL; rows of a table without a key go by it; verify finds what differs in a table
    with a key, and its fix writes what is right."""
    has_key, protocol = table == "a key", way.split()[0]
    lines = ",".join([TABLES[table], *(f"`{name}` {name}" for name in COLUMNS)])
    sql(url, "CREATE DATABASE m", "CREATE DATABASE upstream")
    sql(url, f"CREATE TABLE m.t ({lines})", f"CREATE TABLE upstream.t ({lines})")
    for number, srid in ((1, 0), (2, 3857)):
        texts = ",".join(f"ST_GeomFromText('{text}', {srid})" for text in SHAPES.values())
        sql(url, f"INSERT INTO upstream.t VALUES ({number},{texts})")
    names = ",".join(f"`{name}`" for name in COLUMNS)
    there = sql(url, f"SELECT {names} FROM upstream.t ORDER BY id")
    rows: dict[int, dict[str, bytes | None]] = {
        n: dict(zip(COLUMNS, row, strict=True)) for n, row in enumerate(there, 1)
    }
    rows[3] = dict.fromkeys(COLUMNS)
    sent = [("INSERT", n, rows[n]) for n in rows] + [("INSERT", 4, rows[1]), ("INSERT", 5, rows[2])]
    sent += [("DELETE", 4, rows[1]), ("DELETE", 3, rows[3])]
    if protocol == "canal-json":
        values = [canal(kind, n, row, has_key=has_key) for kind, n, row in sent]
    else:
        values = [debezium(kind, n, row, has_schema=way == protocol) for kind, n, row in sent]
    keys = [None if protocol == "canal-json" or not has_key else compact({"payload": {"id": n}}) for _, n, _ in sent]
    events = decoded_lot(protocol, values, keys)
    run_all(url, events)
    query = f"SELECT id,{names} FROM m.t ORDER BY id"
    right = [(n, *rows[shape].values()) for n, shape in ((1, 1), (2, 2), (5, 2))]
    assert sql(url, query) == right
    [texts_there] = sql(url, f"SELECT {','.join(f'ST_AsText(`{name}`)' for name in COLUMNS)} FROM m.t WHERE id = 1")
    assert [text.replace("((0 0),(1 1))", "(0 0,1 1)") for text in texts_there] == list(SHAPES.values())
    assert verify_events(url, events).is_equal
    sql(url, "UPDATE m.t SET point = ST_GeomFromText('POINT(7 7)') WHERE id = 2")
    [found] = verify_events(url, events, fixes=tmp_path / "fix.sql").tables
    assert found.result == ("DIFFERENT" if has_key else "not covered")
    if has_key:
        run_file(url, tmp_path / "fix.sql")
        assert sql(url, query) == right
