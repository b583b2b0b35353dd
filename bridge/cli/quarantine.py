"""`bridge quarantine`: list, show, retry, drop."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from bridge.cli import output
from bridge.cli.options import (
    ConfigFlag,
    FilterFlag,
    JsonFlag,
    NameFlag,
    ProtocolFlag,
    SetFlag,
    SourceFlag,
    TargetFlag,
    ZoneFlag,
    confirm,
    settings_of,
)
from bridge.commands.connections import target_of, upstream_of
from bridge.config import Settings
from bridge.errors import UnknownPipelineError, UsageError

if TYPE_CHECKING:
    from bridge.commands.quarantine import Outcome, Quarantine

app = typer.Typer(help="Works through what was quarantined.", no_args_is_help=True)

_SOURCE_SECONDS: Final = 10
"""How long a source that does not answer is asked again while somebody waits."""

IdsArgument = Annotated[list[int] | None, typer.Argument(metavar="[ID]...", help="Entries, by id.")]
AllFlag = Annotated[bool, typer.Option("--all", help="All that are held.")]


@app.command("list")
def list_entries(
    config: ConfigFlag = None,
    name: NameFlag = None,
    target: TargetFlag = None,
    settled: Annotated[bool, typer.Option("--settled", help="Also those that were applied or dropped.")] = False,
    as_json: JsonFlag = False,
    assignments: SetFlag = None,
) -> None:
    """What was quarantined: where, why, and what has become of it."""
    from bridge.commands.quarantine import document
    from bridge.mysql.state.quarantine import State

    settings = settings_of(config, assignments, name=name, target=target)
    entries = _quarantine(settings).entries(list(State) if settled else [State.HELD])
    if entries is None:
        raise UnknownPipelineError(settings.name)
    if as_json:
        output.print_json([document(entry) for entry in entries])
    else:
        output.quarantine_table(entries)


@app.command("show")
def show_entry(
    id_: Annotated[int, typer.Argument(metavar="ID", help="The entry.")],
    config: ConfigFlag = None,
    name: NameFlag = None,
    protocol: ProtocolFlag = None,
    target: TargetFlag = None,
    filters: FilterFlag = None,
    zone: ZoneFlag = None,
    source: SourceFlag = None,
    as_json: JsonFlag = False,
    assignments: SetFlag = None,
) -> None:
    """One entry: its bytes, the reason, and what it decodes to with the settings given now."""
    from bridge.commands.quarantine import bytes_document, document, event_document

    settings = settings_of(
        config, assignments, name=name, protocol=protocol, target=target, filter=filters, timezone=zone, source=source
    )
    quarantine = _quarantine(settings)
    entry = quarantine.entry(id_)
    events = [event_document(event) for event in quarantine.decoded(entry)]
    if as_json:
        output.print_json(document(entry) | bytes_document(entry) | {"decoded": events})
    else:
        output.quarantine_entry(entry, events)


@app.command()
def retry(
    ids: IdsArgument = None,
    everything: AllFlag = False,
    config: ConfigFlag = None,
    name: NameFlag = None,
    protocol: ProtocolFlag = None,
    target: TargetFlag = None,
    filters: FilterFlag = None,
    zone: ZoneFlag = None,
    source: SourceFlag = None,
    as_json: JsonFlag = False,
    assignments: SetFlag = None,
) -> None:
    """Applies entries whose rows are still as they were before the change, or absent for an insert; says why not."""
    settings = settings_of(
        config, assignments, name=name, protocol=protocol, target=target, filter=filters, timezone=zone, source=source
    )
    _report(settings, _quarantine(settings).retry(_chosen(ids, everything)), as_json=as_json)


@app.command()
def drop(
    ids: IdsArgument = None,
    everything: AllFlag = False,
    config: ConfigFlag = None,
    name: NameFlag = None,
    target: TargetFlag = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonFlag = False,
    assignments: SetFlag = None,
) -> None:
    """Marks entries as dropped: they count no more as held, and stay to be looked at (list --settled)."""
    settings = settings_of(config, assignments, name=name, target=target)
    chosen = _chosen(ids, everything)
    what = "everything that is held" if chosen is None else f"{len(chosen)} entries"
    confirm(f"Drop {what} in the quarantine of {settings.name!r}?", yes=yes)
    _report(settings, _quarantine(settings).drop(chosen), as_json=as_json)


def _quarantine(settings: Settings) -> Quarantine:
    from bridge.commands.quarantine import Quarantine

    if not settings.upstream.url:
        return Quarantine(target_of(settings), settings)
    from bridge.verify.source.historical_rows import UpstreamRows

    upstream = UpstreamRows(upstream_of(settings), retry_seconds=_SOURCE_SECONDS)
    return Quarantine(target_of(settings), settings, upstream)


def _chosen(ids: list[int] | None, everything: bool) -> list[int] | None:
    if bool(ids) == everything:
        raise UsageError("which entries?", fix="give their ids, or --all; `bridge quarantine list` shows them")
    return ids or None


def _report(settings: Settings, outcomes: list[Outcome] | None, *, as_json: bool) -> None:
    if outcomes is None:
        raise UnknownPipelineError(settings.name)
    if as_json:
        output.print_json([asdict(outcome) for outcome in outcomes])
    else:
        output.quarantine_outcomes(outcomes)
