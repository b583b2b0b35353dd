"""A Kafka that asks who is there: TLS with certificates of the tests' own, SASL with two mechanisms."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

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

from bridge.local import Kafka
from bridge.local.server import HOST, free_port

USER, PASSWORD = "bridge", 'se"cret\\7'
LISTENERS = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")
_MODULES = "org.apache.kafka.common.security"


class Certificates:
    """A certificate authority, a server on 127.0.0.1, and a client, as PEM files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.ca, self.server, self.client, self.client_key = (
            folder / name for name in ("ca.pem", "server.pem", "client.pem", "client.key")
        )
        authority = folder / "ca.key"
        _openssl("req", "-x509", *_new_key(authority), "-days", "2", "-subj", "/CN=ca", "-out", self.ca)
        self._issue(authority, folder / "server.key", self.server, f"subjectAltName=IP:{HOST}")
        self._issue(authority, self.client_key, self.client, "extendedKeyUsage=clientAuth")
        self.server.write_text((folder / "server.key").read_text() + self.server.read_text())

    def _issue(self, authority: Path, key: Path, certificate: Path, extension: str) -> None:
        signed = ("-CA", self.ca, "-CAkey", authority, "-addext", extension, "-addext", "basicConstraints=CA:FALSE")
        _openssl("req", "-x509", *_new_key(key), "-days", "2", "-subj", f"/CN={USER}", *signed, "-out", certificate)


def _new_key(path: Path) -> tuple[str | Path, ...]:
    return "-newkey", "rsa:2048", "-nodes", "-keyout", path


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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

    def __init__(self, certificates: Certificates) -> None:
        super().__init__()
        self._certificates = certificates
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
            "ssl.keystore.location": str(self._certificates.server),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._certificates.ca),
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
