"""Rows that decode but that the target refuses: only they are quarantined, the rest of their transaction is applied."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from bridge.errors import ApplyError, RefusedRowsError
from bridge.events import SEP, Event, Kind, RowChange, Undecodable
from bridge.mysql.connection.session import Session
from bridge.mysql.server_errors import TooLargeError
from bridge.protocols.values.row_image import with_forms
from tests.support.command import bridge
from tests.support.pipelines import admin, drop_all, opened, run_all, session_after
from tests.support.sweeps import die_everywhere, state
from tests.support.upstreams import boundary, events_table, in_one_partition, row_change
from tests.support.victims import Victims

SETUP = (
    "CREATE DATABASE m",
    "CREATE TABLE m.t (id INT PRIMARY KEY, v VARCHAR(5) NOT NULL, n TINYINT, CHECK (n <> 13))",
    "CREATE TABLE m.k (v VARCHAR(5))",
    "CREATE TABLE m.u (id INT PRIMARY KEY, v VARCHAR(9) COLLATE utf8mb4_general_ci UNIQUE)",
)


session = session_after(*SETUP)


def make_anew(session: Session) -> None:
    drop_all(session)
    for statement in SETUP:
        session.execute(statement)


def t(ts: int, before: Sequence[object] | None, after: Sequence[object] | None) -> RowChange:
    return row_change(ts, "t", ["id", "v", "n"], ["id"], before=before, after=after)


def u(ts: int, before: Sequence[object] | None, after: Sequence[object] | None) -> RowChange:
    return row_change(ts, "u", ["id", "v"], ["id"], before=before, after=after)


def k(ts: int, before: str | None, after: str | None) -> RowChange:
    images = (None if image is None else [image] for image in (before, after))
    return row_change(ts, "k", ["v"], [], before=next(images), after=next(images))


def run(url: str, changes: Sequence[Event], **options: Any) -> pa.Table:
    events = in_one_partition([*changes, boundary(100)])
    run_all(url, events, **{"quarantine": True, **options})
    return events


def rows(session: Session, table: str) -> list[tuple[Any, ...]]:
    return sorted(session.rows(f"SELECT * FROM m.{table}"), key=repr)


def held(session: Session) -> list[tuple[Any, ...]]:
    """Offset, code, kind, before and after of what was quarantined."""
    found = session.rows("SELECT `offset`, code, row_change FROM _bridge.quarantine ORDER BY `offset`")
    changes = [(offset, code, json.loads(change)) for offset, code, change in found]
    return [(offset, code, change["kind"], change["before"], change["after"]) for offset, code, change in changes]


REFUSED = {
    "too long": t(10, None, [2, "toolong", 1]),
    "out of range": t(10, None, [2, "b", 200]),
    "NULL": t(10, None, [2, None, 1]),
    "not a number": t(10, None, [2, "b", "x"]),
    "CHECK": t(10, None, [2, "b", 13]),
}


@pytest.mark.parametrize("why", REFUSED)
def test_only_the_refused_row_is_quarantined(target: str, session: Session, why: str) -> None:
    """The others of its transaction are applied; its images, position and the server's words are kept."""
    run(target, [t(10, None, [1, "a", 1]), REFUSED[why], t(10, None, [3, "c", 3]), k(10, None, "k")])
    assert (rows(session, "t"), rows(session, "k")) == ([(1, "a", 1), (3, "c", 3)], [("k",)])
    [(offset, code, kind, before, after)] = held(session)
    assert (offset, code, kind, before) == (1, "target-refused", "insert", None)
    assert SEP.join(after) == REFUSED[why].after
    assert session.rows("SELECT name, topic, `partition`, event, commit_ts, state FROM _bridge.quarantine") == [
        ("bridge", "cdc", 0, 0, 10, "held")
    ]
    assert "m.t" in session.value("SELECT reason FROM _bridge.quarantine")


