"""lz4 frames, sound and hostile."""

from __future__ import annotations

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.protocols import DecodeError
from bridge.protocols.compression import MAX_VALUE_BYTES, decompressed


def test_plain_values_stay() -> None:
    """A value without the magic is the value itself."""
    assert decompressed(b'{"id":0}') == b'{"id":0}'


@given(st.binary(max_size=300), st.integers(1, 2000), st.booleans(), st.booleans())
def test_frames(content: bytes, times: int, checksum: bool, store_size: bool) -> None:
    """What was compressed comes back, whatever the frame's options and length."""
    packed = lz4.frame.compress(content * times, content_checksum=checksum, store_size=store_size)
    assert decompressed(packed) == content * times


def test_bomb() -> None:
    """A small value that grows beyond the limit is refused."""
    bomb = lz4.frame.compress(bytes(MAX_VALUE_BYTES + 1))
    assert len(bomb) < 1 << 20
    with pytest.raises(DecodeError, match="more than 67108864 bytes"):
        decompressed(bomb)
    assert len(decompressed(lz4.frame.compress(bytes(1000)), limit=1000)) == 1000


PACKED = lz4.frame.compress(b"some content, some content", content_checksum=True)


@pytest.mark.parametrize(
    "broken",
    [PACKED[:end] for end in range(4, len(PACKED))]
    + [PACKED + b"x", PACKED + PACKED, PACKED[:12] + b"\xff" + PACKED[13:], PACKED[:-1] + bytes([PACKED[-1] ^ 1])],
)
def test_broken_frames(broken: bytes) -> None:
    """A frame that is cut off, followed by anything, or altered is refused."""
    with pytest.raises(DecodeError, match="lz4 frame"):
        decompressed(broken)


@pytest.mark.parametrize("header_checksum", range(256))
def test_boasting_frame(header_checksum: int) -> None:
    """A frame that claims an absurd size gets no memory for it (one of the 256 headers is sound)."""
    packed = bytearray(lz4.frame.compress(b"x" * 100, store_size=True))
    packed[6:15] = b"\xff\xff\xff\xff\xff\xff\xff\x00" + bytes([header_checksum])
    with pytest.raises(DecodeError, match="lz4 frame"):
        decompressed(bytes(packed))
