"""`bridge run` and `bridge replay`: makes a pipeline from its settings."""

from __future__ import annotations

from collections.abc import Callable

from bridge.commands.connections import protocol_of, source_of, target_of, upstream_of
from bridge.commands.extra_unique_keys import warn_of_extra_keys
from bridge.config import RETRY_SECONDS, Settings, parse_moment
from bridge.filters.table_filter import TableFilter
from bridge.pipeline.assembly import Assembly
from bridge.pipeline.pipeline import Pipeline
from bridge.verify.source.historical_rows import UpstreamRows


def assemble(settings: Settings, say: Callable[[str], None]) -> Pipeline:
    """Returns the pipeline of the settings, ready to run.

    say: prints a line; called with the protocol that was recognised.
    Raises UsageError for settings that contradict each other, SourceError or TargetError when the source or the target
    cannot be reached.
    """
    tables = TableFilter(settings.filter)
    parse_moment(settings.begin)
    target, source = target_of(settings), source_of(settings)
    upstream = None
    if settings.upstream.url:
        upstream = UpstreamRows(upstream_of(settings), retry_seconds=settings.source.retry_seconds or RETRY_SECONDS)
        warn_of_extra_keys(target, upstream_of(settings), tables)
    return Pipeline(Assembly(settings, target, source, protocol_of(settings, source, say), upstream))
