"""What is later than a schema change, by event times, by GTIDs and by places in the binlog."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from bridge.protocols.values.event_time import place_in_binlog, place_in_gtid_set
from bridge.rows.moments import Moment, Places, in_order, latest_beside, new_beginning, newest_places
from bridge.tso import ms_tso
from tests.support.upstreams import events_table, row_change

U1, U2 = "11111111-0000-0000-0000-000000000001", "22222222-0000-0000-0000-000000000002"


def place(
    position: int,
    number: int = 3,
    reader: str = "up",
    base: str = "binlog",
    server: int | None = 1,
    gtid: str | None = None,
) -> str:
    found = place_in_binlog(reader, f"{base}.{number:06}", position, server, gtid)
    assert found is not None
    return found


def at(server: int, number: int, *, position: int = 500, gtid: str | None = None) -> str:
    """A place in a file of a server."""
    return place(position, number, server=server, gtid=gtid)


def canal(gtids: str) -> str:
    found = place_in_gtid_set(gtids)
    assert found is not None
    return found


def later(moment: Moment, rows: list[tuple[int, str | None]]) -> list[bool]:
    """Which rows, each with its time in ms and its place, are later."""
    change = row_change(1, "t", ["id"], ["id"], after=[1])
    events = [change._replace(commit_ts=ms_tso(ms), place=where, by_time=True) for ms, where in rows]
    return [bool(one) for one in moment.is_before(events_table([(0, n, event) for n, event in enumerate(events)]))]


def changed(ms: int, where: str | None) -> Moment:
    return Moment.of_change(ms_tso(ms), True, where)


LATER: list[tuple[str, int, str | None, int, str | None, bool]] = [
    ("in one second the places tell: behind", 5000, place(500), 5000, place(501), True),
    ("and before", 5000, place(500), 5000, place(499), False),
    ("a schema change that waited is dated earlier than rows before it", 5000, place(500), 9000, place(499), False),
    ("a row that waited is dated earlier than a schema change before it", 9000, place(500), 5000, place(501), True),
    ("the number of the file counts more", 5000, place(500, 3), 5000, place(4, 4), True),
    ("as a number, not as text", 5000, place(500, 999999), 5000, place(4, 1000000), True),
    ("positions too", 5000, place(999), 5000, place(1000), True),
    ("commit times that differ are exact, also on another server", 5001, place(500, 9), 5002, place(4, 1), True),
    ("and in the other direction", 5002, place(4, 1), 5001, place(500, 9), False),
    ("equal commit times are not", 5001, place(500), 5001, place(501), True),
    ("what is of another reader goes by time", 5000, place(500), 5999, place(501, reader="other"), False),
    ("what is of another binlog, too", 5000, place(500), 6000, place(1, base="mysql-bin"), True),
    ("and what has no place", 5000, place(500), 5999, None, False),
    ("and a change without one", 5000, None, 6000, place(1), True),
    ("files of two servers tell nothing of each other: by time", 9000, at(2, 3), 5000, at(1, 120), False),
    ("in both directions", 5000, at(1, 120), 9000, at(2, 3), True),
    ("nor do files of a server without an id", 9000, place(1, server=None), 5000, at(1, 120), False),
    (
        "MariaDB's domain goes on with another server",
        5000,
        at(2, 3, gtid="0-2-5"),
        5000,
        at(1, 120, gtid="0-1-4"),
        False,
    ),
    ("whatever the clocks of the two say", 9000, at(2, 3, gtid="0-2-5"), 9000, at(1, 120, gtid="0-1-6"), True),
    ("and two domains tell nothing", 5000, at(1, 3, gtid="0-1-5"), 5999, at(2, 9, gtid="1-2-9"), False),
    ("one uuid goes by its numbers", 5000, at(1, 9, gtid=f"{U1}:9"), 5000, at(2, 3, gtid=f"{U1}:10"), True),
    ("as numbers, not as text", 5000, at(1, 9, gtid=f"{U1}:10"), 5000, at(2, 12, gtid=f"{U1}:9"), False),
    ("in upper case, too", 5000, at(1, 9, gtid="AA:9"), 5000, at(2, 3, gtid="aa:10"), True),
    ("tags are counted apart", 5000, at(1, 9, gtid=f"{U1}:a:9"), 5999, at(2, 3, gtid=f"{U1}:b:10"), False),
    ("two uuids tell nothing: by time", 5000, at(1, 9, gtid=f"{U1}:9"), 5999, at(2, 9, gtid=f"{U2}:10"), False),
    ("a transaction's events go by their positions", 5000, place(5, gtid="0-1-5"), 5000, place(6, gtid="0-1-5"), True),
    ("before, too", 5000, place(5, gtid="0-1-5"), 5000, place(4, gtid="0-1-5"), False),
    ("one event without a GTID goes by file", 5000, place(5, gtid="0-1-5"), 5000, place(6), True),
    ("a snapshot is before what follows it", 5000, place(500), 5999, place(499, server=0), False),
    ("on whichever server, by its time", 9000, at(2, 3), 5000, at(0, 120), False),
    ("and a later one behind it", 5000, place(500), 5000, place(501, server=0), True),
    ("Canal's sets of one server go by its last number", 9000, canal(f"{U1}:1-5"), 12000, canal(f"{U1}:1-4"), False),
    ("and behind it", 9000, canal(f"{U1}:1-5"), 9000, canal(f"{U1}:1-6"), True),
    ("with gaps", 9000, canal(f"{U1}:1-3:5-9"), 9000, canal(f"{U1}:1-10"), True),
    (
        "a set with another server's is behind one without",
        9000,
        canal(f"{U1}:1-5"),
        9000,
        canal(f"{U1}:1-5,{U2}:1"),
        True,
    ),
    ("and the other way round", 9000, canal(f"{U2}:1, {U1}:1-5"), 9999, canal(f"{U1}:1-5"), False),
    ("the new server's numbers go on", 9000, canal(f"{U1}:1-5,{U2}:1-2"), 9000, canal(f"{U1}:1-5,{U2}:1-3"), True),
    ("sets without a common server go by time", 9000, canal(f"{U1}:1-5"), 9999, canal(f"{U2}:1-9"), False),
    ("and so do sets of two histories", 9000, canal(f"{U1}:1-5,{U2}:1-9"), 9999, canal(f"{U1}:1-9,{U2}:1-5"), False),
    ("one GTID alone is one", 9000, canal(f"{U1}:5"), 9000, canal(f"{U1}:6"), True),
    ("CREATE TABLE ... SELECT is one with its rows", 9000, canal(f"{U1}:1-5"), 9000, canal(f"{U1}:1-5"), True),
    ("which MariaDB writes at one position", 9000, place(5, gtid="0-1-5"), 9000, place(5, gtid="0-1-5"), True),
    ("MariaDB's by domain", 9000, canal("0-1-5,1-1-3"), 9000, canal("0-2-6,1-1-3"), True),
]


@pytest.mark.parametrize(("what", "ms", "where", "row_ms", "row_where", "is_later"), LATER)
def test_later_rows(what: str, ms: int, where: str | None, row_ms: int, row_where: str | None, is_later: bool) -> None:
    """One row each; beside one without a place, so that columns are mixed."""
    assert later(changed(ms, where), [(row_ms, row_where), (1, None)]) == [is_later, False], what


def test_a_change_with_a_commit_ts_is_exact() -> None:
    """Rows at its commit ts come before it."""
    assert later(Moment.of_change(ms_tso(5000), False, None), [(5000, None), (5001, None)]) == [False, True]


def test_schema_changes_in_order() -> None:
    """By time; those that are dated by seconds and stand in one binlog by their places."""
    moments = [
        changed(7000, place(300)),
        changed(8000, place(100)),
        changed(7000, None),
        changed(9000, place(200)),
        changed(7500, place(1, reader="other")),
    ]
    assert in_order(moments) == [2, 1, 4, 3, 0]
    assert in_order([]) == []
    failover = [
        changed(9000, at(2, 3, gtid="0-2-5")),
        changed(9000, at(1, 120, gtid="0-1-4")),
        changed(8000, at(2, 4, gtid="0-2-6")),
    ]
    assert in_order(failover) == [1, 0, 2]
    sets = [canal(f"{U1}:1-5,{U2}:1"), canal(f"{U1}:1-5"), canal(f"{U1}:1-4"), canal(f"{U1}:1-5,{U2}:1-7")]
    assert in_order([changed(9000 - 1000 * number, one) for number, one in enumerate(sets)]) == [2, 1, 0, 3]


def test_places_of_several_binlogs() -> None:
    """The last of each counts: a connector that sends something again goes back."""
    change = row_change(1, "t", ["id"], ["id"], after=[1])
    places = [place(7), place(9), place(8), None, place(3, reader="other")]
    events = events_table([(0, n, change._replace(place=one)) for n, one in enumerate(places)])
    assert list(newest_places(events).values()) == [place(8), place(3, reader="other")]
    assert newest_places(events.slice(3, 1)) == {}


@pytest.mark.parametrize(
    "gtids",
    ["", "x", f"{U1}", f"{U1}:", f"{U1}:1-5,nonsense", "0-1", ":1-5",
     "a,b:1-5", f"{U1}:a:5", f"{U1}:1--5"],
)  # fmt: skip
def test_gtids_that_cannot_be_read(gtids: str) -> None:
    """They are no place."""
    assert place_in_gtid_set(gtids) is None


@pytest.mark.parametrize("file", ["", "binlog", "binlog.", "binlog.12345678901", "binlog.4294967296", ".000003"])
def test_files_without_a_number(file: str) -> None:
    """TiCDC's are empty; what cannot be compared has no place."""
    assert place_in_binlog("up", file, 4) is None


