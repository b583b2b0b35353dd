"""Reads settings from a TOML file, the environment (`BRIDGE_*`) and flags; later sources override earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings

from bridge.config import Settings
from bridge.errors import SettingsError, UsageError
from bridge.foreign_text import redacted
from bridge.secret_settings import is_secret
from bridge.settings.layers import Layer, assignment_layer, default_layer, environment_layer, file_layer, flag_layer
from bridge.settings.places import Place, fields, is_table, item_model
from bridge.settings.problems import problem, wrong_properties


def load_settings(
    config: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any], assignments: Sequence[str]
) -> Settings:
    """Merges the configuration file, the environment, assignments and flags.

    environment: the variables of the process.
    flags: the values by name (with `_`), None for a flag that was not given.
    assignments: texts of the form `section.key=value`.
    Raises SettingsError that names everything that is wrong.
    """
    problems: list[str] = []
    readers: tuple[Callable[[], Layer], ...] = (
        lambda: default_layer(environment),
        lambda: file_layer(config),
        lambda: environment_layer(environment),
        *(partial(assignment_layer, [one]) for one in assignments),
        lambda: flag_layer(flags),
    )
    layers = [_read(reader, problems) for reader in readers]
    origins = {place: origin for layer in layers for place, origin in layer.origins.items()}
    merged = _merge(layers)
    settings = _validated(merged, origins, problems)
    problems += _wrong_kafka_properties(merged, origins)
    if settings is None or problems:
        raise SettingsError(problems)
    settings.remember(origins)
    return settings


def _read(reader: Callable[[], Layer], problems: list[str]) -> Layer:
    try:
        layer = reader()
    except UsageError as error:
        problems.append(str(error))
        return Layer(())
    problems += layer.problems
    return layer


def _merge(layers: Sequence[Layer]) -> dict[str, Any]:
    """Merges the layers, of which the last wins; their values are checked afterwards, by the model of the settings."""

    class Merged(BaseSettings, extra="allow"):
        @classmethod
        def settings_customise_sources(cls, *_: object, **__: object) -> tuple[Layer, ...]:
            return tuple(reversed(layers))

    return Merged().model_extra or {}


def _wrong_kafka_properties(merged: Mapping[str, Any], origins: Mapping[Place, str]) -> Iterator[str]:
    source = merged.get("source")
    properties = source.get("kafka") if isinstance(source, dict) else None
    if isinstance(properties, dict):
        texts = {name: value for name, value in properties.items() if isinstance(value, str)}
        for name, wrong in wrong_properties(texts):
            yield f"{wrong} ({origins['source', 'kafka', name]})"


def _validated(merged: dict[str, Any], origins: Mapping[Place, str], problems: list[str]) -> Settings | None:
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        problems += [problem(details, origins) for details in error.errors(include_url=False)]
        return None


_DEFAULT = "default"
_HIDDEN = "***"


class EffectiveSetting(NamedTuple):
    """A setting as it is in force.  origin: the file, variable or flag; `default` where none gave it."""

    key: str
    value: Any
    origin: str


def effective_settings(settings: Settings) -> Iterator[EffectiveSetting]:
    """Returns every setting, in the order of the manual; of properties by name, each that is given."""
    for place, field in fields().items():
        value = _value_at(settings, place)
        if is_table(field):
            for name, inside in value.items():
                yield _setting(settings, (*place, name), inside)
        elif item_model(field) is not None:
            yield _setting(settings, place, [each.model_dump(by_alias=True) for each in value])
        else:
            yield _setting(settings, place, list(value) if isinstance(value, tuple) else value)


def _setting(settings: Settings, place: Place, value: Any) -> EffectiveSetting:
    hidden = value is not None and (is_secret(place[-1]))
    return EffectiveSetting(
        ".".join(place), _HIDDEN if hidden else _shown(value), settings.origins.get(place, _DEFAULT)
    )


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return [_shown(each) for each in value]
    return redacted(value) if isinstance(value, str) else value


def _value_at(settings: Settings, place: Place) -> Any:
    found: Any = settings
    for part in place:
        found = getattr(found, _attribute(type(found), part))
    return found


def _attribute(model: type[BaseModel], key: str) -> str:
    return next(name for name, field in model.model_fields.items() if (field.alias or name) == key)
