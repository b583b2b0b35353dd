"""The settings in force, each with its origin; secrets are not shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import BaseModel

from bridge.config import Settings
from bridge.foreign_text import redacted
from bridge.secret_settings import is_secret
from bridge.settings.places import Place, fields, is_table, item_model

_DEFAULT = "default"
_HIDDEN = "***"


class EffectiveSetting(NamedTuple):
    """A setting as it is in force.  origin: line of the file, variable or flag; `default` where none gave it."""

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
