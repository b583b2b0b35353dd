"""Says what is wrong with settings: the key, the value unless it may be secret, what is allowed, and its origin."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from bridge.secret_settings import is_secret
from bridge.settings import places
from bridge.settings.places import Place, shown_place

_KINDS: Final[Mapping[Any, str]] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    tuple: "a list of texts",
    dict: "a section of texts",
}
_BOUNDS: Final[Mapping[str, str]] = {
    "ge": "at least {}",
    "gt": "more than {}",
    "le": "at most {}",
    "min_length": "at least {} character",
    "max_length": "at most {} characters",
    "pattern": "that matches {}",
}


def unknown(place: Place, origin: str, known: Collection[str] | None = None) -> str:
    """Says that there is no such setting, and which one is closest."""
    name = shown_place(place)
    near = places.closest(name, places.names() if known is None else known)
    help_ = f"did you mean {near}?" if near else "`bridge help settings` lists them all"
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
    return f"{name} is wrong{_given(place, details['input'])}: {_allowed_at(place)} ({origin})"


def _setting_of(place: Place) -> Place:
    """Returns the place without what pydantic adds to it: the index of an item, the branch of a union."""
    for length in range(len(place), 0, -1):
        field = places.fields().get(place[:length])
        if field is not None and not places.is_table(field):
            return place[:length] if places.item_model(field) is None else (*place[:length], *place[length + 1 :][:1])
    return place


def _origin_of(place: Place, origins: Mapping[Place, str]) -> str:
    above = next((origins[place[:length]] for length in range(len(place), 0, -1) if place[:length] in origins), None)
    if above is not None:
        return above
    return next((origin for inner, origin in origins.items() if inner[: len(place)] == place), "a default")


def _allowed_at(place: Place) -> str:
    field = places.fields().get(place)
    inside = places.item_model(above) if (above := places.fields().get(place[:1])) else None
    if inside is not None:
        field = next((each for name, each in inside.model_fields.items() if (each.alias or name) == place[-1]), field)
    return f"it has to be {', '.join(allowed(field))}" if field else "it has to be a text"


def allowed(field: FieldInfo) -> Iterator[str]:
    """Describes the values of a setting: their kind, and its bounds."""
    yield " or ".join(_kinds(field.annotation))
    for bound in field.metadata:
        for name, words in _BOUNDS.items():
            if (limit := getattr(bound, name, None)) is not None:
                yield words.format(limit)


def _kinds(annotation: Any) -> Iterator[str]:
    origin = get_origin(annotation)
    if origin in {Union, UnionType}:
        for each in get_args(annotation):
            yield from () if each is type(None) else _kinds(each)
    elif origin is Literal:
        yield f"one of {', '.join(map(str, get_args(annotation)))}"
    elif origin is tuple and get_origin(get_args(annotation)[0]) is Literal:
        yield f"a list of {', '.join(map(str, get_args(get_args(annotation)[0])))}"
    else:
        yield _KINDS.get(origin or annotation, "a text")


def _given(place: Place, value: object) -> str:
    """Returns a wrong value for a message; "" when it may hold a secret."""
    name = shown_place(place)
    is_shown = not is_secret(name) and not name.endswith("url") and isinstance(value, str | int | float)
    return f" (given: {value!r})" if is_shown and not set("@:") & set(str(value)) else ""


_NO_PROPERTY: Final = "none"
"""A name that the client does not know: it ends with it before a client is made, when all others are good."""


def wrong_properties(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields the name of each property that the client does not take, with what is wrong."""
    for name, value in properties.items():
        reason = _refusal(name, _NO_PROPERTY if is_secret(name) else value)
        if f'No such configuration property: "{name}"' in reason:
            yield name, f"unknown setting {_shown(name)}; librdkafka's CONFIGURATION.md lists them all"
        elif f'No such configuration property: "{_NO_PROPERTY}"' not in reason:
            yield name, f"{_shown(name)} is wrong: {reason}"


def _shown(name: str) -> str:
    return shown_place(("source", "kafka", name))


def _refusal(name: str, value: str) -> str:
    """Returns what the client does not take: this property, or else the one that it does not know."""
    from confluent_kafka import Consumer, KafkaException  # late: only those who set properties need it

    try:
        Consumer({"group.id": "none", name: value, _NO_PROPERTY: ""})
    except KafkaException as error:
        return str(error.args[0].str()).strip()
    except (TypeError, ValueError, AttributeError):
        return "it is a function, not a text"
    raise AssertionError("the Kafka client takes a property that it does not know")
