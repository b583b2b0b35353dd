"""Messages to events: what cannot be decoded becomes an event, too, that says why."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence

from bridge.events import Code, Event, Kind
from bridge.protocols.decoder import FAILURES, DecodeError, Decoder
from bridge.protocols.detect import Recognised, is_other, recognise_message


def decode_message(decoder: Decoder, key: bytes | None, value: bytes | None) -> list[Event]:
    """The events of one message, or one BAD event that says why there are none."""
    try:
        return decoder.decode(key, value)
    except DecodeError as failure:
        return [bad_message(decoder.protocols, failure, key, value)]


def decode_all(
    decoder: Decoder, keys: Sequence[bytes | None], values: Sequence[bytes | None]
) -> tuple[list[Event], list[int]]:
    """The events of many messages, in order, and of each event the number of its message."""
    events: list[Event] = []
    numbers: list[int] = []
    decoder.look_over(values)
    usual_events = decoder.usual_events
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        try:
            found = usual_events(key, value)
        except (*FAILURES, DecodeError):
            found = None
        if found is None:
            found = decode_message(decoder, key, value)
        events.extend(found)
        numbers.extend([number] * len(found))
    return events, numbers


def bad_message(protocols: Sequence[str], failure: DecodeError, key: bytes | None, value: bytes | None) -> Event:
    """The event of a message that cannot be decoded, with its bytes.

    protocols: those that are read.  What shows itself as a schema change has its code, whatever the failure.
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
