"""Lets workers compare tables side by side; a worker that has no table left helps with the large ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Condition
from typing import Generic, TypeVar

from bridge.verify.compare.bisect import TableComparison
from bridge.verify.compare.key_ranges import RangeWalk
from bridge.verify.snapshots import Throttle

T = TypeVar("T")
R = TypeVar("R")
Shared = tuple[TableComparison, RangeWalk]


class WorkerPool(Generic[T]):
    """Workers and the tables that they share.  tables: in the order in which they are begun."""

    def __init__(self, tables: Iterable[T]) -> None:
        self._waiting = deque(tables)
        self._changed = Condition()
        self._shared: list[Shared] = []
        self._owners = 0
        self._is_stopped = False
        self._failure: BaseException | None = None

    def results(
        self,
        workers: Sequence[Callable[[], list[R]]],
        throttle: Throttle,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> list[R]:
        """Runs the workers at once, and `meanwhile` in this thread; raises the first failure, when all of them have
        ended."""
        with ThreadPoolExecutor(len(workers), thread_name_prefix="tables") as pool:
            futures = [pool.submit(worker) for worker in workers]
            try:
                meanwhile()
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                self.stop()
                throttle.stop()
        if self._failure:
            raise self._failure
        return [result for future in futures for result in future.result()]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Surrounds all that one worker does: when it fails, all workers end."""
        try:
            yield
        except BaseException as error:
            with self._changed:
                self._failure = self._failure or error
            raise

    def stop(self) -> None:
        """Ends the pool: no worker begins anything more."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def own_tables(self) -> Iterator[T]:
        """Hands tables to one worker until none is left."""
        while True:
            with self._changed:
                if self._is_stopped or not self._waiting:
                    return
                table = self._waiting.popleft()
                self._owners += 1
            try:
                yield table
            finally:
                with self._changed:
                    self._owners -= 1
                    self._changed.notify_all()

    @contextmanager
    def shared(self, comparison: TableComparison, walk: RangeWalk) -> Iterator[None]:
        """Surrounds the comparison of a table that other workers may help with."""
        with self._changed:
            self._shared.append((comparison, walk))
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._shared.remove((comparison, walk))

    def others_tables(self) -> Iterator[Shared]:
        """Gives tables that other workers have begun and that have ranges left, until all are compared."""
        while (shared := self._next_shared()) is not None:
            yield shared

    def _next_shared(self) -> Shared | None:
        with self._changed:
            while not self._is_stopped and (self._owners or self._open()):
                if shared := self._open():
                    return shared
                self._changed.wait()
            return None

    def _open(self) -> Shared | None:
        return next((shared for shared in self._shared if shared[1].has_more), None)
