"""The target, the source and the upstream, as the settings name them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from bridge.config import Settings
from bridge.errors import UsageError
from bridge.mysql.connection import Target
from bridge.protocols import make_decoder, recognise
from bridge.sources.source import Source

_SAMPLE: Final = 100
"""How many messages tell the protocol."""


def target_of(settings: Settings) -> Target:
    """The target; UsageError when none is given."""
    section = settings.target
    if not section.url:
        raise UsageError("there is no target", fix="give --target mysql://user@host:port/")
    return Target(
        section.url,
        password=section.password,
        password_file=section.password_file,
        tls=section.tls_as("target"),
        timeout_seconds=section.timeout_seconds,
    )


def upstream_of(settings: Settings) -> Target:
    """The upstream itself; UsageError when none is given."""
    section = settings.upstream
    if not section.url:
        raise UsageError("there is no source to look into", fix="give --source mysql://user@host:port/")
    return Target(
        section.url,
        password=section.password,
        password_file=section.password_file,
        role="source",
        tls=section.tls_as("upstream"),
        timeout_seconds=section.timeout_seconds,
    )


def source_of(settings: Settings) -> Any:
    """The source; UsageError when none is given, or with properties that Kafka's clients do not have.  Its modules take
    a while to import."""
    from bridge.sources.capture_files import CaptureSource
    from bridge.sources.kafka import KafkaSource

    source = settings.source
    if source.input:
        return CaptureSource(source.input)
    if not source.bootstrap_servers or not source.topics:
        raise UsageError("there is no source", fix="give --bootstrap-servers and --topic, or --input for capture files")
    kafka = KafkaSource(source.bootstrap_servers, tuple(source.topic_starts), source.client_properties)
    kafka.check_properties()
    return kafka


def protocol_of(settings: Settings, source: Source, say: Callable[[str], None]) -> str:
    """The protocol.  Where it is `auto` it is found from the first messages of the source, and said with the reason.

    Raises UsageError for settings that its decoder refuses, SourceError where it cannot be told.
    """
    protocol = settings.protocol
    if protocol == "auto":
        protocol, reason = recognise(source.sample(_SAMPLE))
        say(f"protocol {protocol}: {reason}")
    make_decoder(protocol, settings.decode_options())
    return protocol
