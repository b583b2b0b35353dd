"""`bridge ctl`: pause, resume, rate, throttle, show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bridge import console
from bridge.cli.help_layout import UNKNOWN, command, page_app
from bridge.cli.options import TARGET, JsonFlag, takes_settings

if TYPE_CHECKING:
    from bridge.commands.ctl import Steered, Steerer
    from bridge.config import Settings
    from bridge.mysql.state.controls import Controls

app = page_app(
    "Steers a pipeline, from any machine that reaches its target.  What is set stays over restarts; a bridge that runs"
    " takes it up within two seconds, which is waited for and told.",
    example="bridge ctl pause --config bridge.toml",
    exits=UNKNOWN,
)


@command(app, "show", example="bridge ctl show --config bridge.toml", exits=UNKNOWN)
@takes_settings(*TARGET)
def show(settings: Settings, as_json: JsonFlag = False) -> None:
    """Shows what is set, by whom and since when."""
    from bridge.mysql.state.controls import as_document

    controls = _steerer(settings).read()
    if as_json:
        console.print_json(as_document(controls))
    else:
        _print_controls(settings, controls)


@command(app, "pause", example="bridge ctl pause --config bridge.toml", exits=UNKNOWN)
@takes_settings(*TARGET)
def pause(settings: Settings, as_json: JsonFlag = False) -> None:
    """Applies nothing any more, from the next transaction on.  The bridge stays the owner, and reads on as far as its
    memory allows."""
    _print(settings, _steerer(settings).pause(), as_json=as_json)


@command(app, "resume", example="bridge ctl resume --config bridge.toml", exits=UNKNOWN)
@takes_settings(*TARGET)
def resume(settings: Settings, as_json: JsonFlag = False) -> None:
    """Lifts a pause."""
    _print(settings, _steerer(settings).resume(), as_json=as_json)


@command(app, "rate", example="bridge ctl rate 5000 --config bridge.toml", exits=UNKNOWN)
@takes_settings("rows", *TARGET)
def rate(
    settings: Settings,
    rows: Annotated[str, typer.Argument(metavar="N|off", help="Row changes a second; off or 0 for no limit.")],
    as_json: JsonFlag = False,
) -> None:
    """Limits the row changes a second.  An upstream transaction that is larger is applied whole and paid afterwards."""
    _print(settings, _steerer(settings).rate(rows), as_json=as_json)


@command(
    app,
    "throttle",
    example="bridge ctl throttle Threads_running=40 replica_lag=30 --config bridge.toml",
    exits=UNKNOWN,
)
@takes_settings("limits", *TARGET)
def throttle(
    settings: Settings,
    limits: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=N|off",
            help="Status variables of the target, each with its limit; replica_lag=SECONDS for the replicas in"
            " target.replicas.  They replace what was set.",
        ),
    ],
    as_json: JsonFlag = False,
) -> None:
    """Waits before each transaction while the target, or a replica of it, is above a limit."""
    _print(settings, _steerer(settings).throttle(limits), as_json=as_json)


def _steerer(settings: Settings) -> Steerer:
    from bridge.commands.connections import progress_of, target_of
    from bridge.commands.ctl import Steerer

    return Steerer(target_of(settings), progress_of(settings))


def _print(settings: Settings, steered: Steered, *, as_json: bool) -> None:
    if as_json:
        console.print_json(steered.document())
        return
    _print_controls(settings, steered.controls)
    console.line(f"{settings.name}: {steered.words}")


def _print_controls(settings: Settings, controls: Controls) -> None:
    for control in controls.values():
        console.line(f"{settings.name}: {control.words}")
    if not controls:
        console.line(f"{settings.name}: nothing is set")
