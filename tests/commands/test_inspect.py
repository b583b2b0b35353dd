"""`bridge inspect`: what it says of genuine, broken and foreign messages."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.commands.inspect import Record, inspect, table_lines
from bridge.config import Settings
from bridge.errors import UsageError
from bridge.local import Kafka
from bridge.sources.capture_files import CaptureSource
from bridge.sources.kafka.source import KafkaSource
from bridge.tso import ms_tso
from tests.support.captures import read_lines, send_lines
from tests.support.command import bridge
from tests.support.wire import TSO, canal, compact, open_key, open_row, open_value, row_change

TIME = "2026-11-21T06:16:15.894Z"
COLUMNS = {"id": ("int", "1"), "v": ("varchar", "it's")}


def line(value: bytes | None, key: bytes | None = b"", **fields: Any) -> dict[str, Any]:
    encoded = {
        name: None if part is None else base64.b64encode(part).decode()
        for name, part in (("key", key), ("value", value))
    }
    return {"partition": 0, "offset": 0, **encoded, **fields}


def captured(folder: Path, *lines: dict[str, Any]) -> CaptureSource:
    path = folder / "messages.jsonl"
    path.write_text("".join(json.dumps({**one, "offset": at}) + "\n" for at, one in enumerate(lines)))
    return CaptureSource(str(path))


def seen(source: CaptureSource, limit: int = 0, **settings: Any) -> list[Record]:
    return list(inspect(source, Settings(timezone="UTC", **settings), limit=limit))


def documents(folder: Path, *lines: dict[str, Any], **settings: Any) -> list[dict[str, Any]]:
    return [record.document() for record in seen(captured(folder, *lines), **settings)]


def test_row(tmp_path: Path) -> None:
    """A row change: where, what, when, key and images by column."""
    update = line(canal("UPDATE", COLUMNS, old=[{"v": None}]), partition=3, topic="shop")
    assert documents(tmp_path, update) == [
        {
            "topic": "shop", "partition": 3, "offset": 0, "protocol": "canal-json",
            "variant": "TiCDC with the TiDB extension", "kind": "update", "index": 0, "schema": "d", "table": "t",
            "commit_ts": TSO, "time": TIME, "key": {"id": "1"}, "before": {"id": "1", "v": "NULL"},
            "after": {"id": "1", "v": r"'it\'s'"},
        }
    ]  # fmt: skip


def test_a_routed_row(tmp_path: Path) -> None:
    """What came, and where it goes."""
    [document] = documents(tmp_path, line(canal("INSERT", COLUMNS)), route=("d.* -> far.*",))
    assert (document["schema"], document["table"], document["goes_to"]) == ("d", "t", "far.t")


def test_event_time(tmp_path: Path) -> None:
    """A time that is no commit_ts is marked as such."""
    [document] = documents(tmp_path, line(canal("DELETE", COLUMNS, es=1700000000, _tidb=None)))
    assert (document["commit_ts"], document["by_time"]) == (ms_tso(1700000000000), True)
    assert (document["time"], document["kind"]) == ("2023-11-14T22:13:20.000Z", "delete")
    [_, _, shown] = table_lines(seen(captured(tmp_path, line(canal("DELETE", COLUMNS, es=1700000000, _tidb=None)))))
    assert "event time          2023-11-14T22:13:20.000Z" in shown


def test_a_row_that_is_cut_to_its_key(tmp_path: Path) -> None:
    """It says so, and is no statement."""
    cut = {"commitTs": TSO, "onlyHandleKey": True}
    [document] = documents(tmp_path, line(canal("INSERT", COLUMNS, _tidb=cut)))
    assert (document["kind"], document["cut"]) == ("insert", "handle-key-only")
    assert "statement" not in document


def test_schema_change_boundary_and_nothing(tmp_path: Path) -> None:
    """Schema changes show their statement; a message may hold several events, or none."""
    rows = open_key({"ts": TSO, "scm": "d", "tbl": "t", "t": 1}, {"ts": TSO, "t": 3})
    found = documents(
        tmp_path,
        line(open_row({"q": "DROP TABLE t"}, t=2)[1], open_row({}, t=2)[0]),
        line(open_value({"u": {"id": {"t": 3, "h": True, "v": 1}}}) + bytes(8), rows),
        protocol="open-protocol",
    )
    assert [(one["offset"], one["kind"], one.get("index")) for one in found] == [
        (0, "schema-change", 0), (1, "insert", 0), (1, "boundary", 1),
    ]  # fmt: skip
    assert found[0]["statement"] == "DROP TABLE t"
    annotation = line(canal("QUERY", {}, data=None, sql="INSERT ...", id=3, _tidb=None))
    [document] = documents(tmp_path, annotation)
    assert (document["kind"], document["variant"]) == ("nothing", "official Canal")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b'{"id":0,"data":[{]}', '{"id":0,"data":[{]} (19 bytes)'),
        (canal("INSERT", {"id": ("int", "1"), "v": ("int", "one")}), '"v":"one"'),
        (b"\xff{", r"\xff{ (2 bytes)"),
        (b"", " (0 bytes)"),
        (open_value({"u": {"id": {"t": 3, "h": True, "v": 1}}}) + b"{x", r'"v":1}}}{x'),
    ],
)
def test_bad(tmp_path: Path, value: bytes, text: str) -> None:
    """A message that cannot be decoded shows the reason, its code, and itself."""
    [document] = documents(tmp_path, line(value), protocol="canal-json")
    assert document["kind"] == "bad"
    assert document["code"] in {"malformed", "bad-value"}
    assert document["reason"]
    assert text in document["message"]


def test_table(tmp_path: Path) -> None:
    """A line for each event; updates show what changed, long values are cut, control characters are escaped; below a
    bad message stands itself."""
    lines = list(
        table_lines(
            seen(
                captured(
                    tmp_path,
                    line(canal("UPDATE", COLUMNS, old=[{"v": "x\n" + "y" * 100}])),
                    line(canal("INSERT", {"a": ("int", "5")}, _tidb=None, id=9, gtid="uuid:7")),
                    line(b'{"id":0,"data":[{]}'),
                )
            )
        )
    )
    assert lines[1] == "-- canal-json, TiCDC with the TiDB extension"
    position = "capture/0/0         update         470611860099956739  2026-11-21T06:16:15.894Z  d.t                   "
    assert lines[2].startswith(position)
    assert lines[2].endswith(rf"key (id=1), v='x\n{'y' * 57}... (104 characters) -> 'it\'s'")
    assert lines[3] == "-- canal-json, official Canal"
    assert lines[4].endswith("no key named, a=5; gtid uuid:7")
    assert lines[5] == "-- canal-json, unknown"
    assert "malformed: the value of the message is not JSON" in lines[6]
    assert lines[7:] == ['    {"id":0,"data":[{]} (19 bytes)']


def test_a_topic_that_tells_no_protocol(tmp_path: Path) -> None:
    """Each message is then asked by itself, and what is of no known protocol is said to be so."""
    key, value = open_row({"u": {"a": {"t": 3, "v": 1}}})
    source = captured(tmp_path, line(canal("INSERT", COLUMNS)), line(value, key), line(b"hello"))
    assert [(one.protocol, one.kind) for one in seen(source)] == [
        ("canal-json", "insert"), ("open-protocol", "insert"), ("unknown", "bad"),
    ]  # fmt: skip


def ckafka(file: str, position: int, **fields: Any) -> bytes:
    message = {
        "BINLOG_NAME": file, "BINLOG_POS": position, "DATABASE": "d", "TABLE": "t", "GLOBAL_ID": None, "TYPE": "I",
        "NEW_VALUES": {"id": "1"}, "OLD_VALUES": None, "TIME": "20160611015029",
    }  # fmt: skip
    return compact(message | fields)


def test_ckafka(tmp_path: Path) -> None:
    """Binlog position and GTID are shown."""
    values = [
        ckafka("mysql-bin.999999", 900), ckafka("mysql-bin.1000000", 4, GLOBAL_ID="uuid:23"),
        ckafka("mysql-bin.1000000", 4), ckafka("mysql-bin.999999", 900),
    ]  # fmt: skip
    found = documents(tmp_path, *map(line, values))
    assert [one["binlog"] for one in found] == [
        "mysql-bin.999999:900",
        *["mysql-bin.1000000:4"] * 2,
        "mysql-bin.999999:900",
    ]
    assert [one.get("gtid") for one in found] == [None, "uuid:23", None, None]
    assert found[0]["after"] == {"id": "'1'"}


def test_which_messages(tmp_path: Path) -> None:
    """--partition, --offset, --limit and --filter choose; a message whose rows are filtered out is left out."""
    source = captured(tmp_path, *(line(canal("INSERT", COLUMNS, table=f"t{at}"), partition=at % 2) for at in range(6)))
    settings = Settings()

    def offsets(**chosen: Any) -> list[int]:
        return [record.position.offset for record in inspect(source, settings, **{"limit": 0, **chosen})]

    assert offsets(partition=1) == [1, 3, 5]
    assert offsets(partition=1, offset=2) == [3, 5]
    assert offsets(offset=4) == [4, 5]
    assert offsets(limit=2) == [0, 1]
    events = [record.event for record in seen(source, filter=("d.t3", "d.t4"))]
    assert [event and row_change(event).table for event in events] == ["t3", "t4"]


@pytest.mark.parametrize("variant", ["canal", "canal-ext", "canal-handle-key-only", "open-lz4", "open-updated-only"])
def test_golden(golden: Path, variant: str) -> None:
    """Genuine captures are readable throughout: every row by column, key and time, no message bad."""
    records = seen(CaptureSource(str(golden / variant / "all_types.jsonl")))
    assert len(records) >= len(read_lines(golden / variant / "all_types.jsonl"))
    for record in records:
        document = record.document()
        assert document["kind"] not in {"bad", "nothing"}
        assert document["time"].startswith("2026-11-21T06:16:")
        assert document["kind"] in {"boundary", "schema-change"} or document.get("after") or document.get("before")
    assert len(list(table_lines(records))) > len(records)


def test_kafka(golden: Path, kafka: Kafka, topic: Callable[..., str]) -> None:
    """A topic is read as it is now, partition by partition, from an offset on."""
    lines = read_lines(golden / "canal-ext" / "keys.jsonl")
    name = topic(4)
    send_lines(kafka.bootstrap_servers, name, lines)
    source = KafkaSource(kafka.bootstrap_servers, [name], {})
    settings = Settings(timezone="UTC")
    expected = sorted((one["partition"], one["offset"]) for one in lines)
    assert [record.position[1:] for record in inspect(source, settings, limit=0)] == expected
    [record] = inspect(source, settings, partition=2, offset=7, limit=1)
    assert record.position == (name, 2, 7)
    with pytest.raises(UsageError, match="no partition 9"):
        list(inspect(source, settings, partition=9, limit=1))


def test_command(golden: Path) -> None:
    """The command prints a table, or one JSON document, and ends with 0 whatever the messages are."""
    path = str(golden / "canal-delete-handle" / "keys.jsonl")
    printed = bridge("inspect", "--input", path, "--limit", "0")
    assert printed.code == 0, printed.err
    assert "cannot be applied" in printed.out
    as_json = bridge("inspect", "--input", path, "--limit", "3", "--json")
    assert [one["offset"] for one in json.loads(as_json.out)] == [0, 1, 0]


def test_what_an_event_filter_leaves_out(tmp_path: Path) -> None:
    """It is shown, and said."""
    settings = Settings.model_validate(
        {"timezone": "UTC", "event_filters": [{"matcher": ["d.t"], "ignore-event": ["delete"]}]}
    )
    source = captured(tmp_path, line(canal("INSERT", COLUMNS)), line(canal("DELETE", COLUMNS)))
    assert [record.document().get("left_out") for record in inspect(source, settings, limit=0)] == [
        None,
        "by an event filter",
    ]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b'{"a": 1, x}', "not JSON: unexpected character, expected a string key: line 1 column 10 (char 9)"),
        (b"\x16\x06\x06\x02\x02d", "it is TiCDC's Simple protocol in Avro"),
        (b"\0\0\0\0\7\x80\2", "with a schema registry (give the registry's URL with --registry"),
        (b'{"a": 1}', "although it is JSON"),
    ],
)
def test_messages_of_no_known_protocol(tmp_path: Path, value: bytes, said: str) -> None:
    """Are named as what they are, with the place at which they stop being JSON, also without --protocol."""
    line = {"partition": 0, "offset": 0, "key": None, "value": base64.b64encode(value).decode()}
    (tmp_path / "capture.jsonl").write_text(json.dumps(line) + "\n")
    ended = bridge("inspect", "--input", str(tmp_path), "--json")
    [record] = json.loads(ended.out) if ended.out.startswith("[") else [json.loads(ended.out)]
    assert said in record["reason"]
