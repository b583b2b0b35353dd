"""What the commands share: their flags, and how flags become settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import update_wrapper
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bridge.config import Settings
from bridge.errors import UsageError
from bridge.foreign_text import visible
from bridge.settings_sources import load_settings

SET: Final = "set"
SETTINGS_FLAGS: Final[Mapping[str, Any]] = {
    "config": Annotated[Path | None, typer.Option("--config", help="A settings file (TOML, see conf/bridge.toml).")],
    "name": Annotated[str | None, typer.Option("--name", help="The name of the pipeline.  [default: bridge]")],
    "protocol": Annotated[
        str | None,
        typer.Option(
            "--protocol", help="The format: auto, canal-json, ckafka, debezium or open-protocol.  [default: auto]"
        ),
    ],
    "bootstrap_servers": Annotated[
        str | None, typer.Option("--bootstrap-servers", help="The Kafka brokers, as host:port[,host:port].")
    ],
    "topic": Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            help="A Kafka topic; may be repeated.  NAME@MOMENT (a TSO, a time, earliest) adds a topic to a known"
            " pipeline: what is below the moment counts as in the target.",
        ),
    ],
    "input": Annotated[str | None, typer.Option("--input", help="A capture file or folder, instead of Kafka.")],
    "target": Annotated[
        str | None,
        typer.Option("--target", help="The target: mysql://user@host:port/; password in BRIDGE_TARGET_PASSWORD."),
    ],
    "filter": Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            help="A table rule as in TiCDC: db.table, with * ? [a-z], /regexp/.*, !db.table, @file; may be repeated.",
        ),
    ],
    "timezone": Annotated[
        str | None,
        typer.Option("--timezone", help="The zone of TIMESTAMP values in the messages: a name or an offset."),
    ],
    "from_": Annotated[
        str | None,
        typer.Option(
            "--from", help="Where a new pipeline begins: earliest, a TSO or a time.  A known one must have begun there."
        ),
    ],
    "consistency": Annotated[str | None, typer.Option("--consistency", help="atomic or parallel.  [default: atomic]")],
    "on_bad_message": Annotated[
        str | None, typer.Option("--on-bad-message", help="stop or quarantine.  [default: stop]")
    ],
    "source": Annotated[
        str | None,
        typer.Option(
            "--source", help="The upstream itself: mysql://user@host:port/; password in BRIDGE_SOURCE_PASSWORD."
        ),
    ],
    "max_load": Annotated[
        list[str] | None,
        typer.Option("--max-load", help="Wait while a status variable is above its limit: Threads_running=25."),
    ],
    SET: Annotated[list[str] | None, typer.Option("--set", help="Any other setting, as section.key=value.")],
}
"""The flags that become settings, each by the name of its setting (`from_`: Python keeps `from` for itself)."""

PIPELINE: Final = ("config", "name")
TARGET: Final = (*PIPELINE, "target")
KAFKA: Final = ("protocol", "bootstrap_servers", "topic")
INPUT: Final = (*KAFKA, "input")
DECODING: Final = ("filter", "timezone")

TakeOverFlag = Annotated[bool, typer.Option("--take-over", help="Take the pipeline over from the bridge that owns it.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
YesFlag = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def takes_settings(*order: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the flags in `order`, and passes it the settings that they make as its first argument.

    A name in `order` is one of SETTINGS_FLAGS, or a parameter of the command itself.  The help lists the flags in this
    order, then the command's other parameters, then --set.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = dict(list(signature(command, eval_str=True).parameters.items())[1:])
        names = [*order, *(name for name in own if name not in order), SET]
        parameters = [own.get(name) or _settings_parameter(name) for name in names]

        def run(**given: Any) -> None:
            flags = {name: value for name, value in given.items() if name not in own}
            command(_settings(**flags), **{name: given[name] for name in own})

        update_wrapper(run, command)
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__signature__ = Signature(  # type: ignore[attr-defined]
            [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
        )
        return run

    return decorate


def _settings_parameter(name: str) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=SETTINGS_FLAGS[name])


def _settings(*, config: Path | None, set: list[str] | None, **flags: Any) -> Settings:
    """Reads the settings of a command from `--config`, the environment, its other flags, and `--set`."""
    given = {name.removesuffix("_"): value for name, value in flags.items()}
    return load_settings(config, os.environ, given, set or [])


def confirm(question: str, *, yes: bool) -> None:
    """Asks on stderr before something is deleted.  Raises UsageError unless the answer is yes; no answer is a no."""
    try:
        agreed = yes or typer.confirm(visible(question), err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        raise UsageError("nothing was changed", fix="answer y, or give --yes")


def stdin_text() -> str:
    """Reads all of stdin; UsageError when it is not text."""
    try:
        return sys.stdin.read() if sys.stdin else ""
    except (UnicodeDecodeError, OSError) as error:
        raise UsageError(f"stdin cannot be read: {error}", fix="give it text in UTF-8") from error
