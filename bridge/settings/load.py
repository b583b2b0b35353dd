"""Reads settings from a TOML file, the environment (`BRIDGE_*`) and flags; later sources override earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings

from bridge.config import Settings
from bridge.errors import SettingsError, UsageError
from bridge.settings.kafka_names import wrong_properties
from bridge.settings.layers import Layer, assignment_layer, default_layer, environment_layer, file_layer, flag_layer
from bridge.settings.places import Place
from bridge.settings.problems import problem


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
