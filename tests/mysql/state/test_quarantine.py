"""What is written to the quarantine, and read from it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.events import SEP, Kind, Position, RowChange
from bridge.model import Entry
from bridge.mysql.connection.session import Session
from bridge.mysql.state.progress import ProgressTable
from bridge.mysql.state.quarantine import (
    QuarantineState,
    add_entries,
    count_held,
    dump_change,
    entry_ids,
    load_change,
    read_entry,
    settle,
)
from tests.support.pipelines import admin
from tests.support.upstreams import row_change

AT = Position("a topic", 3, 1 << 40)
SCHEMA, NAME = "_bridge", "bridge"


@pytest.fixture
def session(target: str) -> Iterator[Session]:
    with admin(target) as session:
        ProgressTable(NAME).create(session)
        yield session


def put(session: Session, *entries: Entry, name: str = NAME) -> None:
    add_entries(session, SCHEMA, name, entries)


def message(value: bytes, code: str = "malformed") -> Entry:
    return Entry(AT, code, "no reason", 77, "canal-json", None, b64encode(value).decode())


def test_an_entry_comes_back_as_it_was(session: Session) -> None:
    """Position, reason, bytes and images."""
    change = row_change(78, "t", ["id", "v"], ["id"], before=[1, None], after=[1, "x'\\é😀"])
    put(session, message(bytes(range(256))), Entry(AT, "target-refused", "too long", 78, "canal-json", change=change))
    first, second = (
        read_entry(session, SCHEMA, NAME, id_) for id_ in entry_ids(session, SCHEMA, NAME, QuarantineState)
    )
    assert first is not None
    assert (first.position, first.index, first.code, first.commit_ts) == (AT, -1, "malformed", 77)
    assert (first.key, first.value, first.change, first.where) == (
        None,
        bytes(range(256)),
        None,
        "a topic/3/1099511627776",
    )
    assert second is not None
    assert (second.change, second.where, second.value) == (change, "a topic/3/1099511627776#0", None)


def test_the_same_position_is_one_entry(session: Session) -> None:
    """A message that is read again stays what has become of it, also in another form; another pipeline has its own."""
    put(session, message(b"{"))
    [id_] = entry_ids(session, SCHEMA, NAME, [QuarantineState.HELD])
    assert settle(session, SCHEMA, NAME, id_, QuarantineState.DROPPED, "by hand")
    put(session, message(b"{", "unknown-type"))
    put(session, message(b"{"), name="other")
    assert entry_ids(session, SCHEMA, NAME, QuarantineState) == [id_]
    assert count_held(session, SCHEMA, NAME) == {}
    assert count_held(session, SCHEMA, "other") == {"malformed": 1}


def test_an_entry_is_settled_once(session: Session) -> None:
    """Only what is held can be applied or dropped, and only by its own pipeline."""
    put(session, message(b"{"))
    [id_] = entry_ids(session, SCHEMA, NAME, [QuarantineState.HELD])
    assert not settle(session, SCHEMA, "other", id_, QuarantineState.DROPPED, "")
    assert settle(session, SCHEMA, NAME, id_, QuarantineState.APPLIED, "")
    assert not settle(session, SCHEMA, NAME, id_, QuarantineState.DROPPED, "")
    assert read_entry(session, SCHEMA, "other", id_) is None


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=5)


@given(st.lists(st.tuples(TEXT, TEXT, TEXT), min_size=1, max_size=4), st.booleans(), st.sampled_from(["", "id"]))
def test_row_changes_as_json(columns: list[tuple[str, str, str]], has_before: bool, key: str) -> None:
    """A row change is the same after it was written as JSON and read again."""
    names, old, new = (SEP.join(parts) for parts in zip(*columns, strict=True))
    change = RowChange(Kind.UPDATE, 5, 2, "m", "t", names, key, old if has_before else None, new)
    assert load_change(dump_change(change), 5, 2) == change
