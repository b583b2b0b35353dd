"""What the commands share: their flags, and how flags become settings, a target and a source."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from bridge.config import Settings, load_settings
from bridge.errors import UsageError
from bridge.foreign_text import visible

ConfigFlag = Annotated[Path | None, typer.Option("--config", help="Settings file (TOML, see conf/bridge.toml).")]
NameFlag = Annotated[str | None, typer.Option("--name", help="The pipeline.  [default: bridge]")]
ProtocolFlag = Annotated[
    str | None, typer.Option("--protocol", help="auto, canal-json, ckafka, debezium or open-protocol.  [default: auto]")
]
ServersFlag = Annotated[str | None, typer.Option("--bootstrap-servers", help="Kafka, as host:port[,host:port].")]
TopicFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        help="Kafka topic; may be repeated.  NAME@MOMENT (a TSO, a time, earliest) adds it to a known pipeline: what is"
        " below counts as in the target.",
    ),
]
InputFlag = Annotated[str | None, typer.Option("--input", help="Capture file or folder, instead of Kafka.")]
TargetFlag = Annotated[
    str | None,
    typer.Option("--target", help="mysql://user@host:port/; the password comes from BRIDGE_TARGET_PASSWORD."),
]
FilterFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        help="Table rule as TiCDC has them: db.table, with * ? [a-z], /regexp/.*, !db.table, @file; repeatable.",
    ),
]
ZoneFlag = Annotated[
    str | None, typer.Option("--timezone", help="Zone of TIMESTAMP values in the messages: a name or an offset.")
]
FromFlag = Annotated[
    str | None,
    typer.Option(
        "--from", help="Where a new pipeline begins: earliest, a TSO or a time; a known one must have begun there."
    ),
]
SetFlag = Annotated[list[str] | None, typer.Option("--set", help="Any other setting, as section.key=value.")]
ConsistencyFlag = Annotated[str | None, typer.Option("--consistency", help="atomic or parallel.  [default: atomic]")]
BadFlag = Annotated[str | None, typer.Option("--on-bad-message", help="stop or quarantine.  [default: stop]")]
TakeOverFlag = Annotated[bool, typer.Option("--take-over", help="Take the pipeline from a bridge that owns it.")]
SourceFlag = Annotated[
    str | None,
    typer.Option("--source", help="The upstream itself: mysql://user@host:port/; password in BRIDGE_SOURCE_PASSWORD."),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def settings_of(config: Path | None, assignments: list[str] | None, **flags: Any) -> Settings:
    """The settings of a command, from `--config`, the environment, its other flags, and `--set`."""
    return load_settings(config, os.environ, flags, assignments or [])


def confirm(question: str, *, yes: bool) -> None:
    """Asks on stderr before something is forgotten; UsageError unless the answer is yes, also when nobody is there."""
    try:
        agreed = yes or typer.confirm(visible(question), err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        raise UsageError("nothing was changed", fix="answer y, or give --yes")


def stdin_text() -> str:
    """What stands on stdin; UsageError when that is no text."""
    try:
        return sys.stdin.read() if sys.stdin else ""
    except (UnicodeDecodeError, OSError) as error:
        raise UsageError(f"stdin cannot be read: {error}", fix="give it text in UTF-8") from error