@pytest.mark.parametrize(
    ("row", "beside", "latest"),
    [(5000, 5660, 5999), (5000, 5000, 5000), (5000, 6000, 5000), (5300, 5660, 5300), (5300, 5000, 5300)],
)
def test_a_whole_second_stands_for_all_of_itself_beside_milliseconds(row: int, beside: int, latest: int) -> None:
    """Or a row would count as earlier than a schema change of its second that came before it."""
    assert latest_beside(np.array([row]), beside).tolist() == [latest]


@pytest.mark.parametrize(
    "places",
    [
        [canal(f"{U1}:1-7"), canal(f"{U1}:1-123456789012345678")],
        [at(1, 3), at(1, 2147483647, position=(1 << 32) - 1)],
        [at(1, 3, gtid=f"{U1}:7"), at(1, 4, gtid=f"{U1}:9")],
    ],
)
def test_places_that_are_alike_are_read_as_others_are(places: list[str]) -> None:
    """Those with the same names go a faster way, also as a part of an array."""
    alike = Places.of(pa.array(["x", *places, "y"]).slice(1, len(places)))
    others = Places.of(pa.array([*places, at(9, 9)]))
    for name, numbers in alike.numbers.items():
        assert numbers.tolist() == others.numbers[name].tolist()[: len(places)]


@pytest.mark.parametrize(
    ("gtids", "is_anew"), [((None, None), True), ((f"{U1}:8", f"{U1}:9"), False), ((f"{U1}:8", f"{U1}:1"), True)]
)
def test_a_promoted_servers_files_are_no_new_beginning(gtids: tuple[str | None, ...], is_anew: bool) -> None:
    """They have what the former server wrote, with its id, while GTIDs go on; the binlog began anew where these do."""
    places = [at(1, number, gtid=gtid) for number, gtid in zip((120, 3), gtids, strict=True)]
    found, _ = new_beginning(Places.of(pa.array(places)), np.array([ms_tso(1), ms_tso(2)]), {}, 0)
    assert (found is not None) == is_anew
