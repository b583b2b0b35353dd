"""The registry and the boundary around every decoder."""

from __future__ import annotations

import pickle

import pytest

from bridge.errors import UsageError
from bridge.events import Event, Kind
from bridge.protocols import PROTOCOLS, DecodeError, DecodeOptions, decode_message, make_decoder
from bridge.protocols.canal.decoder import CanalJsonDecoder
from bridge.protocols.decoder import MAX_CACHED, PlainDecoder
from tests.support.wire import canal


def test_every_protocol_is_made() -> None:
    """Each name in the registry makes a decoder."""
    assert {"canal-json", "open-protocol"} <= PROTOCOLS.keys()
    for name in PROTOCOLS:
        assert callable(make_decoder(name, DecodeOptions(None)).decode)


def test_unknown_protocol() -> None:
    """An unknown name lists the known ones and the closest."""
    with pytest.raises(UsageError) as refusal:
        make_decoder("canal_jsn", DecodeOptions("UTC"))
    assert f"{', '.join(sorted(PROTOCOLS))}; did you mean canal-json?" in str(refusal.value)


def test_wrong_time_zone_is_told_when_the_decoder_is_made() -> None:
    """A wrong zone does not wait for the first TIMESTAMP."""
    with pytest.raises(UsageError):
        make_decoder("canal-json", DecodeOptions("Mars/Olympus"))


@pytest.mark.parametrize(
    "failure",
    [
        RecursionError("maximum"), MemoryError(), OverflowError("big"), KeyError("scm"), IndexError("end"),
        TypeError("no"), AttributeError("no"), ValueError(""), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        ZeroDivisionError(), RuntimeError("lz4"),
    ],
)  # fmt: skip
def test_every_failure_becomes_a_reason(failure: Exception) -> None:
    """Whatever fails inside a decoder leaves it as a DecodeError with words, and the message as one BAD event."""

    class Failing(PlainDecoder):
        def parse(self, _key: bytes | None, _value: bytes | None) -> list[Event]:
            raise failure

    decoder = Failing(DecodeOptions(None))
    with pytest.raises(DecodeError, match=r"malformed message: .+"):
        decoder.decode(b"", b"")
    [event] = decode_message(decoder, b"", b"\1")
    assert event == Event(Kind.BAD, 0, columns="malformed", before="", after="AQ==", text=event.text)


def wanted(schema: str, table: str) -> bool:
    return (schema, table) == ("d", "t")


def test_options_travel() -> None:
    """Options reach executors by pickle."""
    options = DecodeOptions("Asia/Shanghai", wanted)
    assert pickle.loads(pickle.dumps(options)) == options


def test_caches_are_bounded() -> None:
    """A flood of table names does not fill the memory."""
    decoder = CanalJsonDecoder(DecodeOptions(None))
    for number in range(MAX_CACHED + 10):
        decode_message(decoder, b"", canal("INSERT", {"id": ("int", "1")}, table=f"t{number}"))
    assert len(decoder._states) < 100
