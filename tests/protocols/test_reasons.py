"""Codes of bad messages, and rows that TiCDC has cut to their key."""

from __future__ import annotations

import base64
import itertools
from typing import Any

import pytest

from bridge.events import Code, Kind
from bridge.protocols import DecodeOptions, decode_message, make_decoder
from tests.support.wire import ROW_KEY, TSO, as_ckafka, canal, compact, names_of, open_key, open_row, open_value, reason

ID = {"id": ("int", "1")}
OPEN_ID = {"id": {"t": 3, "h": True, "f": 11, "v": 1}}
CUT = {"commitTs": TSO, "onlyHandleKey": True}
CLAIM = {"commitTs": TSO, "onlyHandleKey": True, "claimCheckLocation": "s3://x/y.json"}
DDL = {"database": "d", "table": "t", "isDdl": True, "type": "CREATE", "sql": ""}


def decoded(protocol: str, key: bytes | None, value: bytes | None, *, cut_rows: bool = False) -> list[Any]:
    options = DecodeOptions("Europe/Berlin" if cut_rows else None, cut_rows=cut_rows)
    return decode_message(make_decoder(protocol, options), key, value)


@pytest.mark.parametrize(
    ("protocol", "message", "code"),
    [
        ("canal-json", (b"", b"{"), Code.MALFORMED),
        ("canal-json", (None, b""), Code.MALFORMED),
        ("canal-json", (b"", canal("INSERT", {"id": ("blurb", "1")})), Code.UNKNOWN_TYPE),
        ("canal-json", (b"", canal("UPSERT", ID)), Code.UNKNOWN_TYPE),
        ("canal-json", (b"", canal("INSERT", {"id": ("int", "one")})), Code.BAD_VALUE),
        ("canal-json", (b"", canal("INSERT", {"id": ("int", 1)})), Code.BAD_VALUE),
        ("canal-json", (b"", canal("INSERT", {"a": ("timestamp", "2024-01-01 00:00:00")})), Code.NO_TIMEZONE),
        ("canal-json", (b"", canal("INSERT", ID, _tidb=CUT)), Code.HANDLE_KEY_ONLY),
        ("canal-json", (b"", canal("UPDATE", ID, old=[{"id": "1"}], _tidb=CUT)), Code.HANDLE_KEY_ONLY),
        ("canal-json", (b"", canal("INSERT", ID, _tidb=CLAIM)), Code.CLAIM_CHECK),
        ("canal-json", (b"", canal("CREATE", ID, **DDL)), Code.SCHEMA_CHANGE),
        ("canal-json", (b"", canal("CREATE", ID, **DDL)[:-9]), Code.SCHEMA_CHANGE),
        ("canal-json", (b"", canal("CREATE", ID, **(DDL | {"sql": "DROP TABLE t", "_tidb": 5}))), Code.SCHEMA_CHANGE),
        ("canal-json", (b"", canal("ALTER", ID, **(DDL | {"type": "ALTER", "isDdl": "true"}))), Code.SCHEMA_CHANGE),
        ("open-protocol", (b"", b""), Code.MALFORMED),
        ("open-protocol", open_row({"u": {"a": {"t": 77, "v": 1}}}), Code.UNKNOWN_TYPE),
        ("open-protocol", open_row({"u": OPEN_ID}, t=9), Code.UNKNOWN_TYPE),
        ("open-protocol", open_row({"u": {"id": {"t": 3, "f": 11, "v": "1"}}}), Code.BAD_VALUE),
        ("open-protocol", open_row({"u": {"a": {"t": 7, "v": "2024-01-01 00:00:00"}}}), Code.NO_TIMEZONE),
        ("open-protocol", open_row({"u": OPEN_ID}, ohk=True), Code.HANDLE_KEY_ONLY),
        ("open-protocol", open_row({"u": OPEN_ID}, ccl="s3://x/y"), Code.CLAIM_CHECK),
        ("open-protocol", open_row({"q": ""}, t=2), Code.SCHEMA_CHANGE),
        ("open-protocol", open_row({"q": "DROP TABLE t"}, t=2, ts="now"), Code.SCHEMA_CHANGE),
        ("open-protocol", (open_row({}, t=2)[0], open_row({"q": "DROP TABLE t"})[1][:-3]), Code.SCHEMA_CHANGE),
        ("open-protocol", (open_row({}, t=2)[0], open_row({"q": "DROP TABLE t"})[1] * 2), Code.SCHEMA_CHANGE),
    ],
)
def test_codes(protocol: str, message: tuple[bytes | None, bytes | None], code: Code) -> None:
    """A bad message says why in one of a few words, and holds the bytes it came as."""
    [event] = decoded(protocol, *message)
    assert (event.kind, event.code) == (Kind.BAD, code)
    held = [None if part is None else base64.b64decode(part) for part in (event.message_key, event.message_value)]
    assert held == list(message)


