"""Makes the writer that a pipeline's consistency and its progress ask for."""

from __future__ import annotations

from typing import Any

import structlog

from bridge.model import goes_by_partition
from bridge.mysql.apply.writer import Writer
from bridge.mysql.connection.target import Target
from bridge.mysql.parallel.parallel_writer import Executors, ParallelWriter
from bridge.mysql.state.ownership import Ownership
from bridge.mysql.state.progress import Progress, ProgressTable

log = structlog.get_logger()


def writer_of(
    target: Target,
    table: ProgressTable,
    ownership: Ownership,
    progress: Progress,
    *,
    is_parallel: bool,
    executors: Executors,
    connections: int,
    **options: Any,
) -> Writer:
    """Makes the writer.  A step of `parallel` that was interrupted is finished as it was begun: one transaction would
    gain nothing, and the target may refuse it, as it can be much larger than any other.

    executors, connections, options: those of `ParallelWriter`.
    """
    is_begun = progress.in_parts and not goes_by_partition(progress.positions)
    if not is_parallel and not is_begun:
        return Writer(target, table, ownership, **options)
    if not is_parallel:
        log.info(
            "interrupted_step", up_to=progress.applying_ts, written_by=f"{connections} connections, as it was begun"
        )
    return ParallelWriter(
        target,
        table,
        ownership,
        executors=executors,
        connections=connections,
        begun_ts=progress.applying_ts if is_begun else 0,
        only_begun=not is_parallel,
        **options,
    )
