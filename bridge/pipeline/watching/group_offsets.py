"""Commits to a consumer group what is in the target, so that the usual tools for the lag of Kafka see it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

import structlog

from bridge.errors import SourceError
from bridge.model import PartitionId
from bridge.pipeline.watching.status_reporter import StatusReporter
from bridge.sources.source import Source

COMMIT_SECONDS: Final = 5.0
"""How often offsets are committed, if they have moved."""
_END_SECONDS: Final = 3.0

log = structlog.get_logger()


class GroupOffsets:
    """Commits the offsets at which a restart would begin, in a thread of its own, for as long as the block lasts.

    They are never read: a restart begins where the progress in the target says.  What Kafka does not take is tried
    again, and warned about once.
    """

    def __init__(self, source: Source, group: str) -> None:
        self._source, self._group = source, group
        self._reporter: StatusReporter | None = None
        self._committed: Mapping[PartitionId, int] = {}
        self._is_over = threading.Event()
        self._is_warned = False
        self._thread = threading.Thread(target=self._work, name="group-offsets", daemon=True)

    def __enter__(self) -> GroupOffsets:
        if self._group:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._group:
            self._thread.join(_END_SECONDS)

    def report_on(self, reporter: StatusReporter) -> None:
        """Sets whose progress is committed, from now on."""
        self._reporter = reporter

    def _work(self) -> None:
        while not self._is_over.wait(COMMIT_SECONDS):
            self._commit()
        self._commit()

    def _commit(self) -> None:
        if self._reporter is None:
            return
        offsets = {where: start.offset for where, start in self._reporter.committed.items()}
        if offsets == self._committed:
            return
        try:
            self._source.commit(self._group, offsets)
        except SourceError as error:
            if not self._is_warned:
                self._is_warned = True
                log.warning("group_offsets_failed", error=str(error))
        else:
            self._committed = offsets