ROW_OF = {
    "canal-json": (b"", canal("INSERT", ID)),
    "ckafka": (b"", as_ckafka(canal("INSERT", ID))),
    "debezium": (b"{}", compact({"payload": {"source": {"connector": "TiCDC"}, "op": "c"}})),
    "open-protocol": open_row({"u": OPEN_ID}),
}
SCHEMA_CHANGE_OF = {
    "canal-json": (None, canal("CREATE", {}, **(DDL | {"sql": "DROP TABLE t"}))),
    "debezium": (b"{}", compact({"payload": {"source": {"connector": "mysql"}, "ddl": "DROP TABLE t"}})),
    "open-protocol": open_row({"q": "DROP TABLE t"}, t=2),
}


@pytest.mark.parametrize(
    ("mine", "other"), [pair for pair in itertools.permutations(ROW_OF, 2) if pair != ("ckafka", "canal-json")]
)
def test_another_protocol(mine: str, other: str) -> None:
    """A message of another protocol is refused as such, with the fix; a schema change of one is never quarantined.
    (ckafka's schema changes are Canal's, so its decoder reads both.)"""
    [event] = decoded(mine, *ROW_OF[other])
    assert (event.kind, event.code) == (Kind.BAD, Code.OTHER_PROTOCOL)
    assert reason(event).startswith(f"it is a message of {other} (")
    assert f"here {mine}: " in reason(event)
    assert reason(event).endswith(f"start with --protocol {other}")
    if other in SCHEMA_CHANGE_OF:
        [event] = decoded(mine, *SCHEMA_CHANGE_OF[other])
        assert (event.kind, event.code) == (Kind.BAD, Code.SCHEMA_CHANGE)


def test_a_lost_hour() -> None:
    """A local time that stands for two moments is a value that the format has lost."""
    row = canal("INSERT", {"a": ("timestamp", "2024-10-27 02:30:00")})
    [event] = decoded("canal-json", b"", row, cut_rows=True)
    assert event.code == Code.LOST_VALUE


@pytest.mark.parametrize(
    ("protocol", "message", "marks"),
    [
        ("canal-json", (b"", canal("INSERT", ID, _tidb=CUT)), ["handle-key-only"]),
        ("canal-json", (b"", canal("UPDATE", ID, old=[{"id": "2"}], _tidb=CLAIM)), ["claim-check"]),
        ("canal-json", (b"", canal("INSERT", ID)), [None]),
        (
            "open-protocol",
            (open_key(ROW_KEY, ROW_KEY | {"ohk": True}), open_value({"u": OPEN_ID}, {"u": OPEN_ID})),
            [None, "handle-key-only"],
        ),
        ("open-protocol", open_row({"u": OPEN_ID, "p": OPEN_ID}, ccl="s3://x/y"), ["claim-check"]),
    ],
)
def test_cut_rows_on_request(protocol: str, message: tuple[bytes, bytes], marks: list[str | None]) -> None:
    """Where cut rows are wanted, they are row changes of their key's columns, marked as such."""
    events = decoded(protocol, *message, cut_rows=True)
    assert [event.cut for event in events] == marks
    assert all(event.kind <= Kind.UPDATE and names_of(event) == "id" == event.key for event in events)


@pytest.mark.parametrize("cut_rows", [False, True])
@pytest.mark.parametrize(
    ("protocol", "message"),
    [("canal-json", (b"", canal("DELETE", ID, _tidb=CUT))), ("open-protocol", open_row({"d": OPEN_ID}, ohk=True))],
)
def test_a_delete_needs_its_key_only(protocol: str, message: tuple[bytes, bytes], cut_rows: bool) -> None:
    """A delete cut to its key says all that is needed."""
    [event] = decoded(protocol, *message, cut_rows=cut_rows)
    assert (event.kind, event.cut) == (Kind.DELETE, None)
