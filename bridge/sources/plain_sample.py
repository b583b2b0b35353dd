"""Reads the first messages of a source as JSON, to recognise what they are."""

from __future__ import annotations

from bridge.errors import SourceError
from bridge.protocols import in_json
from bridge.protocols.decoder import SchemaLookup
from bridge.sources.source import KeyAndValue, Source


def plain_sample(source: Source, count: int, schemas: SchemaLookup | None) -> list[KeyAndValue]:
    """Gives up to `count` messages, those in Avro as JSON with their schemas.  Raises SourceError, which names the
    source, where it or the schema registry cannot be read."""
    messages = source.sample(count)
    try:
        return in_json(messages, schemas)
    except SourceError as error:
        error.where = error.where or f"the first messages of {source}"
        raise
