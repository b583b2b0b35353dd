"""Checks of what the messages are: their protocol, the zone of TIMESTAMP, messages that cannot be decoded, order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bridge.commands.check import Finding, fail, kafka, ok, warn
from bridge.commands.check.kafka import Messages, SourceFacts
from bridge.config import Settings
from bridge.ddl.collation_tables import is_tidb
from bridge.errors import UsageError, counted, few
from bridge.events import Boundary, Code, Event, Kind, RowChange, Undecodable
from bridge.filters.table_filter import TableFilter
from bridge.model import PartitionId, TableName
from bridge.protocols import (
    OLD_VALUES_FIX,
    PROTOCOLS,
    DecodeError,
    binlog_source,
    decode_message,
    in_json,
    is_mysql_born,
    make_decoder,
    recognise,
)
from bridge.protocols.debezium.avro.schemas import framed, is_framed
from bridge.protocols.decode import highest_ts
from bridge.protocols.decoder import SchemaId
from bridge.protocols.detect import is_other, recognise_message
from bridge.protocols.sender_losses import losses
from bridge.registry import SchemaRegistry
from bridge.sources.source import WITHOUT_BOUNDARIES, BoundaryProbe, KeyAndValue, judge_events, transaction_topic
from bridge.tso import tso_time

_FAILOVER: Final = "; it stops after a failover, unless --upstream names the server that the connector reads"
ZONE_FIX: Final = "give --timezone: the zone that the sender runs with, such as UTC or Asia/Shanghai"

Events = Mapping[PartitionId, Sequence[Event]]


@dataclass(frozen=True)
class Decoded:
    """The sampled messages as events.

    is_mysql_born: whether they come from MySQL's binlog.  binlog_of: the server, as `binlog_source` tells it.
    """

    protocol: str
    heads: Events
    tails: Events
    is_mysql_born: bool
    binlog_of: str = ""

    @property
    def events(self) -> list[Event]:
        """The events of all heads."""
        return [event for head in self.heads.values() for event in head]

    @property
    def rows(self) -> list[RowChange]:
        """The row changes among them."""
        return [event for event in self.events if isinstance(event, RowChange)]

    @property
    def lacks_zone(self) -> list[str]:
        """Why messages of the heads cannot be decoded, where it is for want of --timezone."""
        return [bad.reason for bad in _undecodable(self.events) if bad.code == Code.NO_TIMEZONE]


def judge_registry(facts: SourceFacts, registry: SchemaRegistry) -> Iterator[Finding]:
    """Asks for one schema of the sample, also where this machine has kept it.  Raises RegistryAwayError or
    SourceError."""
    for schema_id in _ids(facts):
        try:
            if changed := registry.changed(schema_id):
                yield fail("registry", changed.lstrip("; "), "see [source.registry]")
            else:
                yield ok("registry", f"the schema registry gives the schema {schema_id.number} of the sample")
        except DecodeError as error:
            yield fail("registry", str(error), "see [source.registry]")
        return
    yield ok("registry", "no message of the sample names a schema, so that the schema registry was not asked")


def in_plain_json(facts: SourceFacts, registry: SchemaRegistry) -> SourceFacts:
    """Gives the facts with messages in JSON.  Raises RegistryAwayError or SourceError."""

    def plain(parts: Messages) -> Messages:
        return {where: in_json(messages, registry) for where, messages in parts.items()}

    return replace(facts, heads=plain(facts.heads), tails=plain(facts.tails))


def _ids(facts: SourceFacts) -> Iterator[SchemaId]:
    for _, value in facts.sample:
        if value is not None and is_framed(value):
            try:
                yield framed(value, "the value")[0]
            except DecodeError:  # is shown as what it is: a message that cannot be decoded
                continue


def guess(facts: SourceFacts) -> tuple[str, str]:
    """Recognises the protocol; raises UsageError when the messages do not tell."""
    return recognise(facts.sample)


def judge_protocol(facts: SourceFacts, settings: Settings) -> Finding:
    """Compares the protocol that the messages show with the one that is set."""
    try:
        guessed, reason = guess(facts)
    except UsageError as error:
        if settings.protocol == "auto":
            return fail("protocol", error.what, error.fix)
        return warn("protocol", f"protocol {settings.protocol}, as --protocol says; {error.what}")
    if settings.protocol in {"auto", guessed} or not _is_another(facts, settings.protocol):
        return ok("protocol", f"protocol {guessed}: {reason}")
    return fail(
        "protocol",
        f"--protocol says {settings.protocol}, but the messages are {guessed}: {reason}",
        f"give --protocol {guessed}, or leave it out",
    )


def _is_another(facts: SourceFacts, protocol: str) -> bool:
    recognitions = [recognition for key, value in facts.sample if (recognition := recognise_message(key, value))]
    return any(is_other(recognition, [protocol]) for recognition in recognitions)


def decode(facts: SourceFacts, settings: Settings, protocol: str) -> Decoded:
    """Decodes what was sampled.  Raises UsageError for settings that the decoder refuses."""
    options = replace(settings.decode_options(TableFilter(settings.filter)), cut_rows=bool(settings.upstream.url))
    decoder = make_decoder(protocol, options)
    highest = highest_ts([facts.now_ms], options.ms_ahead)

    def decoded(messages: Sequence[KeyAndValue]) -> list[Event]:
        return [event for key, value in messages for event in decode_message(decoder, key, value, highest)]

    return Decoded(
        protocol,
        {where: decoded(messages) for where, messages in facts.heads.items()},
        {where: decoded(messages) for where, messages in facts.tails.items()},
        is_mysql_born(facts.sample),
        binlog_source(facts.sample),
    )


def judge(facts: SourceFacts, decoded: Decoded, settings: Settings) -> Iterator[Finding]:
    """Judges what the sample holds, and which order the topic allows."""
    yield _judge_zone(decoded, settings)
    yield from judge_source(decoded, settings.ddl.source)
    yield from _judge_events(decoded.events)
    yield from judge_old_values(decoded)
    for loss in losses(facts.sample, settings.decode_options().debezium, is_filtered=bool(settings.filter)):
        yield warn("sender", loss.what, loss.fix)
    probe = probed(facts, decoded, settings)
    if probe.by_partition is False and any(isinstance(e, Boundary) for tail in decoded.tails.values() for e in tail):
        yield from kafka.judge_boundaries(facts, decoded.tails)
    yield _judge_transactions(facts, decoded, settings) or _judge_order(probe, is_binlog=bool(decoded.binlog_of))


def probed(facts: SourceFacts, decoded: Decoded, settings: Settings) -> BoundaryProbe:
    """Tells the order of the source, as a start does."""
    may_lack = PROTOCOLS[decoded.protocol].may_lack_boundaries
    if settings.debezium.without_boundaries and may_lack:
        return WITHOUT_BOUNDARIES
    return judge_events(decoded.events, list(decoded.tails.values()) if may_lack else [], facts.now_ms)


def judge_source(decoded: Decoded, source: str) -> Iterator[Finding]:
    """Compares `ddl.source` with what the messages tell, as far as these do: those of MariaDB name it."""
    if decoded.binlog_of not in {"", "mariadb"} and is_tidb(source):
        yield warn(
            "ddl-source",
            f"the messages were made from a binlog, and ddl.source is {source}: the bridge does not know the upstream's"
            " default collations, and holds schema changes that mean them",
            "set ddl.source to mysql-8, mysql-5.7 or mariadb, as SELECT VERSION() says upstream",
        )
    elif not decoded.binlog_of and not decoded.is_mysql_born and not is_tidb(source):
        yield warn(
            "ddl-source",
            f"the messages are TiCDC's, and ddl.source is {source}: statements without a collation mean TiDB's defaults"
            " upstream",
            'set ddl.source = "tidb", or "tidb-old-collations"',
        )


def _judge_zone(decoded: Decoded, settings: Settings) -> Finding:
    if not PROTOCOLS[decoded.protocol].takes_zone:
        return ok("timezone", f"TIMESTAMP values of {decoded.protocol} say which moment they mean")
    if settings.timezone is not None:
        return ok("timezone", f"TIMESTAMP values are in the zone {settings.timezone}, as --timezone says")
    if lacking := decoded.lacks_zone:
        what = f"{len(lacking)} of the sampled messages need --timezone; the first: {lacking[0]}"
        return fail("timezone", what, ZONE_FIX)
    what = "--timezone is not given: the first TIMESTAMP value that comes will stop the bridge"
    return warn("timezone", what, ZONE_FIX)


def _judge_events(events: Sequence[Event]) -> Iterator[Finding]:
    bad = [message.reason for message in _undecodable(events) if message.code != Code.NO_TIMEZONE]
    if bad:
        yield fail(
            "messages",
            f"the sample holds {counted(len(bad), 'message')} that cannot be decoded; the first: {bad[0]}",
            "fix what the reason names, or start with --on-bad-message quarantine; bridge inspect shows them",
        )
    rows = sum(isinstance(event, RowChange) for event in events)
    boundaries = [event.commit_ts for event in events if isinstance(event, Boundary)]
    first = f", the first at {tso_time(min(boundaries))}" if boundaries else ""
    yield ok("sample", f"the sample holds {rows} row changes and {len(boundaries)} boundaries{first}")


def judge_old_values(decoded: Decoded) -> Iterator[Finding]:
    """Warns of tables without a key whose updates would be taken for inserts.  One update shows that old values come,
    as they are a setting of the whole changefeed."""
    if not PROTOCOLS[decoded.protocol].may_hide_updates or any(row.kind is Kind.UPDATE for row in decoded.rows):
        return
    keyless = {str(TableName(row.schema, row.table)) for row in decoded.rows if row.kind is Kind.INSERT and not row.key}
    if keyless:
        yield warn(
            "old values",
            f"no message of the sample has old values, and there are tables without a key ({few(sorted(keyless), 3)}):"
            " if the changefeed leaves old values out, each update of theirs is applied as an insert",
            OLD_VALUES_FIX,
        )


def _undecodable(events: Iterable[Event]) -> Iterator[Undecodable]:
    return (event for event in events if isinstance(event, Undecodable))


def _judge_transactions(facts: SourceFacts, decoded: Decoded, settings: Settings) -> Finding | None:
    """Tells what Debezium's topic of transactions allows; None where it is not read."""
    options = replace(settings.decode_options(), transactions=True)
    try:
        topic = transaction_topic(decoded.protocol, options, facts.extents or facts.heads, facts.heads.items)
    except UsageError as error:
        return fail("order", error.what, error.fix)
    if topic is None:
        return None
    decoder = make_decoder(decoded.protocol, options)
    for (name, _), messages in [*facts.heads.items(), *facts.tails.items()]:
        for bad in _undecodable(event for key, value in messages for event in decode_message(decoder, key, value)):
            return fail(
                "order",
                f"{name}: {bad.reason}",
                f"have the connector write these topics anew, or leave out {topic[0]}",
            )
    return ok(
        "order",
        f"{topic[0]} tells the upstream's transactions: a pipeline that begins with it applies them whole, in the order"
        f" of their commits, exactly once{'' if settings.upstream.url else _FAILOVER}",
    )


def _judge_order(probe: BoundaryProbe, *, is_binlog: bool) -> Finding:
    """Tells which order and which guarantees the topic allows.  is_binlog: whether the messages were made from a
    binlog, whose senders have no boundaries."""
    fix = (
        "nothing: this sender sends no boundaries; Debezium's connector has a topic of transactions for that"
        " (bridge help guarantees)"
        if is_binlog
        else "for whole transactions set enable-tidb-extension=true in TiCDC's sink-uri (Open Protocol needs none)"
    )
    if probe.by_partition:
        return warn(
            "order",
            f"{probe.why}: each partition is applied in its order, every change exactly once; a reader may see a"
            " transaction of several partitions in parts, and when rows change or swap their keys within a second, one"
            " of them may be lost or come back (bridge verify --against upstream shows it)",
            fix,
        )
    if probe.by_partition is None:
        return warn("order", f"{probe.why}: nothing is applied before the first boundary comes", fix)
    return ok("order", f"{probe.why}: transactions are applied whole, in commit order, exactly once")
