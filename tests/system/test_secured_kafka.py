"""A Kafka behind TLS and SASL: the bridge gets in, or it is said why not, and no password is seen anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tenacity import Retrying, stop_after_delay, wait_fixed

from bridge.errors import SourceError
from bridge.local import Kafka
from bridge.local.server import HOST, free_port
from bridge.sources.kafka.source import KafkaSource
from tests.support.bridges import assert_equal, status
from tests.support.certificates import Authority
from tests.support.command import bridge
from tests.support.feeds import Feed
from tests.support.pipelines import sql
from tests.support.topics import group_offsets

USER, PASSWORD = "bridge", 'se"cret\\7'
LISTENERS = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")
_MODULES = "org.apache.kafka.common.security"


class Acl(NamedTuple):
    """What the user is allowed: an operation on a topic or a group."""

    operation: AclOperation
    kind: ResourceType
    name: str


_ANY: Any = None
_EVERY_ACL = AclBindingFilter(
    ResourceType.ANY, _ANY, ResourcePatternType.ANY, _ANY, _ANY, AclOperation.ANY, AclPermissionType.ANY
)


class SecuredKafka(Kafka):
    """A broker with a listener of each kind beside the plain one, which the tests use.

    The user, by its login or its certificate, may do only what ACLs allow.  The clients of the plain listener have no
    name, and may do everything.
    """

    def __init__(self, authority: Authority) -> None:
        super().__init__()
        self._authority = authority
        self.ports: dict[str, int] = {}

    def address(self, listener: str) -> str:
        """Of a listener, by its protocol."""
        return f"{HOST}:{self.ports[listener]}"

    def add_scram_user(self) -> None:
        """SCRAM passwords are kept by the cluster; PLAIN ones stand in its settings."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        admin.alter_user_scram_credentials([change])[USER].result(30)

    def allow(self, acls: Iterable[Acl]) -> None:
        """Allows the user these and nothing else.  Returns when the broker judges by them: its controller, which
        answers a change, is ahead of it."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        bound = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, who, "*", operation, AclPermissionType.ALLOW)
            for operation, kind, name in acls
            for who in (f"User:{USER}", f"User:CN={USER}")
        ]
        _wait_for_all(admin.delete_acls([_EVERY_ACL]))
        if bound:
            _wait_for_all(admin.create_acls(bound))
        for attempt in Retrying(stop=stop_after_delay(30), wait=wait_fixed(0.02), reraise=True):
            with attempt:
                assert set(admin.describe_acls(_EVERY_ACL).result(30)) == set(bound)

    def _prepare(self, folder: Path) -> None:
        keystore, (certificate, key) = folder / "keystore.pem", self._authority.sign("server")
        keystore.write_text(key.read_text() + certificate.read_text())
        taken: list[int] = []
        for _ in range(len(LISTENERS) + 2):
            taken.append(next(port for port in iter(free_port, 0) if port not in taken))
        plain, controller, *ports = taken
        self.ports = dict(zip(LISTENERS, ports, strict=True))
        named = {"PLAINTEXT": plain, **self.ports, "CONTROLLER": controller}
        protocols = [f"{name}:{name}" for name in ("PLAINTEXT", *LISTENERS)]
        self._properties |= {
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in named.items()),
            "listener.security.protocol.map": ",".join([*protocols, "CONTROLLER:PLAINTEXT"]),
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority.ca),
            "listener.name.ssl.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            logins = {
                "plain": f"plain.PlainLoginModule required user_{USER}={_quoted(PASSWORD)};",
                "scram-sha-512": "scram.ScramLoginModule required;",
            }
            for mechanism, login in logins.items():
                name = f"listener.name.{listener}.{mechanism}.sasl.jaas.config"
                self._properties[name] = f"{_MODULES}.{login}".replace("\\", "\\\\")
        super()._prepare(folder)
        self.port = plain


def _wait_for_all(asked: Mapping[Any, Future[Any]]) -> None:
    for done in asked.values():
        done.result(30)


def _quoted(value: str) -> str:
    """As JAAS has it."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