def test_without_a_quarantine_they_stop_the_bridge(target: str, session: Session) -> None:
    """Nothing of the transaction is written."""
    with pytest.raises(RefusedRowsError, match="1406"):
        run(target, [t(10, None, [1, "a", 1]), REFUSED["too long"]], quarantine=False)
    assert rows(session, "t") == []


def test_many_refused_rows_among_many(target: str, session: Session) -> None:
    """Each is found, in several tables, and counted; a second run has nothing to do."""
    changes = [t(10, None, [i, "toolong" if i % 50 == 0 else "v", i % 100]) for i in range(300) if i % 100 != 13]
    changes += [k(10, None, "toolong" if i in {3, 4} else "k") for i in range(10)]
    events = in_one_partition([*changes, boundary(100)])
    with opened(target, [("cdc", 0)], quarantine=True) as pipeline:
        pipeline.take(events)
        assert pipeline.applier.counts.quarantined == 8
        assert pipeline.applier.counts.rows == len(changes) - 8
    assert len(rows(session, "t")) == 297 - 6
    assert rows(session, "k") == [("k",)] * 8
    before = held(session)
    assert run_all(target, events, quarantine=True).applier.counts.quarantined == 0
    assert held(session) == before


def test_a_later_good_image_is_applied(target: str, session: Session) -> None:
    """Of a key's changes in a window the last image counts: a refused one that is overwritten is no matter.  Beside a
    row that is refused, it goes to the quarantine, too."""
    changes = [t(10, None, [1, "toolong", 1]), t(11, [1, "toolong", 1], [1, "ok", 1])]
    run(target, changes, name="first")
    assert (rows(session, "t"), held(session)) == ([(1, "ok", 1)], [])
    run(target, [*changes, t(12, None, [2, "b", 200])], name="second")
    assert rows(session, "t") == [(1, "ok", 1)]
    assert [entry[0] for entry in held(session)] == [0, 2]


def test_the_last_image_that_fits_is_applied(target: str, session: Session) -> None:
    """Of several changes of a key in one transaction only those at its end go."""
    run(target, [t(10, None, [1, "a", 1]), t(10, [1, "a", 1], [1, "b", 1]), t(10, [1, "b", 1], [1, "toolong", 1])])
    assert rows(session, "t") == [(1, "b", 1)]
    assert [entry[0] for entry in held(session)] == [2]


def test_the_image_before_a_refused_one_stays(target: str, session: Session) -> None:
    """A refused update leaves the row as it was; a later whole image of the key makes it right."""
    run(target, [t(10, None, [1, "a", 1]), t(20, [1, "a", 1], [1, "toolong", 1])], rows_per_transaction=1)
    assert rows(session, "t") == [(1, "a", 1)]
    assert [entry[:3] for entry in held(session)] == [(1, "target-refused", "update")]


def test_later_changes_of_a_refused_row(target: str, session: Session) -> None:
    """An update and a delete of a row that was quarantined end as upstream."""
    changes = [
        t(10, None, [1, "toolong", 1]), t(10, None, [2, "toolong", 1]),
        t(20, [1, "toolong", 1], [1, "ok", 1]), t(20, [2, "toolong", 1], None),
    ]  # fmt: skip
    run(target, changes, rows_per_transaction=2)
    assert rows(session, "t") == [(1, "ok", 1)]
    assert len(held(session)) == 2


def test_a_refused_change_of_key(target: str, session: Session) -> None:
    """The row goes at its old key; only its coming at the new one is quarantined."""
    run(target, [t(10, None, [1, "a", 1]), t(20, [1, "a", 1], [2, "toolong", 1])], rows_per_transaction=1)
    assert rows(session, "t") == []
    [(offset, _, kind, before, after)] = held(session)
    assert (offset, kind, before, after) == (1, "insert", None, ["2", "'toolong'", "1"])


