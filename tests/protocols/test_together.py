"""Row images that are made together: each is the one that `image_of` makes alone, or is left to it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import lz4.frame
import numpy as np
import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge.events import Event, Kind
from bridge.protocols import DecodeOptions
from bridge.protocols.canal.decoder import CanalJsonDecoder
from bridge.protocols.canal.types import canal_types
from bridge.protocols.ckafka.decoder import CkafkaDecoder
from bridge.protocols.decoder import FAILURES, DecodeError, PlainDecoder
from bridge.protocols.together import Together
from bridge.protocols.values import literals
from bridge.protocols.values.literals import Converter
from bridge.protocols.values.many_images import ManyImages
from bridge.protocols.values.row_image import image_of, make_layout
from tests.bench.decoding import rows_of
from tests.bench.workload import WORKLOADS
from tests.support.oracles import MESSAGE, Pair, events_of

CONVERTERS = [*dict.fromkeys([*canal_types("UTC").values(), *canal_types("Europe/Berlin").values()])]
EDGES = (
    *(
        "",
        "0",
        "-0",
        "00",
        "07",
        "-",
        "--1",
        "1-",
        "1-1",
        "-7",
        "+7",
        " 7",
        "7 ",
        "\u0663",
        "1e5",
        "'",
        "\\",
        "\0",
        "a\0",
    ),
    *(
        "9" * 18,
        "9" * 19,
        "9" * 20,
        "0" * 20,
        "-" + "9" * 18,
        "-" + "9" * 19,
        "-9223372036854775808",
        "1" * 65,
        "1" * 66,
    ),
    *(".", "1.", ".1", "-.1", "-1.", "1.2", "-1.2", "1.2.3", "1..2", "1.-2", "00.10", "-." + "1" * 64),
    *("2024-00-00", "2024-12-31", "2024-13-01", "2024-20-01", "2024-01-32", "2024-01-40", "2024-1-01", "2024/01/01"),
    *(
        "2024-01-01 00:00:00",
        "2024-01-01 23:59:59",
        "2024-01-01 24:00:00",
        "2024-01-01 30:00:00",
        "0000-00-00 00:00:00",
    ),
    *(
        "2024-01-01 00:60:00",
        "2024-01-01 00:00:60",
        "2024-01-32 00:00:00",
        "2024-01-01T00:00:00",
        "2024-13-01 00:00:00",
    ),
    *("2024-01-01 00:00:00.", "2024-01-01 00:00:00.1", "2024-01-01 00:00:00.123456", "2024-01-01 00:00:00.1234567"),
)
NEAR = (
    st.from_regex(literals.DATETIME_PATTERN, fullmatch=True)
    | st.from_regex(literals.DATE_PATTERN, fullmatch=True)
    | st.from_regex(r"-?[0-9]{1,21}(\.[0-9]{0,3}){0,2}", fullmatch=True)
    | st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,7})?", fullmatch=True)
    | st.text("0123456789-+. :'\\\0\u0663\u00e9\U0001f600", max_size=27)
    | st.sampled_from(EDGES)
)
VALUES = st.none() | NEAR | st.sampled_from([True, 1, 1.5, [], ["'"], {"'": 1}])
ROWS = st.lists(st.tuples(st.sampled_from(CONVERTERS), VALUES), min_size=1, max_size=6)


def alone(row: Sequence[tuple[Converter, Any]]) -> str | None:
    """The image of a row, None where it has none."""
    try:
        return image_of(*_layout_and_values(row))
    except (*FAILURES, DecodeError):
        return None


def _layout_and_values(row: Sequence[tuple[Converter, Any]]) -> tuple[Any, dict[str, Any]]:
    layout = make_layout(None, None, [(f"c{at}", "any", convert) for at, (convert, _) in enumerate(row)])
    return layout, {f"c{at}": value for at, (_, value) in enumerate(row)}


@settings(max_examples=150)
@given(st.lists(ROWS, max_size=6))
@example([[(literals.text, "a'b\\c\0d")], [(literals.latin1, "'"), (literals.text, "'")], [(literals.text, None)]])
@example([[(literals.datetime, "2024-13-01 00:00:00")], [(literals.datetime, "2024-12-32 24:00:00")]])
@example(
    [[(literals.datetime, "2024-12-31 23:59:59.")], [(literals.date, "2024-02-30")], [(literals.decimal, "1.2.3")]]
)
def test_same_images(rows: list[list[tuple[Converter, Any]]]) -> None:
    """Rows of any layouts, of values that are nearly right: an image that is good is the one that the row has alone."""
    images = ManyImages()
    numbers = [images.add(*_layout_and_values(row)) for row in rows]
    found, good = images.made()
    assert numbers == list(range(len(rows)))
    assert len(found) == len(good) == len(rows)
    for row, image, is_good in zip(rows, found.to_pylist(), good, strict=True):
        assert not is_good or image == alone(row)


def test_every_edge_in_every_column() -> None:
    """What is nearly a literal, in a lot with many others: read as it is alone, or left."""
    rows = [[(convert, value)] for convert in CONVERTERS for value in EDGES]
    images = ManyImages()
    for row in rows:
        images.add(*_layout_and_values(row))
    found, good = images.made()
    assert [(row, image) for row, image in zip(rows, found.to_pylist(), strict=True) if image != alone(row)] == [
        (row, image) for row, image, is_good in zip(rows, found.to_pylist(), good, strict=True) if not is_good
    ]


@pytest.mark.parametrize("value", ["7", "-7", "0", "9" * 19])
def test_usual_values_are_good(value: str) -> None:
    """Nothing of what databases usually hold is left."""
    row: list[tuple[Converter, Any]] = [
        (convert, value) for convert in (literals.integer, literals.decimal, literals.text, literals.latin1)
    ]
    row += [(literals.date, "2024-12-31"), (literals.datetime, "2024-12-31 23:59:59.999999"), (literals.text, "it's\\")]
    row += [(literals.integer, "007"), (literals.double, "1.5"), (literals.text, None), (literals.text, "")]
    images = ManyImages()
    images.add(*_layout_and_values(row))
    images.add(*_layout_and_values(row))
    found, good = images.made()
    assert good.all()
    assert found.to_pylist() == [alone(row)] * 2


def _together(decoder: type[CanalJsonDecoder | CkafkaDecoder], **options: Any) -> tuple[PlainDecoder, Together]:
    plain = decoder(DecodeOptions("UTC", ckafka_binary="base64", **options))
    return plain, Together(plain, partial(decoder, DecodeOptions("UTC", ckafka_binary="base64", **options)))


def _decoded(together: Together, pairs: Sequence[Pair]) -> tuple[dict[int, list[Event]], list[int]]:
    """The events of the messages that were read, by number, and the numbers of the others."""
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    lots, left = together.decode(keys, values, np.arange(len(pairs)))
    found: dict[int, list[Event]] = {number: [] for number in set(range(len(pairs))) - set(left.tolist())}
    for rows in lots:
        for number, event in zip(rows.numbers.tolist(), events_of(rows.events), strict=True):
            found[number].append(event)
    return found, left.tolist()


@pytest.mark.parametrize(
    ("protocol", "decoder"), [("canal-json", CanalJsonDecoder), ("ckafka", CkafkaDecoder)], ids=["canal", "ckafka"]
)
def test_realistic_rows(protocol: str, decoder: type[CanalJsonDecoder | CkafkaDecoder]) -> None:
    """All are read, and come out as by the plain path."""
    plain, together = _together(decoder)
    pairs = [(row.key, row.value) for row in rows_of(protocol, WORKLOADS["real"], 600)]
    found, left = _decoded(together, pairs)
    assert left == []
    assert [found[number] for number in range(len(pairs))] == [plain.decode(*pair) for pair in pairs]


def test_what_is_unusual_is_left() -> None:
    """A message with a value, a shape or a part that cannot be read, one of an unwanted table, and all its rows."""
    plain, together = _together(CanalJsonDecoder, accepts=lambda _, table: table != "other", tells_unwanted=True)
    bad: list[dict[str, Any]] = [
        {"data": [{"id": "1", "v": "x"}, {"id": "one", "v": "x"}]},
        {"data": [{"id": 1, "v": "x"}]},
        {"data": [{"id": "1", "v": ["x"]}]},
        {"data": "none"},
        {"table": "other"},
        {"type": "SOMETHING"},
    ]
    fine: dict[str, Any] = {"data": [{"id": "-5", "v": "it's"}, {"id": "6", "v": None}]}
    pairs: list[Pair] = [(b"", orjson.dumps({**MESSAGE, **change})) for change in (fine, *bad, fine)]
    packed = lz4.frame.compress(orjson.dumps(MESSAGE))
    assert len(plain.decode(b"", packed)) == 1
    found, left = _decoded(together, [*pairs, (None, None), (b"", b"{"), (b"", packed)])
    assert left == [1, 2, 3, 4, 5, 6, 8, 9, 10]
    assert found == {number: plain.decode(*pairs[number]) for number in (0, 7)}
    assert [event.kind for event in plain.decode(*pairs[5])] == [Kind.LEFT_OUT]
    assert _decoded(together, pairs)[0][5] == [], "a table that was reported is not reported again"


def test_nothing_to_read() -> None:
    """A lot without a row has no images, and messages without events are read."""
    _, together = _together(CanalJsonDecoder)
    annotation = orjson.dumps({**MESSAGE, "type": "QUERY", "data": None})
    assert _decoded(together, [(b"", annotation)]) == ({0: []}, [])
    assert _decoded(together, [(b"", b"[]")]) == ({}, [0])