TOPIC, GROUP = "changes", "shown"
WAYS = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")
READ = Acl(AclOperation.READ, ResourceType.TOPIC, TOPIC)
DESCRIBE = Acl(AclOperation.DESCRIBE, ResourceType.TOPIC, TOPIC)
COMMIT = Acl(AclOperation.READ, ResourceType.GROUP, GROUP)
LISTED = (READ, DESCRIBE, COMMIT)
"""The ACLs of the manual (deployment)."""
Configured = Callable[..., list[str]]

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(authority: Authority) -> Iterator[tuple[SecuredKafka, Feed]]:
    """The broker, and what was sent to its topic."""
    with SecuredKafka(authority) as kafka:
        kafka.add_scram_user()
        kafka.create_topic(TOPIC, 2)
        kafka.allow(LISTED)
        committed(kafka)  # so that the broker has the topic of consumer groups
        with Feed(kafka.bootstrap_servers, TOPIC, partitions=2, copies=False) as feed:
            feed.open_bank()
            for _ in range(20):
                feed.beat()
            feed.finish()
        yield kafka, feed


@pytest.fixture
def configured(secured: tuple[SecuredKafka, Feed], authority: Authority, target: str, tmp_path: Path) -> Configured:
    """Flags with a settings file for one of the ways in; `left_out` names a property that is missing."""
    login: dict[str, Any] = {"sasl.username": USER}
    certificate, key = authority.sign(USER)
    ca = {"ssl.ca.location": authority.ca}
    pair = {"ssl.certificate.location": certificate, "ssl.key.location": key}
    ways: dict[str, dict[str, Any]] = {
        "SASL_PLAINTEXT": {"sasl.mechanism": "PLAIN", **login},
        "SASL_SSL": {"sasl.mechanism": "SCRAM-SHA-512", **login, **ca},
        "SSL": {**ca, **pair},
    }

    def flags(way: str, *left_out: str) -> list[str]:
        properties = {"security.protocol": way, **ways[way]}
        lines = [f'"{name}" = {json.dumps(str(value))}' for name, value in properties.items() if name not in left_out]
        path = tmp_path / "bridge.toml"
        path.write_text("\n".join(["[source]", f'consumer_group = "{GROUP}"', "[source.kafka]", *lines]))
        source = ("--bootstrap-servers", secured[0].address(way), "--topic", TOPIC, "--protocol", "canal-json")
        return ["--config", str(path), *source, "--target", target]

    return flags


