"""The names of settings: their places in the file, their variables and flags, and the known one closest to another; and
what is wrong with settings: the key, the value unless it may be secret, what pydantic says of it, and its origin."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Final, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from bridge.config import Settings
from bridge.secret_settings import is_secret

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
    model = getattr(items[0], "__origin__", items[0]) if items else None  # what Annotated is about
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None


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
    """Returns the environment variables, each with its setting; properties by name and arrays of tables have none."""
    named = (place for place, field in fields().items() if not is_table(field) and item_model(field) is None)
    settings = {"_".join(place): place for place in named}
    return {f"{PREFIX}{name.upper()}": place for name, place in (settings | SHORT_NAMES).items()}


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


def unknown(place: Place, origin: str, candidates: Collection[str] | None = None) -> str:
    """Says that there is no such setting, and which one is closest."""
    name = shown_place(place)
    near = get_close_matches(name, names() if candidates is None else candidates, 1, cutoff=0.7)
    help_ = f"did you mean {near[0]}?" if near else "`bridge help settings` lists them all"
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
    what = (details["msg"][:1].lower() + details["msg"][1:]).replace("valid tuple", "list")
    return f"{name} is wrong{_given(place, details['input'])}: {what} ({origin})"


def _setting_of(place: Place) -> Place:
    """Returns the place without what pydantic adds to it: the index of an item, the branch of a union."""
    for length in range(len(place), 0, -1):
        field = fields().get(place[:length])
        if field is not None and not is_table(field):
            return place[:length] if item_model(field) is None else (*place[:length], *place[length + 1 :][:1])
    return place


def _origin_of(place: Place, origins: Mapping[Place, str]) -> str:
    above = next((origins[place[:length]] for length in range(len(place), 0, -1) if place[:length] in origins), None)
    if above is not None:
        return above
    return next((origin for inner, origin in origins.items() if inner[: len(place)] == place), "a default")


def _given(place: Place, value: object) -> str:
    """Returns a wrong value for a message; "" when it may hold a secret."""
    name = shown_place(place)
    is_shown = not is_secret(name) and not name.endswith("url") and isinstance(value, str | int | float)
    return f" (given: {value!r})" if is_shown and not set("@:") & set(str(value)) else ""