def test_tables_without_a_key(target: str, session: Session) -> None:
    """Each copy of a refused row is quarantined, and changes of rows that therefore are not there as well."""
    changes = [
        k(10, None, "a"), k(10, None, "toolong"), k(10, None, "toolong"), k(20, "toolong", "b"), k(20, "a", "c"),
        k(20, "nil", None),
    ]  # fmt: skip
    run(target, changes, rows_per_transaction=3)
    assert rows(session, "k") == [("b",), ("c",)]
    assert [entry[:3] for entry in held(session)] == [
        (1, "target-refused", "insert"), (2, "target-refused", "insert"),
        (3, "row-not-found", "delete"), (5, "row-not-found", "delete"),
    ]  # fmt: skip


def test_rows_that_the_target_holds_for_one(target: str, session: Session) -> None:
    """Where a unique key of the target is stricter than upstream, one of two rows is quarantined, not both."""
    run(target, [u(10, None, [1, "a"]), u(10, None, [2, "b"]), u(10, None, [3, "A"]), u(10, None, [4, "c"])])
    assert [row[0] for row in rows(session, "u")] == [1, 2, 4]
    assert [entry[:2] for entry in held(session)] == [(2, "target-refused")]


@pytest.mark.parametrize("refused", [["spare", 2, "toolong"], ["a key too long", 2, "c"]])
def test_a_key_that_goes_in_one_spelling_and_comes_in_another(
    target: str, session: Session, refused: list[object]
) -> None:
    """Is one key where rows are set aside, too: beside a row that is refused, be it for its key, both its changes are
    taken."""
    columns = "k VARCHAR(9) COLLATE utf8mb4_general_ci, n INT, v VARCHAR(3), PRIMARY KEY (k(3)), UNIQUE (n)"
    session.execute(f"CREATE TABLE m.s ({columns})")
    session.execute("INSERT INTO m.s VALUES ('abc-1', 1, 'a')")

    def s(ts: int, before: Sequence[object] | None, after: Sequence[object] | None) -> RowChange:
        return row_change(ts, "s", ["k", "n", "v"], ["k"], before=before, after=after)

    run(target, [s(10, ["abc-1", 1, "a"], None), s(10, None, ["ABC-2", 3, "b"]), s(11, None, refused)])
    assert rows(session, "s") == [("ABC-2", 3, "b")]
    assert [entry[0] for entry in held(session)] == [2]


def test_what_no_single_row_is_to_blame_for_stops(target: str, session: Session) -> None:
    """A column that the target lacks is no reason to put every row aside."""
    change = row_change(10, "t", ["id", "v", "n", "x"], ["id"], after=[1, "a", 1, 1])
    with pytest.raises(ApplyError, match="lacks the column x"):
        run(target, [change])
    assert held(session) == []


def test_crash_at_every_step(target: str, victims: Victims) -> None:
    """Wherever a process dies around a refused row, the next one ends with each change applied or quarantined, once."""
    changes = [
        t(10, None, [1, "a", 1]), t(10, None, [2, "toolong", 1]), k(10, None, "k"), k(10, None, "toolong"),
        Undecodable("malformed", "broken"), boundary(20), t(20, [1, "a", 1], [3, "b", 200]),
        boundary(30),
    ]  # fmt: skip
    events = events_table((0, offset, change) for offset, change in enumerate(changes))

    def state_and_entries(session: Session) -> tuple[Any, ...]:
        entries = session.rows("SELECT `offset`, event, code, row_change FROM _bridge.quarantine ORDER BY 1, 2")
        return *state(session), entries

    died_at = die_everywhere(
        target, victims, events, make_anew, state=state_and_entries, quarantine=True, rows_per_transaction=2
    )
    assert {"begun", "advanced", "statement", "before commit", "committed"} <= died_at
    with admin(target) as session:
        offsets = session.rows("SELECT `offset` FROM _bridge.quarantine ORDER BY 1")
        assert offsets == [(1,), (3,), (4,), (6,)]


