"""`bridge run` and `bridge replay`: makes a pipeline from its settings."""

from __future__ import annotations

import threading
from collections.abc import Callable

from bridge.commands.connections import protocol_of, replicas_of, source_of, target_of, upstream_of
from bridge.commands.extra_unique_keys import warn_of_extra_keys
from bridge.config import RETRY_SECONDS, Settings, parse_moment
from bridge.filters.table_filter import TableFilter
from bridge.pipeline.assembly import Assembly, ends_of
from bridge.pipeline.pipeline import Pipeline
from bridge.pipeline.watching.start import attempts_to_start
from bridge.sources.topic_guard import attempts_at
from bridge.verify.source.historical_rows import UpstreamRows


def assemble(settings: Settings, say: Callable[[str], None], stop: threading.Event, *, once: bool) -> Pipeline:
    """Returns the pipeline of the settings, ready to run.

    say: prints a line; called with the protocol that was recognised.
    stop: set when a source or a target that is away is not waited for any more; raises Abandoned then.
    once: as in `ends_of`.
    Raises UsageError for settings that contradict each other, SourceError or TargetError when the source or the target
    cannot be reached.
    """
    tables = TableFilter(settings.filter)
    parse_moment(settings.begin)
    settings.ddl_rules()
    target, source = target_of(settings), source_of(settings)
    ends = ends_of(settings, target, source, stop, once=once)
    protocol = settings.protocol
    for attempt in attempts_at(ends.source, "recognising the protocol"):
        with attempt:
            protocol = protocol_of(settings, source, say)
    upstream = None
    if settings.upstream.url:
        upstream = UpstreamRows(upstream_of(settings), retry_seconds=settings.source.retry_seconds or RETRY_SECONDS)
        for attempt in attempts_to_start(ends.target, target):
            with attempt:
                target.connect(autocommit=True).close()
        warn_of_extra_keys(target, upstream_of(settings), tables)
    return Pipeline(Assembly(settings, target, source, protocol, upstream, replicas_of(settings)))
