"""lz4 frames and snappy blocks, sound and hostile."""

from __future__ import annotations

import lz4.frame
import pytest
from cramjam import snappy
from hypothesis import given
from hypothesis import strategies as st

from bridge.protocols import DecodeError
from bridge.protocols.values.json_message import MAX_BYTES, SMALL_BYTES, decompressed, growth_limit


def test_plain_values_stay() -> None:
    """A value without the magic is the value itself."""
    assert decompressed(b'{"id":0}') == b'{"id":0}'


@given(st.binary(max_size=300), st.integers(1, 2000), st.booleans(), st.booleans())
def test_frames(content: bytes, times: int, checksum: bool, store_size: bool) -> None:
    """What was compressed comes back, whatever the frame's options and length."""
    packed = lz4.frame.compress(content * times, content_checksum=checksum, store_size=store_size)
    assert decompressed(packed) == content * times


@given(st.binary(max_size=300), st.integers(1, 2000))
def test_blocks(content: bytes, times: int) -> None:
    """TiCDC's snappy is a bare block: its length, then its content."""
    assert decompressed(bytes(snappy.compress_raw(content * times))) == content * times


@pytest.mark.parametrize(
    "packed", [lz4.frame.compress(bytes(SMALL_BYTES + 1)), bytes(snappy.compress_raw(bytes(17 << 20)))]
)
def test_bombs(packed: bytes) -> None:
    """A small value that grows beyond the limit is refused, and one that grows to it is not."""
    assert len(packed) < 1 << 20
    with pytest.raises(DecodeError, match=f"more than {SMALL_BYTES} bytes"):
        decompressed(packed)
    assert len(decompressed(lz4.frame.compress(bytes(SMALL_BYTES)))) == SMALL_BYTES


def test_growth() -> None:
    """Small values may grow to a row of any usual size, larger ones to a multiple of theirs, none without end."""
    assert [growth_limit(size) for size in (0, 1 << 20, 2 << 20, 100 << 20)] == [
        SMALL_BYTES, SMALL_BYTES, 2 * SMALL_BYTES, MAX_BYTES,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "plain",
    [b"{", b'{"id":0,', b"\xff\xff\xff\xff\x0f" + b"a" * 20, b"\xff" * 9 + b"\x7f", bytes(3), b"\5", bytes(1 << 20)],
)
def test_what_is_no_block(plain: bytes) -> None:
    """What does not decompress whole stays what it is; a boast of size takes no memory."""
    assert decompressed(plain) == plain


PACKED = lz4.frame.compress(b"some content, some content", content_checksum=True)


def test_broken_frames() -> None:
    """A frame that is cut off, followed by anything, or altered is refused."""
    changed = (
        *(PACKED + b"x", PACKED + PACKED, PACKED[:12] + b"\xff" + PACKED[13:], PACKED[:-1] + bytes([PACKED[-1] ^ 1])),
    )
    for broken in (*(PACKED[:end] for end in range(4, len(PACKED))), *changed):
        with pytest.raises(DecodeError, match="lz4 frame"):
            decompressed(broken)


def test_boasting_frame() -> None:
    """A frame that claims an absurd size gets no memory for it (one of the 256 headers is sound)."""
    packed = bytearray(lz4.frame.compress(b"x" * 100, store_size=True))
    for header_checksum in range(256):
        packed[6:15] = b"\xff\xff\xff\xff\xff\xff\xff\x00" + bytes([header_checksum])
        with pytest.raises(DecodeError, match="lz4 frame"):
            decompressed(bytes(packed))
