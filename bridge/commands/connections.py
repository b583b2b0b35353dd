"""Makes the target, the source and the upstream that the settings name, and short sessions on the target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

import structlog
from pymysql.err import MySQLError

from bridge.config import Settings, TargetSection, UpstreamSection
from bridge.errors import UsageError
from bridge.filters.routes import Routes
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.connection.tls import Tls
from bridge.mysql.server_errors import server_words
from bridge.mysql.state.progress import ProgressTable
from bridge.mysql.table_definition import FIX, ExtraKey, find_extra_keys
from bridge.protocols import make_decoder, recognise

if TYPE_CHECKING:
    from bridge.sources.source import Source

_SAMPLE: Final = 100
"""How many messages are read to recognise the protocol."""


def progress_of(settings: Settings) -> ProgressTable:
    """Returns the progress row of the pipeline."""
    return ProgressTable(settings.name, settings.target.schema_name)


def target_of(settings: Settings) -> Target:
    """Returns the target; UsageError when none is given."""
    settings.target.require()
    return _reached_as(settings.target, settings.target.url)


@contextmanager
def open_session(target: Target, *, autocommit: bool = True) -> Iterator[Session]:
    """Opens a session on the target for a few queries; turns the driver's errors into TargetError."""
    with target.expected_errors(), closing(target.connect(autocommit=autocommit)) as session:
        yield session


def replicas_of(settings: Settings) -> tuple[Target, ...]:
    """Returns the replicas of the target, each reached as the target is."""
    section = settings.target
    address = urlsplit(section.url)
    user, at, _ = address.netloc.rpartition("@")
    return tuple(
        _reached_as(section, urlunsplit((address.scheme, f"{user}{at}{place}", "/", "", "")))
        for place in section.replicas
    )


def upstream_of(settings: Settings) -> Target:
    """Returns the upstream server; UsageError when none is given."""
    section = settings.upstream
    if not section.url:
        raise UsageError("no upstream server is given", fix="give --upstream mysql://user@host:port/")
    return _reached_as(section, section.url, role="upstream")


def _reached_as(section: TargetSection | UpstreamSection, url: str, *, role: str = "target") -> Target:
    """Returns the server at this address, which is reached as the section says."""
    return Target(
        url,
        password=section.password,
        password_file=section.password_file,
        role=role,
        tls=Tls(section.tls, section.tls_ca, section.tls_cert, section.tls_key, section.role),
        timeout_seconds=section.timeout_seconds,
    )


def source_of(settings: Settings) -> Any:
    """Returns the source; UsageError when none is given, or when Kafka's clients do not know a property.

    The imports stand in the function because they take a while.
    """
    from bridge.sources.capture_files import CaptureSource
    from bridge.sources.kafka.source import KafkaSource

    source = settings.source
    source.require()
    if source.input:
        return CaptureSource(source.input)
    kafka = KafkaSource(source.bootstrap_servers, tuple(source.topic_starts), source.client_properties)
    kafka.check_properties()
    return kafka


def protocol_of(
    settings: Settings, source: Source, say: Callable[[str], None], wait: Callable[[], object] | None = None
) -> str:
    """Returns the protocol.  For `auto`, recognises it from the first messages of the source and prints it with the
    reason, through `say`.

    wait: called again and again while the source holds no message; None: an empty source is an error.
    Raises UsageError for settings that the decoder refuses, SourceError when the source cannot be read.
    """
    from bridge.sources.source import plain_sample

    protocol, options = settings.protocol, settings.decode_options()
    if protocol == "auto":
        sample = plain_sample(source, _SAMPLE, options.schemas)
        if wait is not None and not sample:
            say(f"{source}: there is no message yet; waiting for the first one, which tells the protocol")
            while not sample:
                wait()
                sample = plain_sample(source, _SAMPLE, options.schemas)
        protocol, reason = recognise(sample)
        say(f"protocol {protocol}: {reason}")
    make_decoder(protocol, options)
    return protocol


log = structlog.get_logger()


def extra_keys(target: Target, upstream: Target, routes: Routes) -> list[ExtraKey]:
    """Finds the unique keys of the wanted tables that only the target has.

    Raises the driver's errors, or TargetError when a login is refused.
    """
    with closing(target.connect(autocommit=True)) as here, closing(upstream.connect(autocommit=True)) as there:
        keys = find_extra_keys(here, there, routes.target)
        return [extra for extra in keys if routes.accepts_target(*extra.table)]


def warn_of_extra_keys(target: Target, upstream: Target, routes: Routes) -> None:
    """Logs a warning for each of these keys.  When a server does not answer, the pipeline starts all the same."""
    try:
        keys = extra_keys(target, upstream, routes)
    except (MySQLError, OSError) as error:
        log.warning("unique_keys_not_compared", error=server_words(error))
        return
    for extra in keys:
        log.warning("target_only_unique_key", found=str(extra), fix=FIX)
