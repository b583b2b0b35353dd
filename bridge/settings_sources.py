"""Reads settings from a TOML file, the environment (`BRIDGE_*`) and flags; later sources override earlier ones."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from bridge.config import (
    CkafkaSection,
    DdlSection,
    DebeziumSection,
    Section,
    Settings,
    SourceSection,
    StreamSection,
    TargetSection,
    UpstreamSection,
    VerifySection,
)
from bridge.errors import UsageError
from bridge.secret_settings import is_secret, refuse_secrets, resolve

_PREFIX = "BRIDGE_"
SHORT_NAMES = {
    "bootstrap_servers": ("source", "bootstrap_servers"),
    "topic": ("source", "topics"),
    "input": ("source", "input"),
    "target": ("target", "url"),
    "target_password": ("target", "password"),
    "kafka_password": ("source", "kafka_password"),
    "upstream": ("upstream", "url"),
    "source": ("upstream", "url"),
    "source_password": ("upstream", "password"),
    "max_load": ("verify", "max_load"),
}
"""Flags and environment variables whose place in the file has another name, by their names."""
_LISTS = {
    *(("source", "topics"), ("source", "quarantine"), ("filter",), ("verify", "max_load"), ("stream", "tuning_off")),
    *(("ddl", verdict) for verdict in ("allow", "ignore", "hold", "refuse")),
}
_NAME = re.compile(r"[\w.-]{1,64}")
_SECTIONS: Mapping[str, type[Section]] = {
    "source": SourceSection,
    "target": TargetSection,
    "ddl": DdlSection,
    "stream": StreamSection,
    "upstream": UpstreamSection,
    "verify": VerifySection,
    "ckafka": CkafkaSection,
    "debezium": DebeziumSection,
}
"""The sections whose settings have environment variables."""


def load_settings(
    config: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any], assignments: Sequence[str]
) -> Settings:
    """Merges the configuration file, the environment, assignments and flags.

    environment: the variables of the process.
    flags: the values by name (with `_`), None for a flag that was not given.
    assignments: texts of the form `section.key=value`.
    Raises UsageError that names the wrong setting.
    """
    merged = _read_toml(config) if config else {}
    refuse_secrets(merged, f"the configuration {config}")
    for name, value in environment.items():
        place = _place_of(name.removeprefix(_PREFIX).lower()) if name.startswith(_PREFIX) and value else None
        if place:
            _set_value(merged, place, value.split(",") if place in _LISTS else value)
    for assignment in assignments:
        place, value = _parse_assignment(assignment)
        alone: dict[str, Any] = {}
        _set_value(alone, place, value)
        refuse_secrets(alone, "--set, which every user of this machine can read,")
        _set_value(merged, place, value.split(",") if place in _LISTS else value)
    for name, value in flags.items():
        if value is not None and value != [] and value != ():
            _set_value(merged, SHORT_NAMES.get(name, (name,)), value)
    _resolve_references(merged)
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        raise _usage_error(error) from None  # the original error holds the given value, which may be secret


def _parse_assignment(assignment: str) -> tuple[tuple[str, ...], str]:
    path, equals, value = assignment.partition("=")
    if not equals:
        raise UsageError(f"--set {_shown_name(path)} has no value", fix="write it as --set section.key=value")
    return _path(path), value


def _resolve_references(merged: dict[str, Any]) -> None:
    for section, above in (("spark", merged), ("kafka", _section(merged, "source"))):
        above[section] = resolve(_section(above, section), section)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"the configuration {path} cannot be read: {error.strerror}", fix="see --config") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"the configuration {path} is not UTF-8: {error}", fix="see conf/bridge.toml") from error
    except RecursionError as error:
        raise UsageError(f"the configuration {path} is nested too deeply", fix="see conf/bridge.toml") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the configuration {path} is not TOML: {error}", fix="see conf/bridge.toml") from error


def _place_of(name: str) -> tuple[str, ...] | None:
    if name in SHORT_NAMES:
        return SHORT_NAMES[name]
    for section, model in _SECTIONS.items():
        key = name.removeprefix(f"{section}_")
        if key != name and key in _keys(model):
            return section, key
    return (name,) if name in _keys(Settings) else None


def _path(text: str) -> tuple[str, ...]:
    """Splits `section.key`.  Names of Kafka and Spark properties contain dots; collations are a section within a
    section."""
    section, _, key = text.partition(".")
    for owner, inner in (("source", "kafka"), ("ddl", "collations")):
        if section == owner and key.startswith(f"{inner}."):
            return section, inner, key.removeprefix(f"{inner}.")
    return (section, key) if key else (section,)


def _keys(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def _set_value(merged: dict[str, Any], place: tuple[str, ...], value: object) -> None:
    for part in place[:-1]:
        merged = _section(merged, part)
    merged[place[-1]] = value


def _section(merged: dict[str, Any], name: str) -> dict[str, Any]:
    section = merged.setdefault(name, {})
    if not isinstance(section, dict):
        raise _section_error(_shown_name(name), section)
    return section


def _section_error(name: str, given: object) -> UsageError:
    return UsageError(
        f"{name} is a section of settings, not a setting{_shown_value(name, given)}",
        fix=f"set one of its settings, as conf/bridge.toml shows: {name}.<setting>",
    )


def _usage_error(error: ValidationError) -> UsageError:
    first = error.errors(include_url=False, include_input=True)[0]
    place = ".".join(_shown_name(str(part)) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return UsageError(f"there is no setting {place}", fix="conf/bridge.toml lists them all")
    if first["type"] == "model_type":
        return _section_error(place, first["input"])
    if isinstance(first["input"], dict):
        return UsageError(
            f"the setting {place} is wrong: {first['msg']}",
            fix="put the whole name of a property, with its dots, in quotes",
        )
    return UsageError(
        f"the setting {place} is wrong: {first['msg']}{_shown_value(place, first['input'])}", fix="see conf/bridge.toml"
    )


def _shown_name(name: str) -> str:
    """Returns the name of a setting, or a placeholder if it does not look like a name: it may be a secret."""
    return name if _NAME.fullmatch(name) else "of that name"


def _shown_value(place: str, value: object) -> str:
    """Returns a wrong value for a message; "" when it may hold a secret."""
    is_shown = not is_secret(place) and not place.endswith("url") and isinstance(value, str | int | float)
    return f" (given: {value!r})" if is_shown and not set("@:") & set(str(value)) else ""
