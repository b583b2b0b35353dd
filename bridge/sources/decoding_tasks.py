"""What Spark's tasks do: read messages and decode them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from bridge.protocols.batch_decode import EventDecoder
from bridge.sources.source import Export, MicroBatch, Read

_T = TypeVar("_T")
Task = Callable[[], Iterable[_T]]
"""Reads, decodes and exports; it is pickled."""


def decoding_tasks(batch: MicroBatch, count: int, decode: EventDecoder, export: Export[_T]) -> list[Task[_T]]:
    """Divides a micro-batch into about `count` tasks, which give what `export` makes of the events of each."""
    return [partial(_decoded, decode, export, read) for read in batch.reads(count)]


def _decoded(decode: EventDecoder, export: Export[_T], read: Read) -> Iterator[_T]:
    return export(decode(read()))
