"""`bridge/manual/settings.md`, made from the settings model in `bridge/config.py`:

uv run python -m tests.support.settings_page
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bridge import config
from bridge.cli.app import app
from bridge.config import Settings
from bridge.settings.load import SHORT_NAMES, item_model, place_of_flag, variables

PAGE: Final = Path(config.__file__).parent / "manual" / "settings.md"
COMMAND: Final = "uv run python -m tests.support.settings_page"
_TOP: Final = """# Settings

<!-- Made from bridge/config.py by `{command}`; do not change it by hand. -->

Settings come from four places, and the later one wins: a TOML file (`--config FILE`), environment variables
(`BRIDGE_*`), `--set section.setting=value`, and the flags that have a name of their own. A variable that is empty
counts as not given. In variables and in `--set`, lists are written with commas: `BRIDGE_TOPIC=orders,customers`.
`BRIDGE_DEFAULT_*` are variables for whoever builds an image: the default of a setting there, behind even the file.

```
bridge run --config bridge.toml --set stream.status_seconds=60
```

Settings that do not exist, `BRIDGE_*` variables that are none, and values that are not allowed end the command with
exit code 2.  All of them are said at once, one line each: the key, the value (unless it may be secret), what is
allowed, and the file, variable or flag that gave it:

```
bridge: unknown setting stream.triger_ms; did you mean stream.trigger_ms? (bridge.toml)
bridge: stream.messages_per_batch is wrong (given: '0'): input should be greater than or equal to 1 (--set)
```

Passwords are never taken from the file: use the variables below, or a file of their own (`password_file`).
[conf/bridge.toml](../../conf/bridge.toml) is a settings file that holds every setting with its default.
`bridge config example` lists files to begin with (TiCDC to MySQL, TiDB to TiDB, Canal to MariaDB, Debezium's connector,
CKafka, TLS everywhere, a Spark cluster), and `bridge config example NAME` prints one.
`bridge check --show` prints the settings in force, without secrets, each with the file, variable or flag that gave it.
"""


def page() -> str:
    """The whole page, as Markdown."""
    parts = [_part(name, model) for name, model in models().items()]
    return "\n".join([_TOP.format(command=COMMAND), *parts])


def models() -> dict[str, type[BaseModel]]:
    """The model of each section; "" for the settings without one."""
    return {".".join(place): model for place, model in _models_in(Settings, ())}


def _models_in(model: type[BaseModel], place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    yield place, model
    for name, field in model.model_fields.items():
        if (inner := section_of(field)) is not None:
            yield from _models_in(inner, (*place, name))


def sections() -> dict[str, dict[str, Any]]:
    """The settings of each section ("" for those without one), passwords apart, with their defaults."""
    return {
        name: {
            field.alias or key: _plain(field)
            for key, field in model.model_fields.items()
            if not key.endswith("password") and section_of(field) is None
        }
        for name, model in models().items()
    }


def _plain(field: FieldInfo) -> Any:
    """The default as TOML would hold it."""
    default = field.get_default(call_default_factory=True)
    return list(default) if isinstance(default, tuple) else default


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a section; None for a setting."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


@cache
def descriptions() -> dict[tuple[str, str], str]:
    """Of class and field: the docstring below the field.  A field without one is missing."""
    tree = ast.parse(Path(config.__file__).read_text(encoding="utf-8"))
    return {
        (model.name, field.target.id): " ".join(words.value.value.split())
        for model in tree.body
        if isinstance(model, ast.ClassDef)
        for field, words in zip(model.body, model.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(words, ast.Expr)
        and isinstance(words.value, ast.Constant)
        and isinstance(words.value.value, str)
    }


def _part(section: str, model: type[BaseModel]) -> str:
    intro = " ".join((model.__doc__ or "").split())
    lines = [f"## [{section}]", "", intro, ""] if section else ["## Without a section", ""]
    lines += ["| setting | default | meaning | flag, variable |", "| --- | --- | --- | --- |"]
    for name, field in model.model_fields.items():
        if section_of(field) is None:
            words = _description(model, name)
            meaning = " ".join([words, *_allowed(field, words)])
            given = ", ".join(_given_by(section, field.alias or name, field))
            lines.append(f"| `{field.alias or name}` | {_default(field)} | {meaning} | {given} |")
    return "\n".join([*lines, ""])


def _description(model: type[BaseModel], name: str) -> str:
    told = descriptions()
    classes = (one.__name__ for one in model.__mro__)
    found = next((told[one, name] for one in classes if (one, name) in told), None)
    assert found, f"{model.__name__}.{name} in bridge/config.py has no docstring"
    return found


def _default(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    if default is None or default == "":
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, tuple):
        return f"`{list(default)}`"
    return f'`"{default}"`' if isinstance(default, str) else f"`{default}`"


def _allowed(field: FieldInfo, words: str) -> Iterator[str]:
    """What the model itself says of the values that it takes, unless these words name them all."""
    kinds = get_args(field.annotation) if get_origin(field.annotation) in {Union, UnionType} else (field.annotation,)
    for kind in kinds:
        if get_origin(kind) is Literal and not all(f"`{value}`" in words for value in get_args(kind)):
            yield f"One of {', '.join(f'`{value}`' for value in get_args(kind))}."
    bounds = {"ge": "at least {}", "gt": "more than {}", "le": "at most {}"}
    limits = [
        said.format(value)
        for bound in field.metadata
        for name, said in bounds.items()
        if (value := getattr(bound, name, None)) is not None
    ]
    if limits:
        yield f"{', '.join(limits).capitalize()}."


def _given_by(section: str, key: str, field: FieldInfo) -> Iterator[str]:
    if item_model(field) is not None:
        yield "only in the file"
        return
    place = (*section.split("."), key) if section else (key,)
    short = [name for name, meant in SHORT_NAMES.items() if meant == place]
    yield from (f"`{flag}`" for name, flag in flags().items() if place_of_flag(name) == place)
    if get_origin(field.annotation) is dict:
        yield f"`--set {'.'.join(place)}.NAME=VALUE`"
    elif place in variables().values():
        yield f"`BRIDGE_{'_'.join(place).upper()}`"
    yield from (f"`BRIDGE_{name.upper()}`" for name in short if name != "_".join(place))


@cache
def flags() -> dict[str, str]:
    """The flags of all commands, by their names as settings are called."""
    command: Any = typer.main.get_command(app)
    options = [option for each in command.commands.values() for one in each.params for option in one.opts]
    return {option.removeprefix("--").replace("-", "_"): option for option in options if option.startswith("--")}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
