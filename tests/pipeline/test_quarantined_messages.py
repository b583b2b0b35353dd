"""Messages that cannot be decoded are quarantined, each exactly once, and the stream goes on."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from bridge.errors import BadMessageError
from bridge.filters.routes import Routes, RowRules
from bridge.filters.table_filter import TableFilter
from bridge.mysql.connection.session import Session
from tests.pipeline.test_bad_messages import PARTITIONS, capture, ids
from tests.support.captures import row, watermark
from tests.support.command import bridge
from tests.support.pipelines import opened, run_all, session_after

BROKEN_DDL = b'{"isDdl":true,"database":"m","table":"t","type":"ALTER","sql":7'


session = session_after("CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY, at TIMESTAMP NULL)")


def held(session: Session) -> list[tuple[Any, ...]]:
    """Partition, offset, code and value of what was quarantined."""
    return session.rows("SELECT `partition`, `offset`, code, message_value FROM _bridge.quarantine ORDER BY 1, 2")


def applied(session: Session) -> int:
    return int(session.value("SELECT applied_ts FROM _bridge.progress"))


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_everything_else_is_applied(target: str, session: Session, tmp_path: Path, batch: int) -> None:
    """Bytes, position, code and reason are in the quarantine, everything around is in the target; a second run finds
    everything done."""
    events = capture(
        tmp_path,
        [b"{", row(10, 1), watermark(11), row(11, 2), b"\xff\x00", row(12, 3), watermark(20)],
        [row(10, 4), row(11, 5), b"", watermark(20), row(21, 6), watermark(30)],
    )
    for _ in range(2):
        pipeline = run_all(target, events, batch=batch, quarantine=True)
        assert ids(session) == [1, 2, 3, 4, 5]
        assert held(session) == [
            (0, 0, "malformed", b"{"), (0, 4, "malformed", b"\xff\x00"), (1, 2, "malformed", b"")
        ]  # fmt: skip
    assert pipeline.applier.counts.quarantined == 0
    assert session.rows("SELECT DISTINCT name, topic, event, state, protocol, message_key FROM _bridge.quarantine") == [
        ("bridge", "cdc", -1, "held", "canal-json", None)
    ]
    assert "JSON" in session.value("SELECT reason FROM _bridge.quarantine LIMIT 1")


def test_written_by_the_transaction_that_goes_beyond_it(target: str, session: Session, tmp_path: Path) -> None:
    """A message is quarantined together with the first rows that it may belong to: neither before, nor after."""
    events = capture(tmp_path, [watermark(11), b"{", row(15, 1), watermark(20)], [watermark(11), watermark(20)])
    with opened(target, PARTITIONS, quarantine=True) as pipeline:
        pipeline.take(events.slice(0, 3))
        assert (applied(session), held(session)) == (0, [])
        pipeline.take(events.slice(4, 1))
        pipeline.applier.finish()
        assert (applied(session), held(session)) == (11, [])
        pipeline.take(events.slice(3, 1))
        assert pipeline.applier.counts.quarantined == 0
        pipeline.take(events.slice(5, 1))
        assert (applied(session), len(held(session))) == (20, 1)
        assert pipeline.applier.counts.quarantined == 1


def test_behind_the_last_boundary_nothing_is_quarantined(target: str, session: Session, tmp_path: Path) -> None:
    """What may belong to transactions that are not complete waits with them, and is read again."""
    messages: list[list[dict[str, Any] | bytes]] = [[row(10, 1), watermark(20), b"{"], [watermark(20)]]
    run_all(target, capture(tmp_path, *messages), quarantine=True)
    assert held(session) == []
    [positions] = session.rows("SELECT JSON_EXTRACT(positions, '$.cdc.\"0\"[0]') FROM _bridge.progress")
    assert int(positions[0]) <= 2
    messages[0].append(watermark(30))
    messages[1].append(watermark(30))
    run_all(target, capture(tmp_path, *messages), quarantine=True)
    assert len(held(session)) == 1


def test_a_schema_change_is_never_quarantined(target: str, session: Session, tmp_path: Path) -> None:
    """A message that was a schema change stops the bridge where it lies, whatever the setting."""
    events = capture(
        tmp_path, [b"{", row(10, 1), watermark(11), BROKEN_DDL, b"[", row(12, 2), watermark(20)], [watermark(20)]
    )
    for _ in range(2):
        with pytest.raises(BadMessageError, match="schema change cannot be decoded") as raised:
            run_all(target, events, quarantine=True)
        assert raised.value.where == "cdc/0/3"
        assert "bridge ddl skip 1" in raised.value.fix
        assert ids(session) == [1]
        assert [entry[:2] for entry in held(session)] == [(0, 0)]


def test_a_schema_change_that_somebody_has_seen_to(target: str, session: Session, tmp_path: Path) -> None:
    """Put aside by its position, with the setting `stop` too; another one still stops the bridge."""
    events = capture(
        tmp_path, [row(10, 1), BROKEN_DDL, row(12, 2), watermark(20), BROKEN_DDL, watermark(30)], [watermark(30)]
    )
    for quarantine in (False, True):
        with pytest.raises(BadMessageError, match="schema change cannot be decoded") as raised:
            run_all(target, events, quarantine=quarantine, released=["cdc/0/1"])
        assert raised.value.where == "cdc/0/4"
        assert ids(session) == [1, 2]
        assert [entry[:2] for entry in held(session)] == [(0, 1)]


def test_from_stop_to_quarantine(target: str, session: Session, tmp_path: Path) -> None:
    """A bridge that stopped at a bad message goes on with a quarantine, and nothing is lost or doubled."""
    events = capture(tmp_path, [row(10, 1), watermark(11), b"{", row(12, 2), watermark(20)], [watermark(20)])
    with pytest.raises(BadMessageError):
        run_all(target, events)
    run_all(target, events, quarantine=True)
    assert ids(session) == [1, 2]
    assert len(held(session)) == 1


def test_from_quarantine_to_stop(target: str, session: Session, tmp_path: Path) -> None:
    """A message that is in the quarantine stops no later start, although it is read again."""
    messages: list[list[dict[str, Any] | bytes]] = [[watermark(11), b"{", row(25, 1), watermark(20)], [watermark(20)]]
    run_all(target, capture(tmp_path, *messages), quarantine=True)
    assert len(held(session)) == 1
    messages[0].append(watermark(30))
    messages[1].append(watermark(30))
    run_all(target, capture(tmp_path, *messages))
    assert ids(session) == [1]


def test_until_below_a_bad_message(target: str, session: Session, tmp_path: Path) -> None:
    """A message beyond --until is not quarantined before the pipeline goes there."""
    events = capture(tmp_path, [row(10, 1), watermark(20), b"{", watermark(30)], [watermark(30)])
    run_all(target, events, until=15, quarantine=True)
    assert (ids(session), held(session)) == ([1], [])
    run_all(target, events, until=25, quarantine=True)
    assert len(held(session)) == 1
    run_all(target, events, quarantine=True)
    assert len(held(session)) == 1


def test_a_message_larger_than_a_packet(target: str, session: Session, tmp_path: Path) -> None:
    """What max_allowed_packet leaves no room for is cut, and the number of missing bytes is kept."""
    before = session.value("SELECT @@global.max_allowed_packet")
    large = b"{" + bytes(range(1, 256)) * 6000
    events = capture(tmp_path, [large, watermark(20)], [watermark(20)])
    session.execute("SET GLOBAL max_allowed_packet = 1048576")
    try:
        run_all(target, events, quarantine=True)
        [(value, cut)] = session.rows("SELECT message_value, cut_bytes FROM _bridge.quarantine")
    finally:
        session.execute(f"SET GLOBAL max_allowed_packet = {before}")
    assert large.startswith(value)
    assert len(value) > 300_000
    assert len(value) + cut == len(large)


def test_bytes_come_through_whole(target: str, session: Session, tmp_path: Path) -> None:
    """Key and value are stored as they came, an absent one as NULL."""
    value = bytes(range(256)) * 300
    events = capture(tmp_path, [value, watermark(20)], [watermark(20)])
    at = events.schema.get_field_index("before")
    events = events.set_column(at, events.schema.field(at), [[base64.b64encode(b"k").decode(), None, None]])
    run_all(target, events, quarantine=True)
    assert session.rows("SELECT message_key, message_value, cut_bytes FROM _bridge.quarantine") == [(b"k", value, 0)]


def test_a_wider_filter_sets_nothing_aside_again(target: str, session: Session, tmp_path: Path) -> None:
    """What is read again from below the applied ts, when a table comes to the filter, was passed before: it is neither
    quarantined twice nor does it stop the bridge.  What lies above is quarantined once, and rows of the table come."""
    session.execute("CREATE TABLE m.u (id INT PRIMARY KEY)")
    other = {**row(25, 7), "table": "u"}
    messages: list[list[dict[str, Any] | bytes]] = [
        [watermark(11), b"{", row(15, 1), watermark(20), other, b"[", watermark(30)],
        [watermark(20)],
    ]
    narrow, wide = (TableFilter(rules) for rules in (("m.t",), ("m.*",)))

    def go(tables: TableFilter, *, quarantine: bool) -> None:
        events = capture(tmp_path, *messages)
        if tables is narrow:
            events = events.filter(pc.not_equal(pc.fill_null(events["table"], ""), "u"))
        rules = RowRules(routes=Routes(tables=tables))
        run_all(target, events, quarantine=quarantine, tables=tables, rules=rules)

    go(narrow, quarantine=True)
    go(wide, quarantine=True)
    assert [entry[1] for entry in held(session)] == [1]
    messages[1].append(watermark(30))
    go(wide, quarantine=True)
    go(TableFilter(("m.t", "m.u")), quarantine=False)
    assert [entry[1] for entry in held(session)] == [1, 5]
    assert session.rows("SELECT id FROM m.u") == [(7,)]
    assert ids(session) == [1]


WAYS = [("skip", [], False), ("done", [], False), ("replace", ["ALTER TABLE m.t ADD COLUMN c INT"], True)]


@pytest.mark.parametrize(("word", "more", "runs"), WAYS, ids=[way[0] for way in WAYS])
def test_the_way_past_a_schema_change_that_cannot_be_read(
    target: str, session: Session, tmp_path: Path, word: str, more: list[str], runs: bool
) -> None:
    """It is in the list of open ones, with its message.  What replaces it runs once, before the rows behind it.  Its
    copies in other partitions count as the same one; another one in its partition does not."""
    events = capture(
        tmp_path,
        [row(10, 1), watermark(11), BROKEN_DDL, row(12, 2), watermark(20), BROKEN_DDL, watermark(30)],
        [watermark(11), BROKEN_DDL, watermark(30)],
    )
    for number in range(2):
        with pytest.raises(BadMessageError, match="schema change cannot be decoded") as raised:
            run_all(target, events)
        (waiting,) = json.loads(bridge("ddl", "list", "--open", "--json", "--target", target).out)
        assert f"bridge ddl {word} {waiting['id']}" in raised.value.fix
        assert BROKEN_DDL.decode() in waiting["statement"]
        assert bridge("ddl", "approve", waiting["id"], "--target", target).code == 2
        given = more if number == 0 else more and ["ALTER TABLE m.t ADD COLUMN d INT"]
        said = bridge("ddl", word, waiting["id"], *given, "--target", target)
        assert said.code == 0, said.err
    run_all(target, events)
    assert ids(session) == [1, 2]
    columns = [name for name, *_ in session.rows("SHOW COLUMNS FROM m.t")]
    assert columns == ["id", "at", *(["c", "d"] if runs else [])]
    assert [code for (code,) in session.rows("SELECT code FROM _bridge.quarantine")] == ["schema-change"] * 3


def by_time(ms: int, id_: int) -> dict[str, Any]:
    """An INSERT of official Canal, which has an event time only."""
    message = row(1, id_)
    del message["_tidb"]
    return message | {"es": ms}


def test_past_a_schema_change_that_cannot_be_read_without_boundaries(
    target: str, session: Session, tmp_path: Path
) -> None:
    """Once it is decided, rows of other partitions are no longer held back for it."""
    now = 1_700_000_000_000
    events = capture(tmp_path, [by_time(now, 1), BROKEN_DDL, by_time(now + 2_000, 2)], [by_time(now + 9_000, 3)])
    with pytest.raises(BadMessageError):
        run_all(target, events, boundary_seconds=0)
    assert ids(session) == [1]
    (waiting,) = json.loads(bridge("ddl", "list", "--open", "--json", "--target", target).out)
    more = "ALTER TABLE m.t ADD COLUMN c INT"
    assert bridge("ddl", "replace", waiting["id"], more, "--target", target).code == 0
    run_all(target, events, boundary_seconds=0)
    assert ids(session) == [1, 2, 3]
    assert [name for name, *_ in session.rows("SHOW COLUMNS FROM m.t")] == ["id", "at", "c"]
