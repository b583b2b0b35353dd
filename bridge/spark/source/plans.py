"""Lets the bridge plan what its data source reads.

Spark asks a data source for offsets and tasks in a Python process of its own.  There, `Planned` passes each question
on to the driver, which knows what the target takes, what memory allows, and which topics there are.  It answers through
a socket in the query's folder, which only this user may open.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, Final, Protocol

Offsets = dict[str, dict[str, int]]
"""Topic, then partition as text, then offset: the form in which Spark keeps and shows the offsets of a stream."""

_SOCKET: Final = "plans"


class Plans(Protocol):
    """Answers what Spark asks about a stream."""

    def initial(self) -> Offsets:
        """Gives where the stream begins."""

    def latest(self) -> Offsets:
        """Gives the end of the next micro-batch, once it has one; the present offsets when the stream has ended."""

    def known(self) -> Offsets:
        """Gives where the partitions ended when they were last looked at."""

    def tasks(self) -> list[bytes]:
        """Gives the tasks of the micro-batch that was planned last, as `chunk_source` reads them."""


def nested(offsets: Mapping[tuple[str, int], int]) -> Offsets:
    """Puts offsets of partitions into Spark's form."""
    by_topic: Offsets = {}
    for (topic, partition), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return by_topic


def flat(offsets: Offsets) -> dict[tuple[str, int], int]:
    """Reads offsets in Spark's form."""
    return {(topic, int(partition)): at for topic, ats in offsets.items() for partition, at in ats.items()}


@contextmanager
def answering(plans: Plans, folder: str) -> Iterator[None]:
    """Answers questions about a stream in the block, in a thread for each process that asks."""
    over = threading.Event()
    with _address(folder) as address, Listener(address, "AF_UNIX") as listener:
        accepting = threading.Thread(target=_accept, args=(listener, plans, over), name="plans", daemon=True)
        accepting.start()
        try:
            yield
        finally:
            over.set()
            Client(address, "AF_UNIX").close()  # what waits for a process would wait for ever
            accepting.join()


class Planned:
    """Asks the driver.  It connects at the first question, so that it can be sent to another process."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._connection: Connection[Any, Any] | None = None

    def ask(self, question: str) -> Any:
        """Asks one of the questions of `Plans`, and returns the answer."""
        if self._connection is None:
            with _address(self._folder) as address:
                self._connection = Client(address, "AF_UNIX")
        self._connection.send(question)
        return self._connection.recv()

    def __getstate__(self) -> dict[str, Any]:
        """Gives what another process needs to ask by itself."""
        return {**vars(self), "_connection": None}


def _accept(listener: Listener, plans: Plans, over: threading.Event) -> None:
    while not over.is_set():
        connection = listener.accept()
        threading.Thread(target=_answer, args=(connection, plans), name="plans-answer", daemon=True).start()


def _answer(connection: Connection[Any, Any], plans: Plans) -> None:
    with suppress(EOFError, OSError), connection:  # the process has ended
        while True:
            connection.send(getattr(plans, connection.recv())())


@contextmanager
def _address(folder: str) -> Iterator[str]:
    """Gives the address of the socket in a folder whose path may be longer than that of a socket may be."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{_SOCKET}"
    finally:
        os.close(descriptor)
