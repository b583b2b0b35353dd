"""Says what is wrong with settings: the key, the value unless it may be secret, what is allowed, and its origin."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from bridge.secret_settings import is_secret
from bridge.settings import places
from bridge.settings.places import Place, closest, shown_place

_KINDS: Final[Mapping[Any, str]] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    tuple: "a list of texts",
    dict: "a section of texts",
}
_BOUNDS: Final[Mapping[str, str]] = {
    "ge": "at least {}",
    "gt": "more than {}",
    "le": "at most {}",
    "min_length": "at least {} character",
    "max_length": "at most {} characters",
    "pattern": "that matches {}",
}


def unknown(place: Place, origin: str, known: Collection[str] | None = None) -> str:
    """Says that there is no such setting, and which one is closest."""
    name = shown_place(place)
    near = places.closest(name, places.names() if known is None else known)
    help_ = f"did you mean {near}?" if near else "`bridge help settings` lists them all"
    return f"unknown setting {name}; {help_} ({origin})"


def not_a_section(place: Place, value: object, origin: str) -> str:
    """Says that settings stand below this name."""
    name = shown_place(place)
    return (
        f"{name} is a section of settings, not a setting{_given(place, value)};"
        f" fix: set one of its settings, {name}.<setting> ({origin})"
    )


def problem(details: ErrorDetails, origins: Mapping[Place, str]) -> str:
    """Says what the model found."""
    place = _setting_of(tuple(map(str, details["loc"])))
    origin = _origin_of(place, origins)
    if details["type"] == "extra_forbidden":
        return unknown(place, origin)
    if details["type"] == "model_type":
        return not_a_section(place, details["input"], origin)
    name = shown_place(place)
    if details["type"] == "value_error":
        return f"{name}: {details['ctx']['error']} ({origin})"
    if isinstance(details["input"], dict):
        return f"{name} is wrong; fix: put the whole name of a property, with its dots, in quotes ({origin})"
    return f"{name} is wrong{_given(place, details['input'])}: {_allowed_at(place)} ({origin})"


def _setting_of(place: Place) -> Place:
    """Returns the place without what pydantic adds to it: the index of an item, the branch of a union."""
    for length in range(len(place), 0, -1):
        field = places.fields().get(place[:length])
        if field is not None and not places.is_table(field):
            return place[:length] if places.item_model(field) is None else (*place[:length], *place[length + 1 :][:1])
    return place


def _origin_of(place: Place, origins: Mapping[Place, str]) -> str:
    above = next((origins[place[:length]] for length in range(len(place), 0, -1) if place[:length] in origins), None)
    if above is not None:
        return above
    return next((origin for inner, origin in origins.items() if inner[: len(place)] == place), "a default")


def _allowed_at(place: Place) -> str:
    field = places.fields().get(place)
    inside = places.item_model(above) if (above := places.fields().get(place[:1])) else None
    if inside is not None:
        field = next((each for name, each in inside.model_fields.items() if (each.alias or name) == place[-1]), field)
    return f"it has to be {', '.join(allowed(field))}" if field else "it has to be a text"


def allowed(field: FieldInfo) -> Iterator[str]:
    """Describes the values of a setting: their kind, and its bounds."""
    yield " or ".join(_kinds(field.annotation))
    for bound in field.metadata:
        for name, words in _BOUNDS.items():
            if (limit := getattr(bound, name, None)) is not None:
                yield words.format(limit)


def _kinds(annotation: Any) -> Iterator[str]:
    origin = get_origin(annotation)
    if origin in {Union, UnionType}:
        for each in get_args(annotation):
            yield from () if each is type(None) else _kinds(each)
    elif origin is Literal:
        yield f"one of {', '.join(map(str, get_args(annotation)))}"
    elif origin is tuple and get_origin(get_args(annotation)[0]) is Literal:
        yield f"a list of {', '.join(map(str, get_args(get_args(annotation)[0])))}"
    else:
        yield _KINDS.get(origin or annotation, "a text")


def _given(place: Place, value: object) -> str:
    """Returns a wrong value for a message; "" when it may hold a secret."""
    name = shown_place(place)
    is_shown = not is_secret(name) and not name.endswith("url") and isinstance(value, str | int | float)
    return f" (given: {value!r})" if is_shown and not set("@:") & set(str(value)) else ""


_NAMES: Final = """
acks allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
auto.commit.enable auto.commit.interval.ms auto.offset.reset batch.num.messages batch.size bootstrap.servers
broker.address.family broker.address.ttl broker.version.fallback builtin.features check.crcs client.dns.lookup
client.id client.rack client.software.name client.software.version compression.codec compression.level
compression.type connections.max.idle.ms consume.callback.max.messages coordinator.query.interval.ms debug
delivery.report.only.error delivery.timeout.ms enable.auto.commit enable.auto.offset.store enable.gapless.guarantee
enable.idempotence enable.metrics.push enable.partition.eof enable.random.seed enable.sasl.oauthbearer.unsecure.jwt
enable.sparse.connections enable.ssl.certificate.verification enable_sasl_queue fetch.error.backoff.ms
fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms group.id
group.instance.id group.protocol group.protocol.type group.remote.assignor heartbeat.interval.ms https.ca.location
https.ca.pem internal.termination.signal isolation.level linger.ms log.connection.close log.queue log.thread.name
log_level max.in.flight max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms
max.poll.records message.copy.max.bytes message.max.bytes message.send.max.retries message.timeout.ms
metadata.broker.list metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
metadata.request.timeout.ms offset.store.method offset.store.path offset.store.sync.interval.ms
partition.assignment.strategy partitioner plugin.library.paths produce.offset.report
queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
queue.buffering.max.ms queued.max.messages.kbytes queued.min.messages queuing.strategy receive.message.max.bytes
reconnect.backoff.jitter.ms reconnect.backoff.max.ms reconnect.backoff.ms request.required.acks request.timeout.ms
retries retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism
sasl.mechanisms sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
sasl.oauthbearer.config sasl.oauthbearer.extensions sasl.oauthbearer.grant.type
sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method sasl.oauthbearer.scope
sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol
session.timeout.ms share.acknowledgement.mode socket.blocking.max.ms socket.connection.setup.timeout.ms
socket.keepalive.enable socket.max.fails socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes
socket.timeout.ms ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.cipher.suites
ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.id ssl.engine.location
ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.providers
ssl.sigalgs.list statistics.interval.ms sticky.partitioning.linger.ms test.mock.broker.rtt test.mock.num.brokers
topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
transaction.timeout.ms transactional.id
"""
KNOWN: Final = frozenset(_NAMES.split())
"""The properties that librdkafka 2.16 takes as texts (CONFIGURATION.md), also those of topics and producers."""
_NO_PROPERTY: Final = "none"
"""A name that the client does not know: it ends with it before a client is made, when all others are good."""


def wrong_properties(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields the name of each property that the client does not take, with what is wrong."""
    for name, value in properties.items():
        reason = _refusal(name, _NO_PROPERTY if is_secret(name) else value)
        if f'No such configuration property: "{name}"' in reason:
            yield name, _unknown(name)
        elif f'No such configuration property: "{_NO_PROPERTY}"' not in reason:
            yield name, f"{_shown(name)} is wrong: {reason}"


def _unknown(name: str) -> str:
    near = closest(name, KNOWN)
    help_ = f"did you mean {_shown(near)}?" if near else "librdkafka's CONFIGURATION.md lists them all"
    return f"unknown setting {_shown(name)}; {help_}"


def _shown(name: str) -> str:
    return shown_place(("source", "kafka", name))


def _refusal(name: str, value: str) -> str:
    """Returns what the client does not take: this property, or else the one that it does not know."""
    from confluent_kafka import Consumer, KafkaException  # late: only those who set properties need it

    try:
        Consumer({"group.id": "none", name: value, _NO_PROPERTY: ""})
    except KafkaException as error:
        return str(error.args[0].str()).strip()
    except (TypeError, ValueError, AttributeError):
        return "it is a function, not a text"
    raise AssertionError("the Kafka client takes a property that it does not know")
