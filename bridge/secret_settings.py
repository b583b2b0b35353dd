"""Settings that are secrets: none in a configuration file, and none on a command line, which every user of the machine
can read.

Passwords of the bridge's own come from the environment or a file (`password_file`).  Properties of Kafka's clients and
of Spark that are secrets are referred to: ``env:NAME`` or ``file:PATH``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from bridge.errors import UsageError

SECRET_NAMES: Final = (
    "(?i)password|passphrase|secret|token|access[._-]?key|private[._-]?key|credential|jaas|key[.]pem|keystore[.]key"
    "|oauthbearer[.]config"
)
"""A regular expression for Python and Java."""
_SECRET: Final = re.compile(SECRET_NAMES)
_NO_SECRET: Final = re.compile(
    "(?i)(file|location|path|url|mechanism|enabled|bitlength|class|class[.]?name|type|provider|interval|renewalratio)$"
)
"""Names that speak of a secret and hold none."""
_SECRET_IN_VALUE: Final = re.compile(r"(?i)(password|passphrase|secret|token|key)\s*=\s*\S|://[^/@\s]*:[^@]+@")
_REFERENCE: Final = re.compile(r"(env|file):(.+)", re.DOTALL)
_OWN: Final[Mapping[tuple[str, ...], str]] = {
    ("target", "password"): "BRIDGE_TARGET_PASSWORD or target.password_file",
    ("upstream", "password"): "BRIDGE_SOURCE_PASSWORD or upstream.password_file",
    ("source", "kafka_password"): "BRIDGE_KAFKA_PASSWORD",
    ("source", "kafka", "sasl.password"): "BRIDGE_KAFKA_PASSWORD",
}
"""Where the bridge's own passwords come from."""
_URLS: Final = {
    ("target", "url"): _OWN["target", "password"],
    ("upstream", "url"): _OWN["upstream", "password"],
}
_PROPERTIES: Final = (("source", "kafka"), ("spark",))
"""Sections of properties that are not the bridge's."""


def is_secret(name: str) -> bool:
    """Whether the property of a Kafka client or of Spark is to be kept secret."""
    return _SECRET.search(name) is not None and _NO_SECRET.search(name) is None


def refuse_secrets(settings: Mapping[str, Any], where: str) -> None:
    """Raises UsageError when settings from `where`, a file or the command line, hold a secret."""
    for place, value in _leaves(settings, ()):
        if instead := _instead(place, value):
            raise UsageError(f"{where} holds a password: {'.'.join(place)}", fix=f"use {instead}")


def _instead(place: tuple[str, ...], value: object) -> str:
    """Where the secret in a setting has to come from; "" when there is none."""
    if place in _OWN:
        return _OWN[place]
    if place in _URLS:
        return _URLS[place] if re.search("://[^/@]*:[^@]+@", str(value)) else ""
    for section in _PROPERTIES:
        if place[: len(section)] == section:
            return _instead_of_property(".".join(place[len(section) :]), value)
    return ""


def _instead_of_property(name: str, value: object) -> str:
    if is_secret(name):
        reference = isinstance(value, str) and _REFERENCE.fullmatch(value)
        return "" if reference else "a reference: env:NAME for an environment variable, file:PATH for a file"
    if _SECRET_IN_VALUE.search(str(value)):
        return "a file that the property names, or the environment (JDK_JAVA_OPTIONS for options of the JVM)"
    return ""


def _leaves(settings: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name), value


def resolve(properties: dict[str, Any], section: str) -> dict[str, Any]:
    """Properties with the secrets that they refer to; UsageError for a variable or a file that cannot be read."""
    return {
        name: _referred(value, f"{section}.{name}") if is_secret(name) and isinstance(value, str) else value
        for name, value in properties.items()
    }


def _referred(value: str, setting: str) -> str:
    found = _REFERENCE.fullmatch(value)
    if found is None:
        return value
    kind, name = found.groups()
    return read_secret(name, setting) if kind == "file" else _variable(name, setting)


def _variable(name: str, setting: str) -> str:
    secret = os.environ.get(name)
    if not secret:
        raise UsageError(f"the environment variable {name} is not set", where=setting, fix="set it")
    return secret


def read_secret(path: str, setting: str) -> str:
    """A secret out of a file, without the blanks around it; UsageError for a file that cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"the password file {path} cannot be read: {why}", fix=f"see {setting}") from error
