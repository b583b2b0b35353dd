"""`bridge run` and `bridge replay`: makes a pipeline from its settings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bridge.commands.connections import protocol_of, replicas_of, source_of, target_of, upstream_of, warn_of_extra_keys
from bridge.config import RETRY_SECONDS, Settings
from bridge.ends import Abandoned, Ends
from bridge.mysql.connection.target import Target
from bridge.mysql.state.progress import ProgressTable
from bridge.pipeline.assembly import Assembly, ends_of
from bridge.pipeline.pipeline import Pipeline
from bridge.pipeline.status import retried_at_start
from bridge.sources.kafka.topic_guard import ask_kafka
from bridge.sources.source import Source
from bridge.spark.session import StartingSession
from bridge.tso import parse_moment
from bridge.verify.source.historical_rows import UpstreamRows
from bridge.watch.document import Lookups
from bridge.watch.server import parse_address, write_address

if TYPE_CHECKING:
    from bridge.watch.watch import Watch

_LOOK_SECONDS: Final = 1.0
"""How often an empty source is looked at."""


def assemble(settings: Settings, say: Callable[[str], None], stop: threading.Event, *, once: bool) -> Pipeline:
    """Returns the pipeline of the settings, ready to run.  Spark starts as soon as the settings are known to be valid.

    say: prints a line; called with the protocol that was recognised.
    stop: set when a source or a target that is away is not waited for any more; raises Abandoned then.
    once: as in `ends_of`.
    Raises UsageError for settings that contradict each other, SourceError or TargetError when the source or the target
    cannot be reached.
    """
    parse_moment(settings.begin)
    settings.ddl_rules()
    target, source = target_of(settings), source_of(settings)
    ends = ends_of(settings, target, source, stop, once=once)
    spark = StartingSession(settings.spark, settings.log.spark)
    with _watching(settings, target, source, ends) as watch:
        protocol = _protocol(settings, source, ends, say, once=once)
        return Pipeline(_assembly(settings, target, source, ends, protocol), spark, watch)


@contextmanager
def _watching(settings: Settings, target: Target, source: Source, ends: Ends) -> Iterator[Watch | None]:
    """Opens the port of `--listen`, if there is one.  It stays open, unless what follows fails."""
    listen = settings.watch.listen
    if not listen:
        yield None
        return
    from bridge.watch.watch import Watch  # takes a third of a second

    table = ProgressTable(settings.name, settings.target.schema_name)
    watch = Watch(parse_address(listen), settings.name, ends, Lookups(source, target, table))
    try:
        if path := settings.watch.address_file:
            write_address(Path(path), watch.address)
        yield watch
    except BaseException:
        watch.close()
        raise


def _protocol(settings: Settings, source: Source, ends: Ends, say: Callable[[str], None], *, once: bool) -> str:
    """Returns the protocol.  Unless the pipeline ends with its input, waits for the first message of an empty source;
    raises Abandoned at a stop."""

    def wait() -> None:
        if ends.source.stop.wait(_LOOK_SECONDS):
            raise Abandoned

    waiting = None if once else wait
    return ask_kafka(ends.source, "recognising the protocol", lambda: protocol_of(settings, source, say, waiting))


def _assembly(settings: Settings, target: Target, source: Source, ends: Ends, protocol: str) -> Assembly:
    upstream = primary = None
    if settings.upstream.url:
        primary = upstream_of(settings)
        upstream = UpstreamRows(primary, retry_seconds=settings.source.retry_seconds or RETRY_SECONDS)
        retried_at_start(ends.target, target, lambda: target.connect(autocommit=True).close())
        warn_of_extra_keys(target, primary, settings.table_routes)
    return Assembly(settings, target, source, protocol, upstream, primary, replicas_of(settings))