@pytest.mark.parametrize(
    "way", [way if way == "SASL_SSL" else pytest.param(way, marks=pytest.mark.soak) for way in WAYS]
)
def test_every_way_in(
    target: str, secured: tuple[SecuredKafka, Feed], configured: Configured, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """PLAIN without TLS, SCRAM with it, and a client's certificate; `check`, a catch-up and verify.  The user has the
    ACLs of the manual and no other."""
    if way != "SSL":
        monkeypatch.setenv("BRIDGE_KAFKA_PASSWORD", PASSWORD)
    checked = bridge("check", *configured(way))
    assert checked.code == 0, checked.out + checked.err
    caught_up = bridge("replay", *configured(way))
    assert caught_up.code == 0, caught_up.err
    assert_equal(target, secured[1].bank)
    assert committed(secured[0]) == restart(target), caught_up.err
    verified = bridge("verify", *configured(way))
    assert verified.code == 0, verified.out + verified.err
    status = bridge("status", "--target", target, "--json")
    told = (checked.out, checked.err, caught_up.out, caught_up.err, status.out, str(all_rows(target)))
    assert not any(spelled in text for text in told for spelled in (PASSWORD, json.dumps(PASSWORD)[1:-1]))


def committed(kafka: SecuredKafka) -> dict[int, int]:
    """The offsets of the consumer group."""
    found = group_offsets(kafka.bootstrap_servers, GROUP)
    return {partition: offset for (_, partition), offset in found.items()}


def restart(target: str) -> dict[int, int]:
    """Where a restart would begin."""
    found = status(target)
    assert found is not None
    return {partition: start.offset for (_, partition), start in found.progress.positions.items()}


@pytest.mark.parametrize(
    ("allowed", "said", "grant"),
    [
        ([DESCRIBE, COMMIT], {("fail", "kafka-rights")}, f"--operation Read --topic {TOPIC}"),
        ([COMMIT], {("fail", "source")}, f"--operation Describe --operation Read --topic {TOPIC}"),
        ([READ, COMMIT], set(), ""),
    ],
    ids=["without Read", "without any on the topic", "Read implies Describe"],
)
def test_an_acl_that_is_missing(
    secured: tuple[SecuredKafka, Feed],
    configured: Configured,
    monkeypatch: pytest.MonkeyPatch,
    allowed: list[Acl],
    said: set[tuple[str, str]],
    grant: str,
) -> None:
    """Is named by one line of `check`, with the command that grants it, and where nothing can be read by the end of a
    catch-up."""
    monkeypatch.setenv("BRIDGE_KAFKA_PASSWORD", PASSWORD)
    secured[0].allow(allowed)
    try:
        checked = json.loads(bridge("check", *configured("SASL_SSL"), "--json").out)
        wrong = [one for one in checked if one["level"] == "fail" or (one["level"], one["check"]) in said]
        assert {(one["level"], one["check"]) for one in wrong} == said, wrong
        command = f"kafka-acls --bootstrap-server {secured[0].address('SASL_SSL')} --command-config ADMIN.properties"
        assert all(one["fix"] == f"{command} --add --allow-principal User:{USER} {grant}" for one in wrong)
        if any(level == "fail" for level, _ in said):
            ended = bridge("replay", *configured("SASL_SSL"))
            assert (ended.code, grant in ended.last_line) == (3, True), ended.err
            assert "the Kafka user may not" in ended.last_line
    finally:
        secured[0].allow(LISTED)


def test_a_group_that_may_not_be_used(secured: tuple[SecuredKafka, Feed]) -> None:
    """Is named with the reason by what commits to it, not as a coordinator that is waited for."""
    way = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    login = {"sasl.username": USER, "sasl.password": PASSWORD}
    source = KafkaSource(secured[0].address("SASL_PLAINTEXT"), [TOPIC], {**way, **login})
    with pytest.raises(SourceError, match="Group authorization failed") as refused:
        source.commit("another", {(TOPIC, 0): 0})
    assert refused.value.fix.endswith("--operation Read --group another")


def all_rows(target: str) -> list[object]:
    """Everything in the bridge's own database."""
    return [sql(target, f"SELECT * FROM _bridge.{table}") for table in ("progress", "owner", "schema_changes")]


@pytest.mark.parametrize("way", [pytest.param("SASL_PLAINTEXT", marks=pytest.mark.soak), "SASL_SSL"])
def test_a_wrong_password(target: str, configured: Configured, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """One line that says what was refused and what to look at; `check` ends with 2, `replay` with 3."""
    monkeypatch.setenv("BRIDGE_KAFKA_PASSWORD", "not-the-secret")
    for command, code in (("check", 2), ("replay", 3)):
        ended = bridge(command, *configured(way))
        said = ended.out + ended.err
        assert ended.code == code, said
        assert "Kafka refuses the connection" in said
        assert "uthentication failed" in said
        assert "BRIDGE_KAFKA_PASSWORD" in said
        assert "not-the-secret" not in said
        assert "Traceback" not in said
    assert sql(target, "SELECT positions FROM _bridge.progress") == [("{}",)]


@pytest.mark.parametrize(
    ("way", "left_out"), [("SASL_SSL", ["ssl.ca.location"]), ("SSL", ["ssl.certificate.location", "ssl.key.location"])]
)
def test_a_missing_certificate(
    configured: Configured, monkeypatch: pytest.MonkeyPatch, way: str, left_out: list[str]
) -> None:
    """The authority's, or the client's own: the fix names the properties."""
    if way != "SSL":
        monkeypatch.setenv("BRIDGE_KAFKA_PASSWORD", PASSWORD)
    ended = bridge("check", *configured(way, *left_out))
    assert ended.code == 2, ended.out
    assert "Kafka refuses the connection" in ended.out
    assert "ssl.ca.location" in ended.out
