"""The names of settings: their places in the file, their variables and flags, and the known one closest to another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from typing import Final, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bridge.config import Settings

Place = tuple[str, ...]
"""Where a setting stands in the file: section and key."""
PREFIX: Final = "BRIDGE_"
SHORT_NAMES: Final[dict[str, Place]] = {
    "bootstrap_servers": ("source", "bootstrap_servers"),
    "topic": ("source", "topics"),
    "input": ("source", "input"),
    "target": ("target", "url"),
    "target_password": ("target", "password"),
    "kafka_password": ("source", "kafka_password"),
    "registry": ("source", "registry", "url"),
    "registry_password": ("source", "registry", "password"),
    "upstream": ("upstream", "url"),
    "source": ("upstream", "url"),
    "source_password": ("upstream", "password"),
    "max_load": ("verify", "max_load"),
    "listen": ("watch", "listen"),
}
"""Flags and environment variables whose place in the file has another name, by their names."""
_NAME: Final = re.compile(r"[\w.-]{1,64}")


@cache
def fields() -> dict[Place, FieldInfo]:
    """Returns every setting, by its place."""
    return dict(_fields_of(Settings, ()))


def _fields_of(model: type[BaseModel], above: Place) -> Iterator[tuple[Place, FieldInfo]]:
    for name, field in model.model_fields.items():
        place = (*above, field.alias or name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _fields_of(field.annotation, place)
        else:
            yield place, field


@cache
def sections() -> frozenset[Place]:
    """Returns the places that hold settings, not a value."""
    return frozenset(place[:size] for place in fields() for size in range(1, len(place))) | frozenset(
        place for place, field in fields().items() if is_table(field)
    )


def is_table(field: FieldInfo) -> bool:
    """Tells whether a setting holds properties by name."""
    return get_origin(field.annotation) is dict


def is_list(place: Place) -> bool:
    """Tells whether a setting is a list, which variables and --set write with commas."""
    field = fields().get(place)
    return field is not None and get_origin(field.annotation) is tuple and item_model(field) is None


def item_model(field: FieldInfo) -> type[BaseModel] | None:
    """Returns the model of each table of a setting that is an array of tables (`[[name]]`); None for others."""
    items = get_args(field.annotation) if get_origin(field.annotation) is tuple else ()
    return items[0] if items and isinstance(items[0], type) and issubclass(items[0], BaseModel) else None


@cache
def names() -> tuple[str, ...]:
    """Returns the names of all settings and sections, as they are written with their sections."""
    inside = [
        (*place, each.alias or name)
        for place, field in fields().items()
        if (model := item_model(field)) is not None
        for name, each in model.model_fields.items()
    ]
    return tuple(".".join(place) for place in [*fields(), *sections(), *inside])


@cache
def variables() -> dict[str, Place]:
    """Returns the environment variables, with the setting that each of them gives."""
    settings = {"_".join(place): place for place, field in fields().items() if has_variable(field)}
    return {f"{PREFIX}{name.upper()}": place for name, place in (settings | SHORT_NAMES).items()}


def has_variable(field: FieldInfo) -> bool:
    """Tells whether a setting can be given as a variable: properties by name and arrays of tables cannot."""
    return not is_table(field) and item_model(field) is None


def place_of_flag(name: str) -> Place:
    """Returns the setting that a flag gives."""
    return SHORT_NAMES.get(name) or variables().get(f"{PREFIX}{name.upper()}") or (name,)


def place_of_path(text: str) -> Place:
    """Splits `section.key`.  Names of Kafka and Spark properties contain dots; collations are a section within a
    section."""
    section, _, key = text.partition(".")
    for owner, inner in (place for place in sections() if len(place) > 1):
        if section == owner and key.startswith(f"{inner}."):
            return section, inner, key.removeprefix(f"{inner}.")
    return (section, key) if key else (section,)


def shown_name(name: str) -> str:
    """Returns the name of a setting, or a placeholder if it does not look like a name: it may be a secret."""
    return name if _NAME.fullmatch(name) else "of that name"


def shown_place(place: Iterable[str]) -> str:
    """Returns the name of a setting with its section."""
    return ".".join(map(shown_name, place))


def closest(name: str, known: Iterable[str]) -> str:
    """Returns the known name that is most like another one; "" when none is."""
    return next(iter(get_close_matches(name, known, 1, cutoff=0.7)), "")
