"""One message to events: a message that cannot be decoded becomes an event too, which says why."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence

from bridge.events import Code, Event, Kind
from bridge.protocols.decoder import DecodeError, Decoder, PlainDecoder
from bridge.protocols.detect import Recognised, is_other, recognise_message


def decode_message(decoder: Decoder | PlainDecoder, key: bytes | None, value: bytes | None) -> list[Event]:
    """Gives the events of one message by the plain path, or one BAD event that says why there are none."""
    try:
        return decoder.decode(key, value)
    except DecodeError as failure:
        return [bad_message(decoder.protocols, failure, key, value)]


def bad_message(protocols: Sequence[str], failure: DecodeError, key: bytes | None, value: bytes | None) -> Event:
    """Gives the event of a message that cannot be decoded, with its bytes.

    protocols: those that are read, the pipeline's own first.
    A message that shows itself as a schema change has the code SCHEMA_CHANGE, whatever failed.
    """
    seen, code, reason = recognise_message(key, value), failure.code, str(failure)
    if seen and protocols and is_other(seen, protocols):
        code, reason = Code.OTHER_PROTOCOL, _of_another_protocol(seen, protocols[0])
    if seen and seen.is_schema_change:
        code = Code.SCHEMA_CHANGE
    return Event(Kind.BAD, 0, columns=code, before=_base64(key), after=_base64(value), text=reason)


def _of_another_protocol(seen: Recognised, mine: str) -> str:
    return (
        f"it is a message of {seen.protocol} ({seen.variant}), and a pipeline reads one protocol, here {mine}: have it"
        " sent to a topic of its own, or if the upstream has gone over to it for good, start with --protocol"
        f" {seen.protocol}"
    )


def _base64(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()
