"""The settings: their sections, what each means, and what it is by default."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from bridge.ddl.by_table.event_filters import EventFilter, EventFilterTable, RouteTable
from bridge.ddl.policy import DdlRules, ddl_rules
from bridge.errors import UsageError
from bridge.filters.routes import IgnoredRows, Routes, RowRules, parse_route
from bridge.filters.table_filter import DEFAULT_SCHEMA, ReservedSchemas, TableFilter
from bridge.mysql.connection.server_url import check_url
from bridge.mysql.connection.tls import Tls, TlsMode
from bridge.protocols import require_protocol
from bridge.protocols.debezium.recognition import BinaryMode, DebeziumModes, DecimalMode, TimeMode
from bridge.protocols.decoder import MS_AHEAD, DecodeOptions
from bridge.protocols.values.event_time import timestamp_converter
from bridge.registry import SchemaRegistry, check_urls
from bridge.secret_settings import read_secret, resolve
from bridge.tso import parse_moment

T = TypeVar("T")
_TOPIC: Final = re.compile("[A-Za-z0-9._-]+")
"""The names that Kafka takes."""
RETRY_SECONDS = 300.0


def _sound(value: T, check: Callable[[], object]) -> T:
    """Returns the value; ValueError, which pydantic collects, when `check` raises UsageError."""
    try:
        check()
    except UsageError as error:
        raise ValueError(str(error)) from None
    return value


def _after(check: Callable[[Any], object]) -> AfterValidator:
    """Returns a validator that refuses the values for which `check` raises UsageError."""
    return AfterValidator(lambda value: _sound(value, lambda: check(value)))


def _by_commas(value: Any) -> Any:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _with_pos(ids: tuple[str, ...]) -> tuple[str, ...]:
    """Joins ids of the form `file=NAME,pos=NUMBER` that were cut at their commas."""
    return tuple(re.split(",(?!pos=)", ",".join(ids))) if ids else ids


def _resolved(section: str) -> BeforeValidator:
    """Returns a validator that replaces references to secrets."""

    def validate(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return resolve(_sound(value, lambda: resolve(value, section)), section)

    return BeforeValidator(validate)


def _full_names(properties: dict[str, str]) -> dict[str, str]:
    """Returns Spark properties by their full names, since Spark takes no notice of others; of two the later holds."""
    return {name if name.startswith("spark.") else f"spark.{name}": value for name, value in properties.items()}


def _check_limits(rules: tuple[str, ...]) -> None:
    from bridge.mysql.server_load import parse_limits  # late: it loads the driver

    parse_limits(rules, "--max-load")


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: object, about: ValidationInfo) -> object:
        """Refuses `true` where a number is meant: pydantic would take it for 1."""
        if isinstance(value, bool) and cls.model_fields[about.field_name or ""].annotation in {int, float}:
            raise PydanticCustomError("int_type", "it is no number")
        return value


class RegistrySection(Section):
    """The schema registry of messages in Avro."""

    url: Annotated[tuple[str, ...], BeforeValidator(_by_commas), _after(lambda urls: check_urls(urls))] = ()
    """The registry's URL, or those of its servers (by commas), which are asked in turn: `http://host:port/path`, or
    https, with the path that Debezium's converter has (Apicurio: `/apis/registry/v2` or `v3`, or `/apis/ccompat/v7` for
    ids that fit it)."""
    user: str = ""
    """The registry's user, for HTTP Basic."""
    password: str | None = Field(default=None, repr=False)
    """The password of the registry's user."""
    password_file: str | None = None
    """A file that holds the password of the registry's user."""
    token_file: str | None = None
    """A file that holds a bearer token, instead of a user and a password.  It is read at the start."""
    tls_ca: str | None = None
    """A file of the certificate authorities that certificates of https are checked against; without it the machine's
    own."""
    tls_cert: str | None = None
    """A file with the bridge's own certificate, for registries that ask for one."""
    tls_key: str | None = None
    """A file with the key of the bridge's own certificate."""
    timeout_seconds: float = Field(default=10, gt=0, le=300)
    """How long the registry may take for an answer."""

    def registry(self) -> SchemaRegistry | None:
        """The registry, None without one; UsageError for a file that cannot be read."""
        if not self.url:
            return None
        tls = Tls("verify-identity", self.tls_ca, self.tls_cert, self.tls_key, "source.registry")
        tls.driver_settings()  # refuses files that cannot be read
        password = read_secret(self.password_file, "source.registry.password_file") if self.password_file else ""
        token = read_secret(self.token_file, "source.registry.token_file") if self.token_file else ""
        return SchemaRegistry(self.url, self.user, password or self.password or "", token, tls, self.timeout_seconds)


