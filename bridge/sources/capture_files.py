"""Capture files as a source."""

from __future__ import annotations

import base64
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, starmap
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

import orjson

from bridge.errors import UsageError
from bridge.events import Position
from bridge.model import NO_ENDS, PartitionId, Positions
from bridge.protocols.batch_decode import Messages
from bridge.rows.gathering import Amount
from bridge.sources.part_size import joined_lots, latest_ms
from bridge.sources.source import (
    SUFFIXES,
    Extent,
    Guard,
    KeyAndValue,
    Message,
    Pacing,
    Read,
    Source,
    Wait,
    with_ids,
    within_sample_bytes,
)

DEFAULT_CAPTURE_TOPIC = "capture"
_PIECE: Final = 8 << 20
"""A task reads about so many bytes."""
_SHOWN: Final = 200
"""So many characters of a line that is no message are shown."""


class CaptureSource(Source):
    """Reads capture files, one file or a folder of `*.jsonl`, as one micro-batch.

    When several messages have the same topic, partition and offset, one of them is read.
    """

    is_kafka = False

    def __init__(self, path: str) -> None:
        self._path, self.place = Path(path), str(path)
        self._messages, self._has_copies = 0, False
        self._ends: dict[PartitionId, int] = {}
        if not self._path.exists():
            raise UsageError(f"there is no capture file {path}", fix="check --input")
        if not self._paths():
            raise UsageError(f"the folder {path} holds no *.jsonl file", fix="check --input")
        for file in self._paths():
            _require_file(file)

    def __str__(self) -> str:
        return f"capture files {self._path}"

    def extents(self) -> dict[PartitionId, Extent]:
        """Looks up every partition in the files, and its offsets; UsageError for a line that cannot be read."""
        extents: dict[PartitionId, Extent] = {}
        self._messages, self._has_copies = 0, False
        for (topic, partition, offset), *_ in chain.from_iterable(map(_lines, self._paths())):
            so_far = extents.get((topic, partition), Extent(offset, offset))
            self._messages += 1
            self._has_copies |= offset < so_far.high
            extents[topic, partition] = Extent(min(so_far.low, offset), max(so_far.high, offset + 1))
        self._ends = {where: extent.high for where, extent in extents.items()}
        return extents

    def planner(self, starts: Positions, guard: Guard, pacing: Pacing) -> _OnePlan:  # noqa: ARG002
        """Plans one micro-batch of all files, so that no boundary is read before the changes below it."""
        offsets = {where: start.offset for where, start in starts.items()}
        return _OnePlan(self._batch(offsets), offsets)

    def largest(self, most: Amount) -> Amount:  # noqa: ARG002
        """Tells how much there is.  The bytes of events are about those of the files: base64 makes messages larger, and
        events repeat the names of columns."""
        return Amount(self._messages, sum(path.stat().st_size for path in self._paths()))

    def everything(self, extents: Mapping[PartitionId, Extent]) -> CaptureBatch:  # noqa: ARG002
        """Makes one micro-batch of all lines, without copies of a message."""
        return self._batch({})

    def _batch(self, starts: Mapping[PartitionId, int]) -> CaptureBatch:
        return CaptureBatch(tuple(self._paths()), starts, self._ends, self._has_copies)

    def sample(self, count: int) -> list[KeyAndValue]:
        return list(
            within_sample_bytes((message.key, message.value) for message in islice(self.messages(None, None), count))
        )

    def heads(self, count: int) -> Iterator[tuple[PartitionId, Iterable[KeyAndValue]]]:
        heads: dict[PartitionId, list[KeyAndValue]] = {}
        for (topic, partition, _), key, value, _ in self.messages(None, None):
            if len(head := heads.setdefault((topic, partition), [])) < count:
                head.append((key, value))
        return iter(heads.items())

    def tails(self, count: int) -> Iterator[tuple[PartitionId, Iterable[KeyAndValue]]]:
        tails: dict[PartitionId, deque[KeyAndValue]] = {}
        for (topic, partition, _), key, value, _ in self.messages(None, None):
            tails.setdefault((topic, partition), deque(maxlen=count)).append((key, value))
        return iter(tails.items())

    def messages(self, partition: int | None, offset: int | None) -> Iterator[Message]:
        for message in chain.from_iterable(map(_lines, self._paths())):
            if partition in {None, message.position.partition} and message.position.offset >= (offset or 0):
                yield message

    def _paths(self) -> list[Path]:
        """Gives the files, whatever folder the process works in that reads them."""
        path = self._path.absolute()
        return sorted(path.glob("*.jsonl")) if path.is_dir() else [path]


def _require_file(path: Path) -> None:
    """Raises UsageError for what cannot be read, or is no file: lines are read more than once, which a pipe cannot."""
    why = "" if path.is_file() else "it is no file"
    try:
        if not why:
            path.open("rb").close()
    except OSError as error:
        why = error.strerror or str(error)
    if why:
        raise UsageError(f"the capture file {path} cannot be read: {why}", fix="check --input")


