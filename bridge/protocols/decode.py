"""Decodes one message to events.  A message that cannot be decoded becomes an event that says why."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from bridge.events import Boundary, Code, Event, Undecodable
from bridge.protocols.decoder import MAX_COMMIT_TS, DecodeError, Decoder, RowEvents
from bridge.protocols.detect import foreign, is_other, recognise_message
from bridge.tso import ms_tso, tso_time

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from bridge.protocols.fast.texts import Numbers

_MOST_MS: Final = (1 << 45) - 1


def highest_ts(latest_ms: Iterable[int], ms_ahead: int) -> int:
    """Returns the highest TSO that messages can tell: so much ahead of the latest moment that one can be of."""
    return ms_tso(min(max(latest_ms) + ms_ahead, _MOST_MS) + 1) - 1


def check_times(events: Iterable[Event], highest: int) -> None:
    """Raises DecodeError for an event above the highest TSO.

    Event times do not count: a session of MySQL may set its own (`SET timestamp`), and nothing is dropped by them.
    """
    for event in events:
        ts = getattr(event, "commit_ts", 0)
        if ts > highest and not getattr(event, "by_time", False):
            kind = "boundary" if isinstance(event, Boundary) else "commit ts"
            raise DecodeError(
                f"its {kind} {ts} is {tso_time(ts)}, later than can be ({tso_time(highest)},"
                " by this machine's clock, Kafka's timestamp and source.ahead_seconds): the sender is wrong, or this"
                " machine's clock is behind, or the upstream's is ahead (then raise source.ahead_seconds)",
                Code.AHEAD_OF_CLOCK,
            )


def numbers_above(lots: Iterable[RowEvents], highest: int) -> Numbers:
    """Returns the numbers of the messages with events above the highest TSO, ascending."""
    import numpy as np

    numbers = [np.empty(0, np.int64), *(_above(lot, highest) for lot in lots)]
    return np.unique(np.concatenate(numbers))


def _above(lot: RowEvents, highest: int) -> Numbers:
    are_above: npt.NDArray[np.bool_] = lot.events.column("commit_ts").to_numpy() > highest
    if are_above.any():
        are_above &= ~lot.events.column("by_time").to_numpy(zero_copy_only=False)
    above: Numbers = lot.numbers[are_above]
    return above


def decode_message(
    decoder: Decoder, key: bytes | None, value: bytes | None, highest: int = MAX_COMMIT_TS
) -> list[Event]:
    """Gives the events of one message by the plain path, or one BAD event that says why there are none.

    highest: the highest TSO that the message can tell (`highest_ts`).
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
        code = Code.OTHER_PROTOCOL
        reason = (
            f"it is a message of {origin.protocol} ({origin.variant}), and a pipeline reads one protocol, here"
            f" {protocols[0]}: send it to a topic of its own, or, if the upstream has changed its protocol for good,"
            f" start with --protocol {origin.protocol}"
        )
    if origin is None and (wire_format := foreign(key, value)) and not (wire_format.is_read and protocols):
        reason = f"it is {wire_format.what} ({wire_format.fix}); {reason}"
    if origin and origin.is_schema_change:
        code = Code.SCHEMA_CHANGE
    return Undecodable(code, reason, _base64(key), _base64(value), schemas)


def _base64(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()