def test_raw_values(target: str, session: Session) -> None:
    """Of a format without types: a value that its column cannot have had is quarantined as it came, one that the target
    refuses as it would be written."""
    session.execute("CREATE TABLE m.r (id INT PRIMARY KEY, d DECIMAL(4,1))")
    raw = with_forms("id\0d", ["json:double,adaptive_time_microseconds,base64"])
    images = ["1\x001.5e0", "2\x00'x'", "3\x0012345.5e0", "4\x002.0e0"]
    changes = [RowChange(Kind.INSERT, 10, 0, "m", "r", raw, "id", None, image) for image in images]
    run(target, changes)
    assert [id_ for id_, _ in session.rows("SELECT id, d FROM m.r")] == [1, 4]
    assert [(offset, code, after) for offset, code, _, _, after in held(session)] == [
        (1, "bad-value", ["2", "'x'"]), (2, "target-refused", ["3", "12345.5"])
    ]  # fmt: skip


def test_a_raw_value_is_retried_as_what_it_is(target: str, session: Session) -> None:
    """What was quarantined as it came keeps the form of its values, so that a retry can make them exact."""
    session.execute("CREATE TABLE m.r (id INT PRIMARY KEY, d DECIMAL(4,1), day DATE)")
    raw = with_forms("id\0d\0day", ["json:double,adaptive_time_microseconds,base64"])
    run(target, [RowChange(Kind.INSERT, 10, 0, "m", "r", raw, "id", None, "2\0'x'\x0019000")])
    session.execute("ALTER TABLE m.r MODIFY d VARCHAR(9)")
    assert bridge("quarantine", "retry", "1", "--target", target).code == 0
    assert session.rows("SELECT id, d, CAST(day AS CHAR) FROM m.r") == [(2, "x", "2022-01-08")]


# --- too large


LARGE = ("CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY, v LONGTEXT)")


@pytest.fixture
def small_packets(target: str) -> Iterator[Session]:
    """A session on a server that reads statements of up to 2 MiB."""
    with admin(target) as session:
        for statement in LARGE:
            session.execute(statement)
        session.execute("SET GLOBAL max_allowed_packet = 2097152")
        session.execute("SET GLOBAL local_infile = OFF")
        yield session
        session.execute("SET GLOBAL max_allowed_packet = 67108864")
        session.execute("SET GLOBAL local_infile = ON")


def with_a_large_row(size: int) -> pa.Table:
    """Three transactions, whose middle one holds a row of so many characters."""
    texts = ["a", "x" * size, "c"]
    rows = [row_change(10 + n, "t", ["id", "v"], ["id"], after=[n, text]) for n, text in enumerate(texts)]
    return in_one_partition([*rows, boundary(20)])


def test_a_row_too_large_for_a_packet_is_known_beforehand(target: str, small_packets: Session) -> None:
    """It is no lost connection to be tried again: key, position, size and the setting are named at once."""
    with opened(target, [("cdc", 0)]) as pipeline, pytest.raises(RefusedRowsError) as raised:
        pipeline.take(with_a_large_row(3 << 20))
    assert pipeline.writer.end.retries == 0
    for words in ("a row of m.t is too large", "a statement of 3,145,", "max_allowed_packet is 2,097,152"):
        assert words in raised.value.what
    assert "cdc/0/1, commit ts 11" in raised.value.where
    assert "key (id=1)" in raised.value.where
    assert "raise max_allowed_packet" in raised.value.fix
    assert small_packets.rows("SELECT COUNT(*) FROM m.t") == [(0,)]