class SourceSection(Section):
    """Where messages come from: Kafka topics, or capture files."""

    bootstrap_servers: str = ""
    """The Kafka brokers, as `host:port[,host:port]`."""
    topics: Annotated[tuple[str, ...], _after(lambda topics: topic_starts(topics))] = ()
    """The topics that are read, all of them as one stream: each a name, or `name@moment` for a topic that begins
    elsewhere than the pipeline (`moment` as in `from`)."""
    input: str = ""
    """A capture file or a folder of capture files, instead of Kafka."""
    quarantine: tuple[str, ...] = ()
    """Positions (`topic/partition/offset`) of messages that go to the quarantine instead of stopping the bridge."""
    unused_partitions: Annotated[tuple[str, ...], _after(lambda names: partitions_named(names))] = ()
    """Partitions (`topic/partition`) that the changefeed does not write to, since the topic has more of them than its
    `partition-num`: no boundary of theirs is waited for.  One that has had a message stops the bridge.  The progress
    keeps them, so it is enough to give them once; others, or `[]`, take their place."""
    transaction_grace_seconds: float = Field(default=60, gt=0)
    """Debezium's connector, with its topic of transactions: how long a transaction may lack rows while later ones come,
    before the bridge stops and names what lacks.  While nothing comes, the connector may be away, and is waited for."""
    incomplete_transactions: Annotated[tuple[str, ...], AfterValidator(_with_pos)] = ()
    """Ids of transactions that are applied without the rows that they lack, since these will never come (a transform
    dropped them, or Kafka has).  Each is logged (`transaction_incomplete`), and its missing rows count as `late`."""
    timeout_seconds: float = Field(default=30, ge=1, le=300)
    """How long a request to Kafka may take before it is given up.  Without a message for twice as long it is away."""
    retry_seconds: float = Field(default=RETRY_SECONDS, ge=0)
    """How long a source that is away is retried before the bridge stops: brokers, their names, leaders; the upstream,
    where rows are read back from it.  0: for ever under `bridge run`, but 300 s for the upstream."""
    ahead_seconds: int = Field(default=MS_AHEAD // 1000, ge=0)
    """How far the commit ts of a message, or its boundary, may lie ahead of the clock of this machine and of Kafka's
    timestamp.  One that lies further ahead cannot be true, and is treated as a message that cannot be decoded."""
    consumer_group: str = ""
    """A Kafka consumer group to which the offsets of what is in the target are committed every few seconds, so that
    tools for the lag see them.  They are never read.  Without it, none are committed."""
    kafka: Annotated[dict[str, str], _resolved("kafka")] = Field(default_factory=dict, repr=False)
    """Properties of the Kafka client (security and the like), by librdkafka's names."""
    kafka_password: str | None = Field(default=None, repr=False)
    """The SASL password of the Kafka user."""
    registry: RegistrySection = RegistrySection()

    def require(self) -> None:
        """Raises UsageError when no source is given."""
        if not self.input and not (self.bootstrap_servers and self.topics):
            raise UsageError(
                "no source is given", fix="give --bootstrap-servers and --topic, or --input for capture files"
            )

    @property
    def topic_starts(self) -> dict[str, int | None]:
        """The topics, each with its own beginning (TSO) where it has one."""
        return topic_starts(self.topics)

    @property
    def unused(self) -> list[tuple[str, int]] | None:
        """The partitions that the changefeed does not write to; None where the settings do not say."""
        return partitions_named(self.unused_partitions) if "unused_partitions" in self.model_fields_set else None

    @property
    def client_properties(self) -> dict[str, str]:
        """The properties of the Kafka client, with the password."""
        timeout = {"socket.timeout.ms": str(round(self.timeout_seconds * 1000))}
        return timeout | self.kafka | ({} if self.kafka_password is None else {"sasl.password": self.kafka_password})


class _ServerSection(Section):
    """How a MySQL server is reached."""

    role: ClassVar[str]
    """The name of its flag."""
    url: str = Field(default="", repr=False)
    """The server, as `mysql://user@host:port/`."""
    password: str | None = Field(default=None, repr=False)
    """The password of the server's user."""
    password_file: str | None = None
    """A file that holds the password of the server's user."""
    timeout_seconds: float = Field(default=60, gt=0, le=3600)
    """How long the server may be silent before it is asked, over another connection, whether it is still working for
    the silent one; if not, the connection is lost."""
    tls: TlsMode = "preferred"
    """Whether the connection is encrypted, and what of the server's certificate is checked: `off`, `preferred`,
    `required`, `verify-ca` or `verify-identity`."""
    tls_ca: str | None = None
    """A file of the certificate authorities that the server's certificate is checked against."""
    tls_cert: str | None = None
    """A file with the bridge's own certificate, for servers that ask for one."""
    tls_key: str | None = None
    """A file with the key of the bridge's own certificate."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        return _sound(url, lambda: check_url(url, f"--{cls.role}")) if url else url


class TargetSection(_ServerSection):
    """Where changes go."""

    role = "target"
    schema_name: str = Field(default=DEFAULT_SCHEMA, alias="schema", pattern="^[^%]+$")
    """The database on the target in which the bridge keeps its progress."""
    retry_seconds: float = Field(default=RETRY_SECONDS, ge=0)
    """How long a target that is away is retried before the bridge stops: a lost connection, a lock conflict, a server
    that is read-only, not ready or full.  0: for ever under `bridge run`."""
    replicas: tuple[Annotated[str, Field(pattern=r"^(\[[\da-fA-F:]+\]|[^\s/@:]+)(:\d+)?$")], ...] = ()
    """Replicas of the target, as `host:port`, whose lag `bridge ctl throttle replica_lag=N` looks at.  They are logged
    in to as the target is."""

    def require(self) -> None:
        """Raises UsageError when no target is given."""
        if not self.url:
            raise UsageError("no target is given", fix="give --target mysql://user@host:port/")


class UpstreamSection(_ServerSection):
    """The upstream itself, where rows are verified, and read back that were too large for the topic; and which is asked
    after a failover, where whole transactions of Debezium's connector are applied."""

    role = "upstream"


class VerifySection(Section):
    """How `bridge verify` works."""

    workers: int = Field(default=2, ge=1, le=64)
    """How many snapshots of the target, and of the source, are read at the same time."""
    chunk_seconds: float = Field(default=0.5, gt=0)
    """About how long one checksum query may take; chunks grow and shrink to it."""
    shown_rows: int = Field(default=10, ge=0)
    """How many differing rows of a table are shown column by column."""
    grace_seconds: float = Field(default=10, ge=0)
    """With a MySQL or MariaDB source: how long a row may differ after the target has caught up, before it counts."""
    max_load: Annotated[tuple[str, ...], _after(_check_limits)] = ()
    """Wait before each chunk while a status variable of either server is above its limit (`Threads_running=25`)."""


class DdlSection(Section):
    """Schema changes: what is done with each class of them, and what the statements mean."""

    default: Literal["allow", "ignore", "hold", "refuse"] = "allow"
    """What is done with the classes that no list below names."""
    allow: tuple[str, ...] = ()
    """Classes that run on the target."""
    ignore: tuple[str, ...] = ()
    """Classes that are left out."""
    hold: tuple[str, ...] = ()
    """Classes that wait for the operator (`bridge ddl`)."""
    refuse: tuple[str, ...] = ()
    """Classes that stop the bridge."""
    source: str = "tidb"
    """Whose defaults a statement means that names no collation: `tidb`, `mysql-8`, `mysql-5.7` or `mariadb`.
    `tidb-old-collations` is a TiDB whose collations all compare bytes, as that of a cluster does that was first started
    before 6.0 (`new_collation_enabled` in `mysql.tidb` is False)."""
    timezone: Annotated[str | None, _after(timestamp_converter)] = None
    """The zone of the upstream's sessions that run schema changes: a name, or an offset.  Without it, it is `timezone`,
    or UTC, with a warning for each statement whose outcome depends on the zone."""
    defaults: dict[str, str] = Field(default_factory=dict)
    """Default collations of an upstream that is set up otherwise than its kind is built: `server` is what
    `SELECT @@collation_server` says there, and the names of character sets are those of MariaDB's
    `@@character_set_collations`."""
    collations: dict[str, str] = Field(default_factory=dict)
    """Collations of the source, each with the collation that the target uses instead."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        return _sound(self, lambda: self.rules(TableFilter()))

    def rules(
        self, tables: TableFilter, event_filters: tuple[EventFilter, ...] = (), routes: Routes | None = None
    ) -> DdlRules:
        """The rules for the target; UsageError for a class or source that is not known."""
        return ddl_rules(**self.model_dump(), tables=tables, event_filters=event_filters, routes=routes or Routes())


class StreamSection(Section):
    """How much is read and applied at a time."""

    trigger_ms: int = Field(default=200, ge=0)
    """How often Kafka is asked for new messages, in milliseconds; sooner while they come."""
    messages_per_batch: int = Field(default=500_000, ge=1)
    """The most messages of one micro-batch."""
    rows_per_transaction: int = Field(default=50_000, ge=1)
    """About how many row changes one target transaction holds.  An upstream transaction is divided by `parallel`
    only."""
    writers: int = Field(default=2, ge=1, le=64)
    """How many of the executors' tasks write a step at once with `consistency = "parallel"`, each over a connection of
    its own; no more than Spark has task slots."""
    driver_rows: int = Field(default=500_000, ge=0)
    """Row changes that the driver holds in memory; beyond it they stay on the executors."""
    driver_bytes: int = Field(default=384 << 20, ge=32 << 20)
    """The bytes that they take there at most, decoded (a quarter in a part of a micro-batch, an eighth in a window)."""
    idle_seconds: float = Field(default=10, ge=0)
    """Formats without boundaries: how long a partition may bring nothing before a schema change no longer waits for
    it."""
    status_seconds: float = Field(default=10, gt=0)
    """How often the status line is written."""

    @property
    def bytes_at_once(self) -> int:
        """How many bytes are decoded at a time: while one part is decoded, another waits and one is applied."""
        return self.driver_bytes // 4

    @property
    def bytes_per_transaction(self) -> int:
        """The bytes that go with `rows_per_transaction`; folding and rendering take several times as much memory."""
        return self.driver_bytes // 8


class LogSection(Section):
    """The log, on stderr."""

    format: Literal["text", "json"] = "text"
    """`text`: key=value.  `json`: one JSON object a line, notes and errors of commands too."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is shown: `debug`, `info`, `warning` or `error`."""
    spark: Literal["off", "error", "warn", "info", "debug"] = "off"
    """What Spark and its JVM print themselves: `off`, or from which level on: `error`, `warn`, `info` or `debug`."""


class WatchSection(Section):
    """The HTTP port with the status page, the metrics and the health of a running bridge."""

    listen: str = ""
    """Where it listens: a port alone for this machine only, or `host:port`.  Without it there is no such port."""
    address_file: str = ""
    """A file to which a running bridge writes the address on which it listens, for the health check of a container."""


class CkafkaSection(Section):
    """What the messages of ckafka do not say."""

    binary: Literal["base64", "latin1"] | None = None
    """How binary values are written.  Without it the first binary value is an error."""


class DebeziumSection(Section):
    """How a native Debezium connector is configured, by the names of its own properties; only needed where its
    messages have no schemas.  TiCDC's Debezium needs none of it."""

    decimal_handling_mode: DecimalMode | None = None
    """How DECIMAL values are written.  Without it a value that could mean two things stops the bridge."""
    time_precision_mode: TimeMode | None = None
    """How dates and times are written.  Without it a value that could mean two things stops the bridge."""
    binary_handling_mode: BinaryMode | None = None
    """How binary values are written.  Without it a value that could mean two things stops the bridge."""
    without_boundaries: bool = False
    """TiCDC's Debezium: the TiDB extension was switched off for good, so that no boundary is waited for, although the
    topic has held some."""

    @property
    def modes(self) -> DebeziumModes:
        """The modes as the decoder takes them."""
        return DebeziumModes(self.decimal_handling_mode, self.time_precision_mode, self.binary_handling_mode)


class Settings(Section):
    """Everything a command needs to know."""

    name: str = Field(default="bridge", min_length=1, max_length=128)
    """The pipeline: one row of `_bridge.progress`.  Two bridges of one name never write at once."""
    protocol: Annotated[str, _after(require_protocol)] = "auto"
    """The format of the messages, as `bridge help protocols` lists them; `auto`: they show it."""
    timezone: Annotated[str | None, _after(timestamp_converter)] = None
    """The zone in which the messages write TIMESTAMP values (and the event times of ckafka): a name or an offset.
    Without it the first such value stops the bridge."""
    filter: Annotated[tuple[str, ...], _after(TableFilter)] = ()
    """The tables that are replicated, in TiCDC's rule syntax; the last rule that matches decides."""
    event_filters: tuple[Annotated[EventFilterTable, _after(lambda table: table.event_filter)], ...] = ()
    """What is left out of the tables that are replicated: kinds of row changes, and schema changes.  Each is a table
    `[[event_filters]]` in the file."""
    route: Annotated[tuple[str, ...], _after(lambda given: [*map(parse_route, given)])] = ()
    """Names of tables on the target, as `shop_1.orders -> shop.orders` or `shop_1.* -> shop.*`; the first one that is
    for a table decides.  `shop_*.orders => shop.orders` merges shards."""
    routes: tuple[Annotated[RouteTable, _after(lambda table: table.route)], ...] = ()
    """The same, each as a table `[[routes]]` in the file, by the names of TiDB Data Migration; they come after
    `route`."""
    consistency: Literal["atomic", "parallel"] = "atomic"
    """`atomic`: one connection writes whole upstream transactions.  `parallel`: Spark's executors write what is more
    than `stream.rows_per_transaction`, and readers may see parts."""
    on_bad_message: Literal["stop", "quarantine"] = "stop"
    """What is done with a message that cannot be decoded, and with a row that the target refuses."""
    begin: Annotated[str, _after(lambda moment: parse_moment(moment))] = Field(default="earliest", alias="from")
    """Where a new pipeline begins: `earliest`, a TSO, or a time.  Everything below it counts as being in the target."""
    source: SourceSection = SourceSection()
    target: TargetSection = TargetSection()
    ddl: DdlSection = DdlSection()
    stream: StreamSection = StreamSection()
    upstream: UpstreamSection = UpstreamSection()
    verify: VerifySection = VerifySection()
    log: LogSection = LogSection()
    watch: WatchSection = WatchSection()
    ckafka: CkafkaSection = CkafkaSection()
    debezium: DebeziumSection = DebeziumSection()
    spark: Annotated[dict[str, str], AfterValidator(_full_names), _resolved("spark")] = Field(
        default_factory=dict, repr=False
    )
    """Spark properties, with or without the `spark.` before their names (`master = "local[4]"`)."""
    _origins: Mapping[tuple[str, ...], str] = PrivateAttr(default_factory=dict)

    @property
    def origins(self) -> Mapping[tuple[str, ...], str]:
        """Where settings were given, by section and key; those that are not there have their defaults."""
        return self._origins

    def remember(self, origins: Mapping[tuple[str, ...], str]) -> None:
        """Keeps where the settings were given."""
        self._origins = origins

    @property
    def row_rules(self) -> RowRules:
        """What is done with row changes right after they are decoded."""
        filters = [rule.event_filter for rule in self.event_filters]
        return RowRules(tuple(IgnoredRows(rule.tables, rule.rows) for rule in filters), self.table_routes)

    @property
    def table_routes(self) -> Routes:
        """The names of tables on the target; UsageError for routes that cannot be had."""
        routes = (*map(parse_route, self.route), *(route.route for route in self.routes))
        return Routes(routes, TableFilter(self.filter), ReservedSchemas(self.target.schema_name))

    def ddl_rules(self) -> DdlRules:
        """The rules for schema changes; UsageError for what is not known."""
        filters = tuple(one.event_filter for one in self.event_filters)
        rules = self.ddl.rules(TableFilter(self.filter), filters, self.table_routes)
        return replace(rules, timezone=rules.timezone or self.timezone)

    def decode_options(self, accepts: Callable[[str, str], bool] | None = None) -> DecodeOptions:
        """What a decoder is told; `accepts` as in `DecodeOptions`."""
        return DecodeOptions(
            self.timezone,
            accepts,
            ckafka_binary=self.ckafka.binary,
            debezium=self.debezium.modes,
            reserved=ReservedSchemas(self.target.schema_name),
            row_rules=self.row_rules,
            ms_ahead=self.source.ahead_seconds * 1000,
            schemas=self.source.registry.registry(),
        )


def partitions_named(names: tuple[str, ...]) -> list[tuple[str, int]]:
    """Splits `topic/partition`.  Raises UsageError for what is no such name."""
    partitions = []
    for name in names:
        topic, _, number = name.rpartition("/")
        if not _TOPIC.fullmatch(topic) or not number.isdecimal():
            raise UsageError(f"{name!r} is not a topic and a partition", fix="write it as topic/7")
        partitions.append((topic, int(number)))
    return partitions


def topic_starts(topics: tuple[str, ...]) -> dict[str, int | None]:
    """Splits `name@moment`; None for a topic without a beginning of its own.  Raises UsageError for one that cannot be
    read."""
    starts: dict[str, int | None] = {}
    for text in topics:
        name, at, moment = text.partition("@")
        if at and not _TOPIC.fullmatch(name):  # a URL, which must be said as a whole to have its password hidden
            raise UsageError(f"{text!r} is neither a topic nor a topic and a moment", fix="see --topic")
        if name in starts:
            raise UsageError(f"the topic {name!r} is given twice", fix="see --topic")
        starts[name] = parse_moment(moment) if at else None
    return starts
