"""Makes the next item in a thread while the present one is used."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

_T = TypeVar("_T")


def prefetched(items: Iterator[_T], name: str) -> Generator[_T]:
    """Yields the items; a thread of this name makes the next one while the caller uses the present one.

    A daemon, which a pool's thread is not: one that waits for a broker which is silent must not keep the process from
    ending.
    """
    wanted: SimpleQueue[bool] = SimpleQueue()
    coming: SimpleQueue[tuple[_T | None, BaseException | None]] = SimpleQueue()

    def make() -> None:
        while wanted.get():
            try:
                coming.put((next(items, None), None))
            except BaseException as error:  # noqa: BLE001  # raised again where the item is used
                coming.put((None, error))

    thread = Thread(target=make, name=name, daemon=True)
    thread.start()
    try:
        wanted.put(True)
        while True:
            item, error = coming.get()
            if error is not None:
                raise error
            if item is None:
                return
            wanted.put(True)
            yield item
    finally:
        wanted.put(False)
        thread.join()