class _OnePlan:
    """Plans one micro-batch, of what lies behind `starts`."""

    def __init__(self, batch: CaptureBatch, starts: Mapping[PartitionId, int]) -> None:
        self._next = batch if any(end > starts.get(where, 0) for where, end in batch.ends.items()) else None
        self.ends = batch.ends

    def next(self, wait: Wait, most: Callable[[], int]) -> CaptureBatch | None:  # noqa: ARG002
        """Gives it at the first call."""
        batch, self._next = self._next, None
        return batch


@dataclass(frozen=True)
class CaptureBatch:
    """The lines of capture files.

    lows: no message of a partition below its offset is wanted.
    ends: where the partitions end.
    has_copies: whether several lines may be the same message; then one task reads them all.
    """

    paths: tuple[Path, ...]
    lows: Mapping[PartitionId, int]
    ends: Mapping[PartitionId, int]
    has_copies: bool
    messages: ClassVar[None] = None
    is_cut: ClassVar[bool] = False
    is_divisible: ClassVar[bool] = False
    starts: ClassVar[Mapping[PartitionId, int]] = NO_ENDS

    def split(self, size: int) -> tuple[CaptureBatch, None]:  # noqa: ARG002
        """Returns the whole batch: no boundary may be read before the changes below it."""
        return self, None

    def reads(self, count: int) -> list[Read]:  # noqa: ARG002
        """Gives the pieces of the files, whatever `count` is."""
        pieces = _pieces(self.paths)
        if self.has_copies:
            pieces = [list(chain.from_iterable(pieces))]
        return [partial(_read, piece, self.lows) for piece in pieces]


class _Range(NamedTuple):
    """The lines of a file that begin at one of the bytes [begin, end)."""

    path: Path
    begin: int
    end: int


def _pieces(paths: Iterable[Path]) -> list[list[_Range]]:
    """Divides files into pieces of about 8 MiB; one at least."""
    pieces, held = [list[_Range]()], 0
    for path in paths:
        size = path.stat().st_size
        for begin in range(0, size, _PIECE):
            end = min(begin + _PIECE, size)
            if held and held + end - begin > _PIECE:
                pieces.append([])
                held = 0
            pieces[-1].append(_Range(path, begin, end))
            held += end - begin
    return pieces


def _read(piece: Iterable[_Range], lows: Mapping[PartitionId, int]) -> Iterator[Messages]:
    """Reads the messages of a piece, each position once."""
    return joined_lots(
        Messages([topic], [partition], [offset], [key], [value], [latest_ms(timestamp)])
        for (topic, partition, offset), key, value, timestamp in _once(chain.from_iterable(starmap(_lines, piece)))
        if offset >= lows.get((topic, partition), 0)
    )


def _once(messages: Iterable[Message]) -> Iterator[Message]:
    positions = set[Position]()
    for message in messages:
        if message.position not in positions:
            positions.add(message.position)
            yield message


def _lines(path: Path, begin: int = 0, end: float = math.inf) -> Iterator[Message]:
    """Reads the lines that begin at one of the bytes [begin, end)."""
    with path.open("rb") as file:
        at = begin
        if begin:
            file.seek(begin - 1)
            at += len(file.readline()) - 1
        for line in file:
            if at >= end:
                break
            at += len(line)
            if line.strip():
                yield _line(path, line)


def _line(path: Path, line: bytes) -> Message:
    try:
        fields = orjson.loads(line)
        topic = fields.get("topic") or DEFAULT_CAPTURE_TOPIC
        position = Position(str(topic), int(fields["partition"]), int(fields["offset"]))
        key, value = (_decode_base64(fields.get(name)) for name in ("key", "value"))
        if isinstance(headers := fields.get("headers"), dict):
            ids = {name: _decode_base64(text) for name, text in headers.items() if name.endswith(SUFFIXES)}
            key, value = with_ids(key, value, ids)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise _not_a_message(path, line.decode(errors="replace").strip()[:_SHOWN]) from error
    if min(position.partition, position.offset) < 0:
        raise _not_a_message(path, f"partition {position.partition} or offset {position.offset} is below 0")
    return Message(position, key, value, _timestamp(fields.get("timestamp")))


def _timestamp(stamp: object) -> int:
    try:
        return int(stamp)  # type: ignore[call-overload, no-any-return]
    except (ValueError, TypeError):
        return 0


def _not_a_message(path: Path, what: str) -> UsageError:
    return UsageError(
        f"a line of {path} is not a captured message: {what}",
        fix='each line is {"partition":0,"offset":12,"key":"<base64>"|null,"value":"<base64>"|null}',
    )


def _decode_base64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode("".join(text.split()), validate=True)