@pytest.mark.parametrize("writers", [0, 2])
def test_a_row_too_large_for_a_packet_is_quarantined(target: str, small_packets: Session, writers: int) -> None:
    """Alone, where told so; one that just fits is written, whatever the characters."""
    pipeline = run_all(target, with_a_large_row(3 << 20), quarantine=True, writers=writers)
    assert pipeline.writer.end.retries == 0
    assert small_packets.rows("SELECT id FROM m.t ORDER BY id") == [(0,), (2,)]
    ((reason,),) = small_packets.rows("SELECT reason FROM _bridge.quarantine")
    assert "max_allowed_packet is 2,097,152" in reason
    run_all(target, with_a_large_row((2 << 20) - 200), name="fits", quarantine=True)
    assert small_packets.rows("SELECT COUNT(*) FROM m.t") == [(3,)]


@pytest.mark.parametrize("writers", [0, 2])
@pytest.mark.parametrize("room", range(40, 200, 16))
def test_a_row_that_nearly_fits_a_packet_is_quarantined_or_written(
    target: str, small_packets: Session, writers: int, room: int
) -> None:
    """Never does it stop the bridge: the search for it, whose statements are shorter, took it, and no row was found."""
    run_all(target, with_a_large_row((2 << 20) - room), quarantine=True, writers=writers)
    written = small_packets.rows("SELECT id FROM m.t ORDER BY id")
    held = small_packets.rows("SELECT `offset` FROM _bridge.quarantine")
    assert (written, held) in (([(0,), (1,), (2,)], []), ([(0,), (2,)], [(1,)]))


def test_a_load_takes_rows_of_any_size(target: str, small_packets: Session) -> None:
    """It goes in packets of its own."""
    small_packets.execute("SET GLOBAL local_infile = ON")
    run_all(target, with_a_large_row(3 << 20))
    assert small_packets.rows("SELECT id, LENGTH(v), LENGTH(TRIM(LEADING 'x' FROM v)) FROM m.t ORDER BY id") == [
        (0, 1, 1),
        (1, 3 << 20, 0),
        (2, 1, 1),
    ]


@pytest.mark.usefixtures("session")
def test_a_transaction_too_large_for_the_target(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is said to be so, with its size and the limit that it has met, and not tried again."""

    def refuse(_: Session) -> None:
        raise TooLargeError(8004, "Transaction is too large, size: 9")

    def trace(step: str) -> None:
        if step == "before commit":
            monkeypatch.setattr(Session, "commit", refuse)

    events = in_one_partition([row_change(10, "t", ["id", "v", "n"], ["id"], after=[1, "a", 1]), boundary(11)])
    with opened(target, [("cdc", 0)], trace=trace) as pipeline, pytest.raises(ApplyError) as raised:
        pipeline.take(events)
    assert pipeline.writer.end.retries == 0
    assert "a transaction of 1 statements" in raised.value.what
    assert "8004 (Transaction is too large" in raised.value.what
    assert "txn-total-size-limit" in raised.value.fix


@pytest.mark.parametrize("writers", [0, 2])
def test_packets_too_small_for_any_statement_are_the_reason_of_no_row(
    target: str, small_packets: Session, writers: int
) -> None:
    """Each row would fit alone: none is quarantined, and the setting is named instead of a row."""
    small_packets.execute("SET GLOBAL max_allowed_packet = 16384")
    rows = [row_change(10, "t", ["id", "v"], ["id"], after=[n, "x" * 1000]) for n in range(40)]
    with pytest.raises(ApplyError, match="max_allowed_packet of the target is too small") as raised:
        run_all(target, in_one_partition([*rows, boundary(20)]), quarantine=True, writers=writers)
    assert "set max_allowed_packet on the target to 64M" in raised.value.fix
    assert small_packets.rows("SELECT COUNT(*) FROM _bridge.quarantine") == [(0,)]
    small_packets.execute("SET GLOBAL max_allowed_packet = 67108864")
    run_all(target, in_one_partition([*rows, boundary(20)]), quarantine=True, writers=writers)
    assert small_packets.rows("SELECT COUNT(*) FROM m.t") == [(40,)]
