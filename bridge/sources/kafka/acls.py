"""What the Kafka user has to be allowed, and the commands that allow it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bridge.errors import SourceError

NEEDED: Final = frozenset({"READ", "DESCRIBE"})
"""On topics.  In Kafka's own authorizer Read implies Describe."""
NEEDED_ON_GROUP: Final = frozenset({"READ"})
"""On the consumer group to which offsets are committed.  Reading needs none."""


@dataclass(frozen=True)
class Acls:
    """The ACLs of the bridge's user.

    servers: the brokers.  user: its name where the settings tell it; that of a certificate they do not.
    """

    servers: str = "HOST:PORT"
    user: str = "NAME"

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Acls:
        """Takes them from the properties of a Kafka client."""
        return cls(properties.get("bootstrap.servers", cls.servers), properties.get("sasl.username", cls.user))

    def grant(self, operations: Iterable[str], kind: str, name: str) -> str:
        """Gives the command that allows these operations.  kind: topic or group."""
        allowed = " ".join(f"--operation {operation.title()}" for operation in sorted(operations))
        return (
            f"kafka-acls --bootstrap-server {self.servers} --command-config ADMIN.properties --add"
            f" --allow-principal User:{self.user} {allowed} --{kind} {name}"
        )


def may_not(operations: Collection[str], topic: str, acls: Acls) -> SourceError:
    """Makes the error of operations that are not allowed on a topic."""
    return SourceError(
        f"the Kafka user may not {' and '.join(sorted(operations)).lower()} the topic {topic}",
        where=acls.servers,
        fix=acls.grant(operations, "topic", topic),
    )


def lacking(allowed: Collection[str], needed: frozenset[str]) -> list[str]:
    """Gives what is needed and not allowed; nothing where the broker does not say what is allowed."""
    return [] if not allowed or "ALL" in allowed else sorted(needed.difference(allowed))
