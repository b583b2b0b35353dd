"""The sources of settings, as pydantic-settings merges them: an image's defaults, file, environment, `--set`, flags."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from bridge.errors import UsageError, fix_of_reading
from bridge.secret_settings import refuse_secrets
from bridge.settings import places
from bridge.settings.places import PREFIX, Place
from bridge.settings.problems import not_a_section, unknown

_OF_KUBERNETES: Final = re.compile(
    r"BRIDGE_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)=.*|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?=.*|PORT=\w+://.*)"
)
"""What Kubernetes gives to every pod beside a Service whose name begins with `bridge`, unless `enableServiceLinks` is
false (Kubernetes, "Accessing the Service"); no setting is called so."""
DEFAULT_PREFIX: Final = f"{PREFIX}DEFAULT_"
_EXAMPLES: Final = "`bridge config example` lists files that can be read"


class Given(NamedTuple):
    """A setting that was given, and by what."""

    place: Place
    value: Any
    origin: str


class Layer(PydanticBaseSettingsSource):
    """One source: its settings by place, their origins, and what is wrong with them."""

    def __init__(self, given: Iterable[Given], problems: Sequence[str] = ()) -> None:
        super().__init__(BaseSettings)
        self.problems = list(problems)
        self.origins: dict[Place, str] = {}
        self._values: dict[str, Any] = {}
        for each in given:
            self._take(each)

    def __call__(self) -> dict[str, Any]:
        """Returns the settings as nested dictionaries."""
        return self._values

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002
        """Returns the value of one setting, as pydantic-settings asks for it."""
        return self._values.get(field_name), field_name, False

    def _take(self, given: Given) -> None:
        inside = self._values
        for depth, part in enumerate(given.place[:-1], 1):
            if given.place[:depth] in places.fields().keys() - places.sections():
                self.problems.append(unknown(given.place, given.origin))
                return
            if not isinstance(inside.get(part), dict):
                inside[part] = {}
            inside = inside[part]
        if given.place in places.sections() and not isinstance(given.value, dict):
            self.problems.append(not_a_section(given.place, given.value, given.origin))
            return
        inside[given.place[-1]] = given.value
        self.origins[given.place] = given.origin


def file_layer(config: Path | None) -> Layer:
    """Reads the settings file.  Raises UsageError for one that cannot be read, or holds a password."""
    if config is None:
        return Layer(())
    text = _text_of(config)
    settings = _parsed(config, text)
    refuse_secrets(settings, f"the configuration {config}")
    return Layer(Given(place, value, str(config)) for place, value in _leaves(settings, ()))


def _leaves(settings: Mapping[str, Any], above: Place) -> Iterator[tuple[Place, Any]]:
    for name, value in settings.items():
        place = (*above, name)
        if isinstance(value, dict) and value and place in places.sections():
            yield from _leaves(value, place)
        else:
            yield place, value


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        fix = fix_of_reading(error, path, "see --config")
        raise UsageError(f"the configuration {path} cannot be read: {error.strerror}", fix=fix) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"the configuration {path} is not UTF-8: {error}", fix=_EXAMPLES) from error


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise UsageError(f"the configuration {path} is nested too deeply", fix=_EXAMPLES) from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the configuration {path} is not TOML: {error}", fix=_EXAMPLES) from error


def default_layer(environment: Mapping[str, str]) -> Layer:
    """Takes the variables that begin with BRIDGE_DEFAULT_: an image sets them for whoever gives no other value, not
    even in a file."""
    return _variables(environment, DEFAULT_PREFIX)


def environment_layer(environment: Mapping[str, str]) -> Layer:
    """Takes the other variables that begin with BRIDGE_; an empty one counts as not given."""
    return _variables(
        {name: value for name, value in environment.items() if not name.startswith(DEFAULT_PREFIX)}, PREFIX
    )


def _variables(environment: Mapping[str, str], prefix: str) -> Layer:
    names = [name for name, value in environment.items() if name.startswith(prefix) and value]
    known = {f"{prefix}{name.removeprefix(PREFIX)}": place for name, place in places.variables().items()}
    strange = sorted(
        name for name in names if name not in known and not _OF_KUBERNETES.fullmatch(f"{name}={environment[name]}")
    )
    problems = [unknown((name,), "the environment", known) for name in strange]
    given = (Given(known[name], _split(known[name], environment[name]), name) for name in names if name in known)
    return Layer(given, problems)


def assignment_layer(assignments: Sequence[str]) -> Layer:
    """Reads `--set section.key=value`.  Raises UsageError for a password, and for what has no value."""
    layer = [_assigned(assignment) for assignment in assignments]
    for place, value, _ in layer:
        refuse_secrets(_nested(place, value), "--set, which every user of this machine can read,")
    return Layer(layer)


def _assigned(assignment: str) -> Given:
    path, equals, value = assignment.partition("=")
    if not equals:
        raise UsageError(f"--set {places.shown_name(path)} has no value", fix="write it as --set section.key=value")
    place = places.place_of_path(path)
    return Given(place, _split(place, value), "--set")


def _nested(place: Place, value: object) -> dict[str, Any]:
    return {place[0]: _nested(place[1:], value) if place[1:] else value}


def flag_layer(flags: Mapping[str, Any]) -> Layer:
    """Takes the flags, by name with `_`; None and an empty list are flags that were not given."""
    return Layer(
        Given(places.place_of_flag(name), value, f"--{name.replace('_', '-')}")
        for name, value in flags.items()
        if value is not None and value != [] and value != ()
    )


def _split(place: Place, value: str) -> list[str] | str:
    if not places.is_list(place):
        return value
    return value.split(",") if value else []
