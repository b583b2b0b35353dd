"""What the commands share: their flags, and how flags become settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial, update_wrapper
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from bridge import console
from bridge.cli.help_layout import Heading
from bridge.console import visible
from bridge.errors import UsageError

if TYPE_CHECKING:
    from bridge.config import Settings

SET: Final = "set"


def _flag(group: str, metavar: str, name: str, help_: str, *, repeated: bool = False) -> Any:
    """Returns the annotation of a flag with a value, listed in `group`; `name` may be several, with commas."""
    option = typer.Option(*name.split(","), metavar=metavar, help=help_, rich_help_panel=group)
    return Annotated[list[str] | None, option] if repeated else Annotated[str | None, option]


SETTINGS_FLAGS: Final[Mapping[str, Any]] = {
    "config": Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="A settings file (TOML).", rich_help_panel=Heading.SETTINGS),
    ],
    "name": _flag(Heading.PIPELINE, "NAME", "--name", "The name of the pipeline.  [default: bridge]"),
    "protocol": _flag(
        Heading.SOURCE, "P", "--protocol", "auto, canal-json, ckafka, debezium or open-protocol.  [default: auto]"
    ),
    "bootstrap_servers": _flag(Heading.SOURCE, "H:P[,H:P]", "--bootstrap-servers", "The Kafka brokers."),
    "topic": _flag(
        Heading.SOURCE,
        "TOPIC",
        "--topic",
        "A Kafka topic; may be repeated.  NAME@MOMENT (a TSO, a time, earliest) adds a topic to a known pipeline: what"
        " is below the moment counts as in the target.",
        repeated=True,
    ),
    "input": _flag(Heading.SOURCE, "PATH", "--input", "A capture file or folder, instead of Kafka."),
    "registry": _flag(
        Heading.SOURCE,
        "URL",
        "--registry",
        "The schema registry of messages in Avro; may be repeated.  Its user and password: [source.registry].",
        repeated=True,
    ),
    "target": _flag(
        Heading.TARGET, "URL", "--target", "The target: mysql://user@host:port/; password in BRIDGE_TARGET_PASSWORD."
    ),
    "upstream": _flag(
        Heading.UPSTREAM,
        "URL",
        "--upstream,--source",
        "The upstream database: mysql://user@host:port/; password in BRIDGE_UPSTREAM_PASSWORD.",
    ),
    "filter": _flag(
        Heading.MEANING,
        "RULE",
        "--filter",
        "A table rule as in TiCDC: db.table, with * ? [a-z], /regexp/.*, !db.table, @file; may be repeated.",
        repeated=True,
    ),
    "route": _flag(
        Heading.MEANING,
        "ROUTE",
        "--route",
        "Other names on the target: 'shop_1.* -> shop.*'; 'shop_*.t => shop.t' merges shards; may be repeated.",
        repeated=True,
    ),
    "timezone": _flag(
        Heading.MEANING, "ZONE", "--timezone", "The zone of TIMESTAMP values in the messages: a name or an offset."
    ),
    "from_": _flag(
        Heading.PIPELINE,
        "MOMENT",
        "--from",
        "Where a new pipeline begins: earliest, a TSO or a time.  A known one must have begun there.",
    ),
    "from_dump": _flag(
        Heading.PIPELINE,
        "FOLDER",
        "--from-dump",
        "Instead of --from: behind the dump of TiDB that dumpling or mydumper wrote to this folder.",
    ),
    "consistency": _flag(Heading.TARGET, "MODE", "--consistency", "atomic or parallel.  [default: atomic]"),
    "on_bad_message": _flag(Heading.MEANING, "ACTION", "--on-bad-message", "stop or quarantine.  [default: stop]"),
    "max_load": _flag(
        Heading.TARGET,
        "NAME=N",
        "--max-load",
        "Wait while a status variable is above its limit: Threads_running=25.",
        repeated=True,
    ),
    "log_format": _flag(Heading.LOG, "text|json", "--log-format", "How log lines are written.  [default: text]"),
    "log_level": _flag(Heading.LOG, "LEVEL", "--log-level", "debug, info, warning or error.  [default: info]"),
    "listen": _flag(
        Heading.SETTINGS,
        "[HOST:]PORT",
        "--listen",
        "Serve metrics, health and a status page there; a port: this machine only.",
    ),
    SET: _flag(Heading.SETTINGS, "KEY=VALUE", "--set", "Any other setting, as section.key=value.", repeated=True),
}
"""The flags that become settings, each by the name of its setting (`from_`: Python keeps `from` for itself)."""

PIPELINE: Final = ("name",)
TARGET: Final = (*PIPELINE, "target")
KAFKA: Final = ("protocol", "bootstrap_servers", "topic", "registry")
INPUT: Final = (*KAFKA, "input")
DECODING: Final = ("filter", "route", "timezone")
RUN: Final = (
    *(*PIPELINE, "from_", "from_dump", *KAFKA, "target", "consistency", "upstream", *DECODING),
    *("on_bad_message", "listen"),
)
"""The settings of `run`, which `check` takes as well."""

TakeOverFlag = Annotated[
    bool,
    typer.Option(
        "--take-over", help="Take the pipeline over from the bridge that owns it.", rich_help_panel=Heading.PIPELINE
    ),
]
AcceptChangeFlag = Annotated[
    bool,
    typer.Option(
        "--accept-change",
        help="Go on with other filters or routes than before; what was left out is not read again.",
        rich_help_panel=Heading.PIPELINE,
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
YesFlag = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def takes_settings(
    *order: str, needs: Sequence[str] = ("target",)
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the flags in `order`, and passes it the settings that they make as its first argument.

    A name in `order` is one of SETTINGS_FLAGS, or a parameter of the command itself.  The help lists the flags in this
    order, then --config, --set and those of the log, then the command's other parameters.  Without the ends that it
    `needs`, target or source, it raises UsageError.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        names_of_types = {"Settings": Any}  # which is imported only when a command runs
        own = dict(list(signature(command, locals=names_of_types, eval_str=True).parameters.items())[1:])
        names = [*order, "config", SET, "log_format", "log_level", *(name for name in own if name not in order)]
        of_settings = partial(Parameter, kind=Parameter.KEYWORD_ONLY, default=None)
        parameters = [own.get(name) or of_settings(name, annotation=SETTINGS_FLAGS[name]) for name in names]

        def run(**values: Any) -> None:
            flags = {name: value for name, value in values.items() if name not in own}
            command(_settings(needs, **flags), **{name: values[name] for name in own})

        update_wrapper(run, command)
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__signature__ = Signature(  # type: ignore[attr-defined]
            [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
        )
        return run

    return decorate


def _settings(needs: Sequence[str], *, config: Path | None, set: list[str] | None, **flags: Any) -> Settings:
    """Reads the settings of a command from `--config`, the environment, its other flags, and `--set`."""
    # What takes long to import is not needed by --help, and not all of it by wrong settings.
    from bridge.settings.load import load_settings

    console.send_notes_to(None)  # what is wrong with the settings is said in plain lines
    values = {name.removesuffix("_"): value for name, value in flags.items()}
    if (folder := values.pop("from_dump", None)) is not None:
        values["from"] = _behind(Path(folder), values.get("from"))
    settings = load_settings(config, os.environ, values, set or [])
    for end in needs:
        getattr(settings, end).require()
    from bridge.cli.logs import configure_logs

    configure_logs(settings.log.format, settings.log.level)
    return settings


def _behind(dump: Path, begin: str | None) -> str:
    """Gives the moment behind a dump as --from has it; UsageError when there are two beginnings."""
    from bridge.settings.dump_metadata import begin_after

    if begin is not None:
        raise UsageError("--from and --from-dump are given, and both say where to begin", fix="leave one of them out")
    return str(begin_after(dump))


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
