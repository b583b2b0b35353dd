"""Decodes one message to events.  A message that cannot be decoded becomes an event that says why."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence

from bridge.events import Code, Event, Kind
from bridge.protocols.decoder import MAX_COMMIT_TS, DecodeError, Decoder, PlainDecoder
from bridge.protocols.detect import is_other, recognise_message
from bridge.protocols.foreign import foreign
from bridge.protocols.plausible_times import check_times
from bridge.protocols.protocol import Recognised


def decode_message(
    decoder: Decoder | PlainDecoder, key: bytes | None, value: bytes | None, highest: int = MAX_COMMIT_TS
) -> list[Event]:
    """Gives the events of one message by the plain path, or one BAD event that says why there are none.

    highest: the highest TSO that the message can tell (`plausible_times`).
    """
    try:
        events = decoder.decode(key, value)
        check_times(events, highest)
        return events
    except DecodeError as failure:
        return [bad_message(decoder.protocols, failure, key, value, decoder.schemas_of(key, value))]


def bad_message(
    protocols: Sequence[str], failure: DecodeError, key: bytes | None, value: bytes | None, schemas: str | None = None
) -> Event:
    """Makes the event for a message that cannot be decoded, with the message's bytes.

    protocols: the protocols that are read, the pipeline's own first.  schemas: as `Decoder.schemas_of` gives them.
    A message that shows itself as a schema change has the code SCHEMA_CHANGE, whatever failed.
    """
    origin, code, reason = recognise_message(key, value), failure.code, str(failure)
    if origin and protocols and is_other(origin, protocols):
        code, reason = Code.OTHER_PROTOCOL, _of_another_protocol(origin, protocols[0])
    if origin is None and (wire_format := foreign(key, value)) and not (wire_format.is_read and protocols):
        reason = f"it is {wire_format.what} ({wire_format.fix}); {reason}"
    if origin and origin.is_schema_change:
        code = Code.SCHEMA_CHANGE
    return Event(Kind.BAD, 0, columns=code, key=schemas, before=_base64(key), after=_base64(value), text=reason)


def _of_another_protocol(origin: Recognised, own: str) -> str:
    return (
        f"it is a message of {origin.protocol} ({origin.variant}), and a pipeline reads one protocol, here {own}: send"
        " it to a topic of its own, or, if the upstream has changed its protocol for good, start with --protocol"
        f" {origin.protocol}"
    )


def _base64(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()
