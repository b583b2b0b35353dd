"""Reads settings from an image's defaults, a TOML file, the environment (`BRIDGE_*`), `--set` and flags, which
pydantic-settings merges; later sources override earlier ones.

The names of settings: their places in the file, their variables and flags, and the known one closest to another; and
what is wrong with settings: the key, the value unless it may be secret, what pydantic says of it, and its origin.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, InitSettingsSource

from bridge.config import Settings
from bridge.console import redacted
from bridge.errors import SettingsError, UsageError, fix_of_reading, meant
from bridge.secret_settings import is_secret, refuse_secrets

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
    hint = meant(name, names() if candidates is None else candidates)
    return f"unknown setting {name}; {hint or '`bridge help settings` lists them all '}({origin})"


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


_OF_KUBERNETES: Final = re.compile(
    r"BRIDGE_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)=.*|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?=.*|PORT=\w+://.*)"
)
"""What Kubernetes gives to every pod beside a Service whose name begins with `bridge`, unless `enableServiceLinks` is
false (Kubernetes, "Accessing the Service"); no setting is called so."""
DEFAULT_PREFIX: Final = f"{PREFIX}DEFAULT_"
_EXAMPLES: Final = "`bridge config example` lists files that can be read"


class Setting(NamedTuple):
    """A setting that was given, and by what."""

    place: Place
    value: Any
    origin: str


class Layer:
    """One source: its settings as nested dictionaries, their origins, and what is wrong with them."""

    def __init__(self, settings: Iterable[Setting], problems: Sequence[str] = ()) -> None:
        self.problems = list(problems)
        self.origins: dict[Place, str] = {}
        self.values: dict[str, Any] = {}
        for setting in settings:
            self._take(setting)

    def _take(self, setting: Setting) -> None:
        inside = self.values
        for depth, part in enumerate(setting.place[:-1], 1):
            if setting.place[:depth] in fields().keys() - sections():
                self.problems.append(unknown(setting.place, setting.origin))
                return
            if not isinstance(inside.get(part), dict):
                inside[part] = {}
            inside = inside[part]
        if setting.place in sections() and not isinstance(setting.value, dict):
            self.problems.append(not_a_section(setting.place, setting.value, setting.origin))
            return
        inside[setting.place[-1]] = setting.value
        self.origins[setting.place] = setting.origin


def file_layer(config: Path | None) -> Layer:
    """Reads the settings file.  Raises UsageError for one that cannot be read, or holds a password."""
    if config is None:
        return Layer(())
    settings = _parsed(config)
    refuse_secrets(settings, f"the configuration {config}")
    return Layer(Setting(place, value, str(config)) for place, value in _leaves(settings, ()))


def _leaves(settings: Mapping[str, Any], above: Place) -> Iterator[tuple[Place, Any]]:
    for name, value in settings.items():
        place = (*above, name)
        if isinstance(value, dict) and value and place in sections():
            yield from _leaves(value, place)
        else:
            yield place, value


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        fix = fix_of_reading(error, path, "see --config")
        raise UsageError(f"the configuration {path} cannot be read: {error.strerror}", fix=fix) from error
    except UnicodeDecodeError as error:
        why = f"UTF-8: {error}"
    except RecursionError as error:
        raise UsageError(f"the configuration {path} is nested too deeply", fix=_EXAMPLES) from error
    except tomllib.TOMLDecodeError as error:
        why = f"TOML: {error}"
    raise UsageError(f"the configuration {path} is not {why}", fix=_EXAMPLES)


def environment_layer(environment: Mapping[str, str]) -> Layer:
    """Takes the other variables that begin with BRIDGE_; an empty one counts as not given."""
    return _variables(
        {name: value for name, value in environment.items() if not name.startswith(DEFAULT_PREFIX)}, PREFIX
    )


def _variables(environment: Mapping[str, str], prefix: str) -> Layer:
    names = [name for name, value in environment.items() if name.startswith(prefix) and value]
    places = {f"{prefix}{name.removeprefix(PREFIX)}": place for name, place in variables().items()}
    strange = sorted(
        name for name in names if name not in places and not _OF_KUBERNETES.fullmatch(f"{name}={environment[name]}")
    )
    problems = [unknown((name,), "the environment", places) for name in strange]
    own = [name for name in names if name in places]
    settings = (Setting(places[name], _split(places[name], environment[name]), name) for name in own)
    return Layer(settings, problems)


def assignment_layer(assignments: Sequence[str]) -> Layer:
    """Reads `--set section.key=value`.  Raises UsageError for a password, and for what has no value."""
    layer = [_assigned(assignment) for assignment in assignments]
    for place, value, _ in layer:
        refuse_secrets(_nested(place, value), "--set, which every user of this machine can read,")
    return Layer(layer)


def _assigned(assignment: str) -> Setting:
    path, equals, value = assignment.partition("=")
    if not equals:
        raise UsageError(f"--set {shown_name(path)} has no value", fix="write it as --set section.key=value")
    place = place_of_path(path)
    return Setting(place, _split(place, value), "--set")


def _nested(place: Place, value: object) -> dict[str, Any]:
    return {place[0]: _nested(place[1:], value) if place[1:] else value}


def flag_layer(flags: Mapping[str, Any]) -> Layer:
    """Takes the flags, by name with `_`; None and an empty list are flags that were not given."""
    return Layer(
        Setting(place_of_flag(name), value, f"--{name.replace('_', '-')}")
        for name, value in flags.items()
        if value is not None and value != [] and value != ()
    )


def _split(place: Place, value: str) -> list[str] | str:
    if not is_list(place):
        return value
    return value.split(",") if value else []


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
        lambda: _variables(environment, DEFAULT_PREFIX),  # an image's, for whoever gives no other, not even in a file
        lambda: file_layer(config),
        lambda: environment_layer(environment),
        *(partial(assignment_layer, [one]) for one in assignments),
        lambda: flag_layer(flags),
    )
    layers = [_read(reader, problems) for reader in readers]
    origins = {place: origin for layer in layers for place, origin in layer.origins.items()}
    settings = _validated(_merge(layers), origins, problems)
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
        def settings_customise_sources(cls, *_: object, **__: object) -> tuple[InitSettingsSource, ...]:
            return tuple(InitSettingsSource(cls, layer.values) for layer in reversed(layers))

    return Merged().model_extra or {}


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
    value: Any = settings
    for key in place:
        fields_of = type(value).model_fields
        value = getattr(value, next(name for name, field in fields_of.items() if (field.alias or name) == key))
    return value
