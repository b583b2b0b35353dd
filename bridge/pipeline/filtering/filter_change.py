"""Records the filters of a pipeline; where they are others than before, sets it back to where messages have to be read
again.

What a filter left out at or above the applied ts lies before the offset at which a restart would begin: nothing of it
waits for the target.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import structlog

from bridge.ends.end import End, Ends
from bridge.model import Advance, PartitionId, Positions, goes_by_partition, goes_by_transactions
from bridge.mysql.state.ownership import Ownership
from bridge.mysql.state.progress import Progress
from bridge.mysql.state.routes_record import keep_routes, lets_more_in
from bridge.pipeline.assembly import Assembly
from bridge.pipeline.watching.start import attempts_to_start
from bridge.protocols import Decoder, decode_message, make_decoder
from bridge.protocols.plausible_times import highest_ts
from bridge.sources.kafka.topic_guard import attempts_at, ids_of, topics_to_keep
from bridge.sources.source import Stamped
from bridge.tso import ms_tso, tso_ms, tso_time

_MARGIN_MS: Final = 600_000
"""By how much the clocks of those who send messages may be behind the upstream's."""

_SAMPLED: Final = 100
"""How many messages show whether timestamps are behind."""

log = structlog.get_logger()


def keep_filters(assembly: Assembly, ownership: Ownership, progress: Progress, ends: Ends) -> Progress:
    """Records the routes and the filters of the settings; returns the progress, set back where they may let in what was
    left out before.

    Raises what `keep_routes` and `topics_to_keep` raise, OwnedError after a take-over, and what is raised for an end
    that is away for too long.
    """
    rules, table = assembly.settings.row_rules, assembly.progress_table()
    is_wider = False
    for attempt in attempts_to_start(ends.target, assembly.target):
        with attempt:
            ownership.revive()
            is_wider = lets_more_in(ownership.control, table.schema, progress, rules)
    positions = _read_again(assembly, ends.source, progress) if is_wider else progress.positions
    step = Advance(progress.applied_ts, progress.applied_ts, positions, progress.pending)
    for attempt in attempts_to_start(ends.target, assembly.target):
        with attempt:
            ownership.revive()
            ownership.committing(step)
            session = ownership.control
            with session.transaction():
                keep_routes(session, table.schema, progress, rules)
                if positions != progress.positions and not table.set_positions(session, ownership.epoch, positions):
                    raise ownership.lost()
            ownership.committed(step)
    return replace(progress, positions=positions)


def _read_again(assembly: Assembly, end: End, progress: Progress) -> Positions:
    """Returns where to read again.  In the order of the partitions, and of transactions, the pipeline stays where it
    is: nothing tells which of the messages before came after a copy."""
    if goes_by_partition(progress.positions) or goes_by_transactions(progress.positions):
        return progress.positions
    since, offsets, source = 0, dict[PartitionId, int](), assembly.source
    for attempt in attempts_at(end, "offsets"):
        with attempt:
            topics_to_keep(progress, ids_of(source.topics()))  # one that was created again has other offsets
            since, offsets = _moment(assembly, progress)
    positions = set_back(progress.positions, since, offsets)
    if positions != progress.positions:
        log.info("reading_again", applied_ts=progress.applied_ts, since=tso_time(ms_tso(since)))
    return positions


def _moment(assembly: Assembly, progress: Progress) -> tuple[int, dict[PartitionId, int]]:
    """Returns the moment of Kafka's timestamps from which on messages are read again, and the offsets there.

    Messages at these offsets, and where the pipeline stands, show by how much timestamps are behind: those of a sender
    whose clock is.  Then the moment is as much earlier.
    """
    source, behind = assembly.source, 0
    decoder = make_decoder(assembly.protocol, assembly.settings.decode_options())
    stands = {where: start.offset for where, start in progress.positions.items()}
    while True:
        since = sent_since(progress.applied_ts, behind)
        offsets = dict(source.since(progress.positions, since))
        found = max(behind_ms(decoder, source.stamped(some, _SAMPLED)) for some in (stands, offsets))
        if found <= behind or not since:
            break
        behind = found
    if behind > _MARGIN_MS:
        log.warning(
            "timestamps_behind",
            seconds=round(behind / 1000),
            fix="Kafka's timestamps of the messages are behind the upstream's clock, so more is read again; see the"
            " clock of those who send them",
        )
    return since, offsets


def behind_ms(decoder: Decoder, messages: Iterable[Stamped]) -> int:
    """Tells by how many milliseconds timestamps are behind what their messages tell, at most; 0 where none is.  A
    message of a time that has not come yet tells nothing: it is in the quarantine."""
    now_ms = round(time.time() * 1000)
    told = (
        tso_ms(event.commit_ts) - message.stamp
        for message in messages
        if message.stamp > 0
        for highest in [highest_ts([message.stamp, now_ms], decoder.ms_ahead)]
        for event in decode_message(decoder, message.key, message.value, highest)
        if event.commit_ts and not event.by_time
    )
    return max(0, max(told, default=0))


def sent_since(applied_ts: int, behind: int = 0) -> int:
    """Returns the moment (ms since 1970) from which on everything was sent that was committed at or above the applied
    ts (TSO): a message is stamped after the commit that it tells of.  behind: by how many ms timestamps are behind."""
    return max(0, tso_ms(applied_ts) - _MARGIN_MS - behind)


def set_back(positions: Positions, since: int, offsets: Mapping[PartitionId, int]) -> Positions:
    """Returns positions that begin no later than these offsets, where the messages of the moment `since` begin.

    Of the boundaries before them it is only known that they are not above that moment.  What comes again from below the
    applied ts counts as a copy.
    """
    return {
        where: start._replace(offset=offsets[where], boundary=min(start.boundary, ms_tso(since)))
        if offsets.get(where, start.offset) < start.offset
        else start
        for where, start in positions.items()
    }
