"""What the compiled functions find in texts, beside Python's own search."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bridge.protocols.debezium.envelope import Envelopes
from bridge.protocols.debezium.keys import HandleKeys
from bridge.protocols.fast.compiled.functions import match_numbers, sum_kinds
from bridge.protocols.fast.texts import BEHIND, Texts

MARKS = (b'"a":', b",", b'"op":"')
PIECES = st.sampled_from([*MARKS, b'"a', b'":', b"x", b"0", b"12", b"", b'"op":', b"{", b"}", b"\xff\x00"])
TEXTS = st.lists(st.one_of(st.none(), st.lists(PIECES, max_size=9).map(b"".join)), max_size=8)
HEADS = st.sampled_from([b"", b"{", b'{"id":', b'{"identity":{"number":'])


def _sums(messages: list[bytes | None]) -> list[int]:
    texts, sums = Texts.of(messages), np.full(len(messages), -1, np.int64)
    words = np.array([int.from_bytes(mark, "little") for mark in MARKS])
    sizes = np.array([len(mark) for mark in MARKS])
    sum_kinds(texts.numbers(), texts.starts, texts.ends, len(messages), words, sizes, sums)
    return [int(one) for one in sums]


def _kind(message: bytes | None) -> tuple[bytes, bytes] | None:
    start, end, operation = map(re.escape, MARKS)
    found = re.search(start + b"(.*?" + end + b").*?" + operation + b"(.)", message or b"", re.DOTALL)
    return None if found is None else (found[1], found[2])


@given(TEXTS)
def test_messages_of_one_kind_have_one_sum(messages: list[bytes | None]) -> None:
    """Others have another one, and messages without a kind 0."""
    pairs = set(zip(map(_kind, messages), _sums(messages), strict=True))
    assert {one for kind, one in pairs if kind is None} <= {0}
    assert len({one for _, one in pairs}) == len({kind for kind, _ in pairs}) == len(pairs)


@given(TEXTS, HEADS, HEADS)
def test_one_number_between_known_texts(messages: list[bytes | None], head: bytes, tail: bytes) -> None:
    """Nothing before the head, nothing behind the tail, and at least one digit."""
    messages = [*messages, *(head + number + tail for number in (b"", b"7", b"1234567890", b"-1", b"1.5", b"1 "))]
    texts, found = Texts.of(messages), np.full(len(messages), 7, np.uint8)
    given_head, given_tail = (np.frombuffer(text + bytes(BEHIND), np.uint8) for text in (head, tail))
    match_numbers(
        texts.numbers(), texts.starts, texts.ends, len(messages), given_head, len(head), given_tail, len(tail), found
    )
    form = re.compile(re.escape(head) + b"[0-9]+" + re.escape(tail))
    assert found.tolist() == [int(form.fullmatch(message or b"") is not None) for message in messages]


def test_what_is_around_a_number_is_that_of_the_wanted_columns() -> None:
    """A key of other columns, which was read later, does not stand for them."""
    names = HandleKeys(Envelopes())
    assert names.around_number(["id"]) is None
    assert names.names(b'{"payload":{"id":1}}') == ["id"]
    assert names.around_number(["id"]) == (b'{"payload":{"id":', b"}}")
    assert names.around_number(["number"]) is None
    assert names.names(b'{"payload":{"number":12}}') == ["number"]
    assert (names.around_number(["id"]), names.around_number(["number"])) == (None, (b'{"payload":{"number":', b"}}"))
