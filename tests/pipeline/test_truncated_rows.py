"""Rows cut to their key: completed from the upstream, or bad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import BadMessageError
from bridge.model import TableName
from bridge.mysql.connection.session import Session
from bridge.pipeline.truncated_rows import CutRows, Literals, RowsGoneError
from bridge.protocols import DecodeOptions, make_decoder
from bridge.tso import ms_tso
from tests.pipeline.test_bad_messages import capture
from tests.support.captures import row, watermark
from tests.support.pipelines import run_all, session_after


class History:
    """An upstream as a table of what it shows: commit ts and key to the rest of the row."""

    def __init__(self, rows: Mapping[tuple[int, str], str], gone: frozenset[int] = frozenset()) -> None:
        self._rows, self._gone = rows, gone
        self.asked: list[tuple[int, list[str]]] = []

    def rows_at(self, commit_ts: int, name: TableName, keys: Sequence[Literals]) -> list[Literals | None]:
        assert name == ("m", "t")
        wanted = [key["id"] for key in keys]
        self.asked.append((commit_ts, wanted))
        if commit_ts in self._gone:
            raise RowsGoneError("older than tidb_gc_life_time")
        found = [self._rows.get((commit_ts, key)) for key in wanted]
        return [None if v is None else {"ID": "7777", "v": v} for v in found]

    def cut_rows(self) -> CutRows:
        return CutRows(self, make_decoder("canal-json", DecodeOptions("UTC", cut_rows=True)))


def cut(ts: int, id_: int, *, kind: str = "INSERT", was: int | None = None, mark: str = "onlyHandleKey") -> Any:
    old = None if kind == "INSERT" else [{"id": str(id_ if was is None else was)}]
    return {**row(ts, id_), "type": kind, "old": old, "_tidb": {"commitTs": ts, mark: True}}


def whole(ts: int, id_: int, v: str, **fields: Any) -> Any:
    return {**row(ts, id_, v=("varchar", v)), **fields}


session = session_after("CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY, v VARCHAR(9), w INT DEFAULT 5)")


def rows(session: Session) -> list[tuple[Any, ...]]:
    return session.rows("SELECT id, v, w FROM m.t ORDER BY id")


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_whole_rows_among_others(target: str, session: Session, tmp_path: Path, batch: int) -> None:
    """Cut rows come as they were at their own commit ts, in their place among the others; columns that the upstream
    lacks keep their values."""
    events = capture(
        tmp_path,
        [
            cut(10, 1), whole(10, 2, "two"), whole(11, 3, "three"), cut(12, 1, kind="UPDATE"),
            cut(13, 2, kind="UPDATE", mark="claimCheckLocation"), whole(14, 1, "end", type="UPDATE", old=[{"id": "1"}]),
            cut(15, 3, kind="DELETE"), cut(16, 4), watermark(20),
        ],
    )  # fmt: skip
    history = History({(10, "1"): "'a'", (12, "1"): "'b'", (13, "2"): "'c'", (16, "4"): "NULL"})
    run_all(target, events, batch=batch, cut_rows=history.cut_rows())
    assert rows(session) == [(1, "end", 5), (2, "c", 5), (4, None, 5)]
    assert sorted(history.asked) == [(10, ["1"]), (12, ["1"]), (13, ["2"]), (16, ["4"])]


def test_the_moments_are_asked_for_in_order(target: str, session: Session, tmp_path: Path) -> None:
    """All keys of one moment together, earlier moments first."""
    events = capture(tmp_path, [cut(12, 1), cut(12, 2), watermark(20)], [cut(10, 3), watermark(20)])
    history = History({(12, "1"): "'a'", (12, "2"): "'b'", (10, "3"): "'c'"})
    run_all(target, events, cut_rows=history.cut_rows())
    assert history.asked == [(10, ["3"]), (12, ["1", "2"])]
    assert len(rows(session)) == 3


def test_a_change_of_key(target: str, session: Session, tmp_path: Path) -> None:
    """An update that moves a cut row takes it away at its old key."""
    events = capture(tmp_path, [whole(10, 1, "a"), watermark(11), cut(12, 2, kind="UPDATE", was=1), watermark(20)])
    run_all(target, events, batch=2, cut_rows=History({(12, "2"): "'b'"}).cut_rows())
    assert rows(session) == [(2, "b", 5)]


def test_without_a_source(target: str, session: Session, tmp_path: Path) -> None:
    """It stops like a bad message, and names the fix."""
    with pytest.raises(BadMessageError, match="--upstream") as raised:
        run_all(target, capture(tmp_path, [whole(10, 2, "a"), watermark(11), cut(11, 1), watermark(20)]))
    assert raised.value.where == "cdc/0/2"
    assert rows(session) == [(2, "a", 5)]


@pytest.mark.parametrize(
    ("history", "why"),
    [(History({}), "no such row of m.t at commit ts 11"), (History({}, frozenset({11})), "tidb_gc_life_time")],
)
def test_a_row_that_is_gone(target: str, session: Session, tmp_path: Path, history: History, why: str) -> None:
    """What the upstream does not show any more stops the bridge, or is quarantined with its message."""
    events = capture(tmp_path, [whole(10, 2, "a"), watermark(11), cut(11, 1), whole(12, 3, "c"), watermark(20)])
    with pytest.raises(BadMessageError, match=why) as raised:
        run_all(target, events, cut_rows=history.cut_rows())
    assert raised.value.where == "cdc/0/2"
    assert rows(session) == [(2, "a", 5)]
    run_all(target, events, cut_rows=history.cut_rows(), quarantine=True)
    assert [id_ for id_, *_ in rows(session)] == [2, 3]
    [(code, value)] = session.rows("SELECT code, message_value FROM _bridge.quarantine")
    assert code == "not-read-back"
    assert b"onlyHandleKey" in value


def test_what_is_applied_is_not_asked_for_again(target: str, session: Session, tmp_path: Path) -> None:
    """A restart that reads a cut row again does not need its moment any more."""
    messages = [cut(10, 1), watermark(15), whole(15, 2, "b")]
    run_all(target, capture(tmp_path, messages), cut_rows=History({(10, "1"): "'a'"}).cut_rows())
    history = History({}, frozenset({10}))
    run_all(target, capture(tmp_path, [*messages, watermark(20)]), cut_rows=history.cut_rows())
    assert (rows(session), history.asked) == ([(1, "a", 5), (2, "b", 5)], [])


MS = 1_700_000_000_000


def plain(ms: int, id_: int, v: str, **fields: Any) -> Any:
    """As it is written without the TiDB extension."""
    message = whole(1, id_, v, es=MS + ms, **fields)
    del message["_tidb"]
    return message


def moment(ms: int) -> int:
    return ms_tso(MS + ms)


@pytest.mark.parametrize("batch", [1, 100])
def test_in_the_order_of_the_partitions(target: str, session: Session, tmp_path: Path, batch: int) -> None:
    """A topic whose extension was switched on in mid-stream: each row is read at its own commit ts, in its place."""
    events = capture(
        tmp_path,
        [plain(1, 1, "a"), cut(moment(2), 1, kind="UPDATE"), cut(moment(3), 2), plain(4, 3, "c"), cut(moment(5), 4)],
        [plain(1, 5, "e"), cut(moment(2), 6, kind="UPDATE", was=5), plain(6, 6, "g", type="UPDATE", old=[{"id": "6"}])],
    )
    history = History(
        {(moment(2), "1"): "'b'", (moment(3), "2"): "NULL", (moment(5), "4"): "'d'", (moment(2), "6"): "'f'"}
    )
    pipeline = run_all(target, events, batch=batch, cut_rows=history.cut_rows())
    assert pipeline.applier.order.by_partition
    assert rows(session) == [(1, "b", 5), (2, None, 5), (3, "c", 5), (4, "d", 5), (6, "g", 5)]
    run_all(target, events, cut_rows=History({}).cut_rows())
    assert len(rows(session)) == 5


def test_a_row_that_is_gone_in_the_order_of_the_partitions(target: str, session: Session, tmp_path: Path) -> None:
    """It stops all partitions, and without a source too; quarantined, it goes on, and the code says why."""
    events = capture(
        tmp_path, [plain(1, 1, "a"), cut(moment(2), 2), b"{", plain(3, 3, "c")], [plain(1, 5, "e"), plain(6, 6, "f")]
    )
    for history, why in ((None, "--upstream"), (History({}, frozenset({moment(2)})), "tidb_gc_life_time")):
        with pytest.raises(BadMessageError, match=why) as raised:
            run_all(target, events, cut_rows=history and history.cut_rows())
        assert raised.value.where == "cdc/0/1"
        assert [id_ for id_, *_ in rows(session)] == [1]
    run_all(target, events, cut_rows=History({}).cut_rows(), quarantine=True)
    assert [id_ for id_, *_ in rows(session)] == [1, 3, 5, 6]
    held = session.rows("SELECT code, `offset` FROM _bridge.quarantine ORDER BY `offset`")
    assert held == [("not-read-back", 1), ("malformed", 2)]


def test_what_lay_below_the_boundaries_is_not_asked_for(target: str, session: Session, tmp_path: Path) -> None:
    """When the order changes, what is in the target already is read again, and its moments may be gone."""
    first, second = [cut(moment(1), 1), watermark(moment(2)), cut(moment(3), 2)], [watermark(moment(2))]
    history = History({(moment(1), "1"): "'a'", (moment(3), "2"): "'b'"})
    run_all(target, capture(tmp_path, first, second), cut_rows=history.cut_rows())
    history = History({(moment(3), "2"): "'b'"}, frozenset({moment(1)}))
    events = capture(tmp_path, [*first, plain(4, 3, "c")], [*second, plain(4, 4, "d")])
    run_all(target, events, cut_rows=history.cut_rows())
    assert rows(session) == [(1, "a", 5), (2, "b", 5), (3, "c", 5), (4, "d", 5)]
    assert {ts for ts, _ in history.asked} == {moment(3)}
