"""Messages of about 1 MB that ask for as much time and memory as they can, and a process that measures what they get.

`python -m tests.support.gluttons PROTOCOL` prints a JSON object: name to [bytes, processor time as a multiple of
`yardstick`, MB of memory].
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lz4.frame
from cramjam import snappy

from bridge.protocols import DecodeOptions, decode_message, make_decoder
from tests.support.wire import ROW_KEY, TSO, base64_text, canal, compact, frame, open_key, open_value

MB = 1_000_000
DIGITS = "9" * MB
LIMIT = 16 << 20
"""What a small compressed value may grow to."""
TEXTS = {
    "quotes": "'" * MB,
    "NULs": "\0" * (MB // 6),
    "backslashes": "\\" * (MB // 2),
    "one emoji": "😀" + "x" * MB,
    "letters": "x" * MB,
    "digits": DIGITS,
    "minuses": "-" * MB,
    "exponent": "1e" + DIGITS,
    "commas": "," * MB,
}
Message = tuple[bytes | None, bytes]
OPEN_KEY = open_key(ROW_KEY)


def everywhere() -> Iterator[tuple[str, bytes]]:
    """Contents that no protocol has anything to do with."""
    yield "arrays", b"[" * MB
    yield "objects", b'{"a":' * (MB // 5)
    yield "closed arrays", b"[" * 500_000 + b"]" * 500_000
    yield "empty arrays", b"[" + b"[]," * (MB // 3) + b"[]]"
    yield "nested arrays", b"[" + (b"[" * 400 + b"]" * 400 + b",") * (MB // 801) + b"0]"
    yield "nested objects", b"[" + (b'{"":' * 400 + b"0" + b"}" * 400 + b",") * (MB // 2002) + b"0]"
    yield "number", DIGITS.encode()
    yield "fraction", b"0." + DIGITS.encode()
    yield "exponent", b"1e" + DIGITS.encode()
    yield "string", b'"' + DIGITS.encode() + b'"'
    yield "escapes", b'"' + b"\\u0000" * (MB // 6) + b'"'
    yield "open string", b'"' + b'\\"' * (MB // 2)
    yield "zeros", bytes(MB)
    yield "noise", random.Random(7).randbytes(MB)
    for name, grown in (
        ("zeros", bytes(LIMIT)),
        ("too many zeros", bytes(250 << 20)),
        ("arrays", b"[" * LIMIT),
        ("empty arrays", b"[" + b"[]," * (LIMIT // 3 - 2) + b"[]]"),
        ("small objects", b"[" + b'{"":0},' * (LIMIT // 7 - 2) + b"0]"),
        ("small strings", b"[" + b'"",' * (LIMIT // 3 - 2) + b"0]"),
        ("escaped quotes", b'"' + b'\\"' * (LIMIT // 2 - 2)),
    ):
        yield f"lz4 of {name}", lz4.frame.compress(grown)
        if len(grown) <= LIMIT:
            yield f"snappy of {name}", bytes(snappy.compress_raw(grown))


def rows_of_canal() -> Iterator[tuple[str, bytes]]:
    """Rows in Canal's form."""
    for name, text in TEXTS.items():
        for mysql_type in ("text", "blob", "int", "decimal", "double", "timestamp", "year", "bit", "set('','x')"):
            yield f"{mysql_type} of {name}", canal("INSERT", {"v": (mysql_type, text)})
    members = ",".join(f"'{n}'" for n in range(120_000))
    yield "members", canal("INSERT", {"v": (f"enum({members})", "x")})
    yield "columns", canal("INSERT", {f"c{n}": ("int", "1") for n in range(25_000)})
    one, many = {"a": ("int", "1")}, 80_000
    yield "rows", canal("INSERT", one, data=[{"a": "1"}] * many, pkNames=["a"])
    yield "rows in turn", canal("INSERT", one | {"b": ("int", "1")}, data=[{"a": "1"}, {"b": "1"}] * (many // 2))
    types = {f"c{n}": "int" for n in range(40_000)} | {"a": "int"}
    yield "rows and types", canal("INSERT", one, data=[{"a": "1"}] * (many // 2), mysqlType=types)
    yield "rows and keys", canal("INSERT", one, data=[{"a": "1"}] * (many // 2), pkNames=["a"] * 100_000)
    yield "rows and name", canal("INSERT", one, data=[{"a": "1"}] * (many // 2), table="t" * (MB // 2))
    yield "rows and column", canal("INSERT", {"a" * 64: ("int", "1")}, data=[{"a" * 64: "1"}] * 14_000)
    yield "empty old rows", canal("UPDATE", one, data=[{"a": "1"}] * many, old=[{}] * many)
    yield "statement", canal("ALTER", {}, isDdl=True, sql="x" * MB)
    for name, text in (("letters", "x" * (LIMIT - 1000)), ("emoji", "😀" + "x" * (LIMIT - 1000))):
        yield f"lz4 of {name}", lz4.frame.compress(canal("INSERT", {"v": ("text", text)}))


def batches_of_open_protocol() -> Iterator[tuple[str, Message]]:
    """Batches of frames."""
    for name, text in TEXTS.items():
        for code, flags in ((15, 0), (15, 1), (252, 0), (3, 0), (246, 0), (12, 0), (7, 0)):
            column = {"t": code, "f": flags, "v": text}
            yield f"{code}/{flags} of {name}", (OPEN_KEY, open_value({"u": {"v": column}}))
    content = base64_text(b"x" * (MB * 3 // 4))
    yield "base64", (OPEN_KEY, open_value({"u": {"v": {"t": 252, "f": 1, "v": content}}}))
    columns = {f"c{n}": {"t": 3, "v": 1} for n in range(40_000)}
    yield "columns", (OPEN_KEY, open_value({"u": columns}))
    row = frame(compact({"u": {"a": {"t": 3, "v": 1}}, "p": {}}))
    yield "rows", (open_key(*[ROW_KEY] * 14_000), row * 14_000)
    yield "keys", (open_key(*[ROW_KEY] * 14_000), bytes(8))
    yield "names", (open_key(*[{"ts": TSO, "scm": "d", "tbl": f"t{n}", "t": 1} for n in range(14_000)]), row * 14_000)
    yield "lengths", (OPEN_KEY, b"\xff" * MB)
    yield "frames of nothing", (bytes(7) + b"\1" + bytes(MB), bytes(MB))
    packed = frame(lz4.frame.compress(compact({"u": {"v": {"t": 15, "f": 0, "v": "x" * (4 << 20)}}})))
    yield "lz4 frames", (open_key(*[ROW_KEY] * 50), packed * 50)


def rows_of_ckafka() -> Iterator[tuple[str, bytes]]:
    """Rows of CKafka's official format 1."""
    row = {"BINLOG_NAME": "b.1", "BINLOG_POS": 4, "DATABASE": "d", "TABLE": "t", "TYPE": "I", "OLD_VALUES": None}
    time_ = {"TIME": "20160611015029"}
    for name, text in TEXTS.items():
        yield name, compact(row | time_ | {"NEW_VALUES": {"v": text}})
        yield f"TIME of {name}", compact(row | {"NEW_VALUES": {"v": "1"}, "TIME": text})
    yield "columns", compact(row | time_ | {"NEW_VALUES": {f"c{n}": "1" for n in range(70_000)}})


def rows_of_debezium() -> Iterator[tuple[str, bytes]]:
    """Rows in Debezium's envelope."""
    source = {"connector": "mysql", "db": "d", "table": "t", "ts_ms": 1700000000000, "file": "b.1", "pos": 4}

    def row(after: Any, **fields: Any) -> bytes:
        return compact({"payload": {"source": source, "op": "c", "before": None, "after": after}} | fields)

    def typed(value: Any, connect: str, name: str | None, **more: Any) -> bytes:
        field = {"field": "v", "type": connect, "name": name, "optional": True} | more
        fields = [{"field": "after", "type": "struct", "fields": [field]}]
        return row({"v": value}, schema={"type": "struct", "fields": fields})

    decimal = "org.apache.kafka.connect.data.Decimal"
    for name, text in TEXTS.items():
        yield name, row({"v": text})
        yield f"string of {name}", typed(text, "string", None)
        yield f"decimal of {name}", typed(text, "bytes", decimal, parameters={"scale": "2"})
        yield f"time of {name}", typed(text, "string", "io.debezium.time.ZonedTimestamp")
    number = base64_text(b"\x7f" * (MB * 3 // 4))
    yield "digits of a decimal", typed(number, "bytes", decimal, parameters={"scale": "2"})
    yield "scale of a decimal", typed("AQ==", "bytes", decimal, parameters={"scale": DIGITS})
    yield "columns", row({f"c{n}": 1 for n in range(80_000)})
    fields = [{"field": f"c{n}", "type": "int32", "optional": True} for n in range(18_000)]
    yield "fields", row({"c0": 1}, schema={"fields": [{"field": "after", "type": "struct", "fields": fields}]})
    schema: Any = {"type": "struct", "fields": []}
    for _ in range(300):
        schema = {"type": "struct", "fields": [{"field": "after", **schema}] * 2 if _ < 12 else [schema]}
    yield "schema in schema", row({"c0": 1}, schema=schema)


def gluttons(protocol: str) -> Iterator[tuple[str, Message]]:
    """Names and messages for a protocol."""
    own = {"canal-json": rows_of_canal, "ckafka": rows_of_ckafka, "debezium": rows_of_debezium}
    for name, content in everywhere():
        if protocol == "open-protocol":
            yield f"key of {name}", (content, content)
            yield f"event key of {name}", (bytes(7) + b"\1" + frame(content), frame(b"{}"))
            yield f"event of {name}", (OPEN_KEY, frame(content))
        else:
            yield name, (b"", content)
    if protocol == "open-protocol":
        yield from batches_of_open_protocol()
    for name, content in own[protocol]() if protocol in own else ():
        yield name, (b"", content)


def yardstick() -> float:
    """Seconds of processor time that plain Python takes for a megabyte of small rows, which differ between machines and
    with what else runs there."""
    rows = b"[" + b'{"a":"1"},' * (MB // 10) + b"{}]"
    began = time.process_time()
    for row in json.loads(rows):
        ",".join([str(int(value)) for value in row.values()])
    return time.process_time() - began


def measured(protocol: str, message: Message) -> tuple[float, float]:
    """Seconds of processor time, and MB that the process grew to beyond what it had."""
    decoder = make_decoder(protocol, DecodeOptions("Europe/Berlin"))
    Path("/proc/self/clear_refs").write_text("5")
    before, began = _peak_mb(), time.process_time()
    decode_message(decoder, *message)
    return time.process_time() - began, _peak_mb() - before


def _peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def size(message: Message) -> int:
    """Bytes of its larger part."""
    return max(len(part or b"") for part in message)


if __name__ == "__main__":
    before = yardstick()
    costs = {name: (size(message), *measured(sys.argv[1], message)) for name, message in gluttons(sys.argv[1])}
    unit = max(before, yardstick())
    print(json.dumps({name: (length, seconds / unit, mb) for name, (length, seconds, mb) in costs.items()}))
