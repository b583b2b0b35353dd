"""`bridge quarantine`: list, show, retry, drop."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from bridge import console
from bridge.cli import output
from bridge.cli.help_layout import UNKNOWN, command, page_app
from bridge.cli.options import DECODING, TARGET, JsonFlag, YesFlag, confirm, takes_settings
from bridge.errors import UnknownPipelineError, UsageError

if TYPE_CHECKING:
    from bridge.commands.quarantine import EntryOutcome, Quarantine
    from bridge.config import Settings

app = page_app(
    "Lists and shows quarantined messages and rows, tries them again, or drops them.",
    example="bridge quarantine list --config bridge.toml",
    exits=UNKNOWN,
)

_UPSTREAM_RETRY_SECONDS: Final = 10
"""How long an upstream that does not answer is tried again.  Short, because somebody waits for the command."""

IdsArgument = Annotated[list[int] | None, typer.Argument(metavar="ID", help="The ids of the entries.")]
AllFlag = Annotated[bool, typer.Option("--all", help="All entries that are held.")]


@command(app, "list", example="bridge quarantine list --config bridge.toml", exits=UNKNOWN)
@takes_settings(*TARGET)
def list_entries(
    settings: Settings,
    settled: Annotated[bool, typer.Option("--settled", help="Also entries that were applied or dropped.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Lists what was quarantined: where it was, why, and its state."""
    from bridge.commands.quarantine import document
    from bridge.mysql.state.quarantine import QuarantineState

    entries = _quarantine(settings).entries(list(QuarantineState) if settled else [QuarantineState.HELD])
    if entries is None:
        raise UnknownPipelineError(settings.name)
    if as_json:
        console.print_json([document(entry) for entry in entries])
    else:
        output.quarantine_table(entries)


@command(app, "show", example="bridge quarantine show 17 --config bridge.toml", exits=UNKNOWN)
@takes_settings(*TARGET, "upstream", "protocol", "registry", *DECODING)
def show_entry(
    settings: Settings,
    id_: Annotated[int, typer.Argument(metavar="ID", help="The id of the entry.")],
    as_json: JsonFlag = False,
) -> None:
    """Shows one entry: its bytes, the reason, and the events that it decodes to with the present settings."""
    from bridge.commands.quarantine import bytes_document, document, event_document

    quarantine = _quarantine(settings)
    entry = quarantine.entry(id_)
    events = [event_document(event) for event in quarantine.decoded(entry)]
    if as_json:
        console.print_json(document(entry) | bytes_document(entry) | {"decoded": events})
    else:
        output.quarantine_entry(entry, events)


@command(app, "retry", example="bridge quarantine retry --all --config bridge.toml", exits=UNKNOWN)
@takes_settings("ids", "everything", *TARGET, "upstream", "protocol", "registry", *DECODING)
def retry(settings: Settings, ids: IdsArgument = None, everything: AllFlag = False, as_json: JsonFlag = False) -> None:
    """Applies entries whose rows are still as they were before the change (for an insert: absent), and tells why others
    were left."""
    _print_outcomes(settings, _quarantine(settings).retry(_chosen(ids, everything)), as_json=as_json)


@command(app, "drop", example="bridge quarantine drop 17 18 --config bridge.toml", exits=UNKNOWN)
@takes_settings("ids", "everything", *TARGET)
def drop(
    settings: Settings,
    ids: IdsArgument = None,
    everything: AllFlag = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Marks entries as dropped: they no longer count as held, but can still be listed (list --settled)."""
    chosen = _chosen(ids, everything)
    what = "everything that is held" if chosen is None else f"{len(chosen)} of its entries"
    confirm(f"Drop {what} in the quarantine of {settings.name!r}?", yes=yes)
    _print_outcomes(settings, _quarantine(settings).drop(chosen), as_json=as_json)


def _quarantine(settings: Settings) -> Quarantine:
    from bridge.commands.connections import target_of, upstream_of
    from bridge.commands.quarantine import Quarantine

    if not settings.upstream.url:
        return Quarantine(target_of(settings), settings)
    from bridge.verify.source.historical_rows import UpstreamRows

    upstream = UpstreamRows(upstream_of(settings), retry_seconds=_UPSTREAM_RETRY_SECONDS)
    return Quarantine(target_of(settings), settings, upstream)


def _chosen(ids: list[int] | None, everything: bool) -> list[int] | None:
    if bool(ids) == everything:
        raise UsageError("give either ids of entries or --all", fix="`bridge quarantine list` shows the entries")
    return ids or None


def _print_outcomes(settings: Settings, outcomes: list[EntryOutcome] | None, *, as_json: bool) -> None:
    if outcomes is None:
        raise UnknownPipelineError(settings.name)
    if as_json:
        console.print_json([asdict(outcome) for outcome in outcomes])
    else:
        output.quarantine_outcomes(outcomes)
