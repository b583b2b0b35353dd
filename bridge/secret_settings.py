"""Keeps secrets out of configuration files and out of command lines, which every user of the machine can read.

The bridge's own passwords come from the environment or from a file (`password_file`).  Secret properties of Kafka's
clients and of Spark are given as references: ``env:NAME`` or ``file:PATH``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from bridge.errors import UsageError, fix_of_reading

SECRET_NAMES: Final = (
    "(?i)password|passphrase|secret|token|access[._-]?key|private[._-]?key|credential|jaas|key[.]pem|keystore[.]key"
    "|oauthbearer[.]config"
)
"""The names of secret properties, as a regular expression for Python and Java."""
_SECRET: Final = re.compile(SECRET_NAMES)
_NOT_SECRET: Final = re.compile(
    "(?i)(file|location|path|url|mechanism|enabled|bitlength|class|class[.]?name|type|provider|interval|renewalratio)$"
)
"""Names that contain such a word although their values are not secret."""
_SECRET_IN_VALUE: Final = re.compile(r"(?i)(password|passphrase|secret|token|key)\s*=\s*\S|://[^/@\s]*:[^@]+@")
_REFERENCE: Final = re.compile(r"(env|file):(.+)", re.DOTALL)
_OWN_PASSWORDS: Final[Mapping[tuple[str, ...], str]] = {
    ("target", "password"): "BRIDGE_TARGET_PASSWORD or target.password_file",
    ("upstream", "password"): "BRIDGE_UPSTREAM_PASSWORD or upstream.password_file",
    ("source", "kafka_password"): "BRIDGE_KAFKA_PASSWORD",
    ("source", "kafka", "sasl.password"): "BRIDGE_KAFKA_PASSWORD",
    ("source", "registry", "password"): "BRIDGE_REGISTRY_PASSWORD or source.registry.password_file",
}
"""Where each of the bridge's own passwords has to come from."""
_URLS: Final = {
    ("target", "url"): _OWN_PASSWORDS["target", "password"],
    ("upstream", "url"): _OWN_PASSWORDS["upstream", "password"],
}
_PROPERTY_SECTIONS: Final = (("source", "kafka"), ("spark",))
"""Sections that hold properties of Kafka's clients and of Spark."""


def is_secret(name: str) -> bool:
    """Tells whether a property of a Kafka client or of Spark is secret."""
    return _SECRET.search(name) is not None and _NOT_SECRET.search(name) is None


def refuse_secrets(settings: Mapping[str, Any], where: str) -> None:
    """Raises UsageError when settings from `where`, a file or the command line, hold a secret."""
    for place, value in _leaves(settings, ()):
        if where_from := _source_for(place, value):
            raise UsageError(f"{where} holds a password: {'.'.join(place)}", fix=f"use {where_from}")


def _source_for(place: tuple[str, ...], value: object) -> str:
    """Returns where the secret in a setting has to come from; "" when it holds none."""
    if place in _OWN_PASSWORDS:
        return _OWN_PASSWORDS[place]
    if place in _URLS:
        return _URLS[place] if re.search("://[^/@]*:[^@]+@", str(value)) else ""
    for section in _PROPERTY_SECTIONS:
        if place[: len(section)] == section:
            return _source_for_property(".".join(place[len(section) :]), value)
    return ""


def _source_for_property(name: str, value: object) -> str:
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
    """Replaces references to secrets with the secrets; UsageError for a variable or a file that cannot be read."""
    return {
        name: _resolved(value, f"{section}.{name}") if is_secret(name) and isinstance(value, str) else value
        for name, value in properties.items()
    }


def _resolved(value: str, setting: str) -> str:
    found = _REFERENCE.fullmatch(value)
    if found is None:
        return value
    kind, name = found.groups()
    return read_secret(name, setting) if kind == "file" else _read_variable(name, setting)


def _read_variable(name: str, setting: str) -> str:
    secret = os.environ.get(name)
    if not secret:
        raise UsageError(f"the environment variable {name} is not set", where=setting, fix="set it")
    return secret


def read_secret(path: str, setting: str) -> str:
    """Reads a secret from a file, without the white space around it; UsageError when the file cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8-sig").strip()
    except OSError as error:
        why, fix = error.strerror, fix_of_reading(error, path, f"see {setting}")
        raise UsageError(f"the password file {path} cannot be read: {why}", fix=fix) from error
    except ValueError as error:
        raise UsageError(f"the password file {path} cannot be read: it is not UTF-8", fix=f"see {setting}") from error
