"""Reads the first messages of a source as JSON, to recognise what they are."""

from __future__ import annotations

from itertools import islice

from bridge.errors import SourceError
from bridge.protocols import in_json
from bridge.protocols.decoder import SchemaLookup
from bridge.sources.source import KeyAndValue, Source


def plain_sample(source: Source, count: int, schemas: SchemaLookup | None) -> list[KeyAndValue]:
    """Gives up to `count` messages, those in Avro as JSON with their schemas.  Raises SourceError, which names the
    message, where it or its schema cannot be read."""
    messages = source.sample(count)
    try:
        return in_json(messages, schemas)
    except SourceError as error:
        error.where = error.where or _first_without_schema(source, count, schemas)
        raise


def _first_without_schema(source: Source, count: int, schemas: SchemaLookup | None) -> str:
    for position, key, value in islice(source.messages(None, None), count):
        try:
            in_json([(key, value)], schemas)
        except SourceError:
            return str(position)
    return f"the first messages of {source}"
