"""`bridge config`, `bridge ctl`, `bridge ddl` and `bridge quarantine`: commands that have commands."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from bridge import console
from bridge.cli import output
from bridge.cli.help_layout import UNKNOWN, command, page_app
from bridge.cli.options import DECODING, TARGET, JsonFlag, YesFlag, confirm, stdin_text, takes_settings
from bridge.errors import UnknownPipelineError, UsageError, counted

if TYPE_CHECKING:
    from bridge.commands.ctl import Steered, Steerer
    from bridge.commands.quarantine import EntryOutcome, Quarantine
    from bridge.config import Settings
    from bridge.mysql.state.controls import Controls


_LISTED = 1000
"""How many schema changes are listed for people."""
ddl_app = page_app(
    "Shows schema changes, decides about those that wait, and shows how a statement would run on the target.",
    example="bridge ddl list --open --config bridge.toml",
    exits=UNKNOWN,
)

ChangeArgument = Annotated[
    str,
    typer.Argument(metavar="ID", help="The commit ts of the schema change, or its id as `bridge ddl list` shows it."),
]


@command(ddl_app, "list", example="bridge ddl list --open --config bridge.toml", exits=UNKNOWN)
@takes_settings(*TARGET)
def list_(
    settings: Settings,
    only_open: Annotated[
        bool, typer.Option("--open", help="Only schema changes that are held or were refused.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=0,
            metavar="N",
            help="How many are shown, the last ones; 0 for all.  [default: 1000, all as JSON]",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Lists the schema changes that ran, were left out, are held or were refused, in the order of the upstream."""
    from bridge.commands import ddl
    from bridge.commands.connections import progress_of, target_of
    from bridge.mysql.state.ddl_journal import OPEN

    changes = ddl.entries(target_of(settings), progress_of(settings))
    if changes is None:
        raise UnknownPipelineError(settings.name)
    selection = [entry for entry in changes if entry.state in OPEN or not only_open]
    most = (0 if as_json else _LISTED) if limit is None else limit
    shown = selection[-most:]
    output.schema_changes(shown, as_json=as_json)
    if earlier := len(selection) - len(shown):
        console.note(f"{counted(earlier, 'earlier schema change')} not shown; --limit 0 shows all")


@command(ddl_app, "approve", example="bridge ddl approve 470611868434825218 --config bridge.toml", exits=UNKNOWN)
@takes_settings("change", *TARGET)
def approve(settings: Settings, change: ChangeArgument, as_json: JsonFlag = False) -> None:
    """Lets a held schema change run.  One that the target refused is tried again at the next start."""
    _release(settings, change, "APPROVED", as_json=as_json)


@command(ddl_app, "skip", example="bridge ddl skip 470611868434825218 --config bridge.toml", exits=UNKNOWN)
@takes_settings("change", *TARGET)
def skip(settings: Settings, change: ChangeArgument, as_json: JsonFlag = False) -> None:
    """Leaves a held or refused schema change out; replication continues with what follows it."""
    _release(settings, change, "SKIPPED", as_json=as_json)


@command(ddl_app, "done", example="bridge ddl done 470611868434825218 --config bridge.toml", exits=UNKNOWN)
@takes_settings("change", "statement", *TARGET)
def done(
    settings: Settings,
    change: ChangeArgument,
    statement: Annotated[
        str,
        typer.Argument(
            metavar="[STATEMENT]",
            help="What was done in its place, as one statement in the target's SQL; - reads it from stdin.",
        ),
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """Says that the target has the effect of a held or refused schema change, since somebody made it by hand.  Nothing
    runs, and verify takes it for done."""
    _release(settings, change, "DONE", _text_of(statement), as_json=as_json)


@command(
    ddl_app,
    "replace",
    example="bridge ddl replace 470611868434825218 'ALTER TABLE shop.t ADD COLUMN c INT' --config bridge.toml",
    exits=UNKNOWN,
)
@takes_settings("change", "statement", *TARGET)
def replace(
    settings: Settings,
    change: ChangeArgument,
    statement: Annotated[
        str, typer.Argument(metavar="STATEMENT", help="The statement, in the target's SQL; - reads it from stdin.")
    ],
    as_json: JsonFlag = False,
) -> None:
    """Runs another statement instead of a held or refused schema change."""
    _release(settings, change, "REPLACED", _text_of(statement), as_json=as_json)


def _text_of(statement: str) -> str:
    return stdin_text().strip() if statement == "-" else statement


def _release(settings: Settings, change: str, state: str, replacement: str = "", *, as_json: bool) -> None:
    from bridge.commands import ddl
    from bridge.commands.connections import progress_of, target_of
    from bridge.mysql.state.ddl_journal import JournalState

    entry = ddl.release(
        target_of(settings), progress_of(settings), change, JournalState[state], replacement, settings=settings
    )
    document = {**entry.document(), "replacement": replacement}
    console.result(document, [f"{entry.id} is {entry.state}: {entry.statement}"], as_json=as_json)


@command(
    ddl_app,
    "translate",
    example="echo 'ALTER TABLE t ADD COLUMN c JSON' | bridge ddl translate --schema shop --flavour mariadb-10.11",
)
@takes_settings("name", "protocol", "registry", "input", "target", "flavour", "schema", *DECODING, needs=())
def translate(
    settings: Settings,
    flavour: Annotated[
        str | None,
        typer.Option(
            "--flavour",
            metavar="SERVER",
            help="A server to translate for, instead of --target: mariadb-10.11, mysql-8.0, tidb-8.5...",
        ),
    ] = None,
    schema: Annotated[
        str, typer.Option("--schema", metavar="NAME", help="The current database of the statements on stdin.")
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """Shows how statements, from stdin or from capture files (--input), would run on the target.  Runs nothing."""
    from bridge.commands import ddl
    from bridge.commands.connections import source_of, target_of
    from bridge.filters.table_filter import TableFilter
    from bridge.protocols import DecodeOptions, in_json, recognise

    if settings.source.input:
        messages = [(message.key, message.value) for message in source_of(settings).messages(None, None)]
        schemas = settings.source.registry.registry()
        protocol = recognise(in_json(messages, schemas))[0] if settings.protocol == "auto" else settings.protocol
        options = DecodeOptions(settings.timezone, TableFilter(settings.filter), schemas=schemas)
        changes = list(ddl.schema_changes(messages, protocol, options))
    else:
        changes = [(schema, statement) for statement in ddl.split(stdin_text())]
    if not changes:
        raise UsageError("there is no schema change to translate", fix="give statements on stdin, or --input")
    server = target_of(settings) if flavour is None else None
    with ddl.site_for(settings, server, flavour) as (rules, site):
        output.translations([ddl.translate(text, where, rules, site) for where, text in changes], as_json=as_json)


config_app = page_app("Prints examples of settings files.", example="bridge config example tls")


@command(config_app, "example", example="bridge config example ticdc-to-mysql > bridge.toml")
def example(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The example.  Without it, the examples are listed.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Prints a commented settings file, to begin with."""
    from bridge.commands import manual

    if name is None:
        output.listed(manual.examples(), "`bridge config example NAME` prints one.", as_json=as_json)
    else:
        text = manual.example(name)
        console.print_json({"name": name, "text": text}) if as_json else output.file_text(text)


ctl_app = page_app(
    "Steers a pipeline, from any machine that reaches its target.  What is set stays over restarts; a bridge that runs"
    " takes it up within two seconds, which is waited for and told.",
    example="bridge ctl pause --config bridge.toml",
    exits=UNKNOWN,
)


@command(ctl_app, "show", example="bridge ctl show --config bridge.toml", exits=UNKNOWN)
@takes_settings(*TARGET)
def show(settings: Settings, as_json: JsonFlag = False) -> None:
    """Shows what is set, by whom and since when."""
    from bridge.mysql.state.controls import as_document

    controls = _steerer(settings).read()
    console.result(as_document(controls), _control_lines(settings, controls), as_json=as_json)


@command(ctl_app, "pause", example="bridge ctl pause --config bridge.toml", exits=UNKNOWN)
@takes_settings(*TARGET)
def pause(settings: Settings, as_json: JsonFlag = False) -> None:
    """Applies nothing any more, from the next transaction on.  The bridge stays the owner, and reads on as far as its
    memory allows."""
    _print(settings, _steerer(settings).pause(), as_json=as_json)


@command(ctl_app, "resume", example="bridge ctl resume --config bridge.toml", exits=UNKNOWN)
@takes_settings(*TARGET)
def resume(settings: Settings, as_json: JsonFlag = False) -> None:
    """Lifts a pause."""
    _print(settings, _steerer(settings).resume(), as_json=as_json)


@command(ctl_app, "rate", example="bridge ctl rate 5000 --config bridge.toml", exits=UNKNOWN)
@takes_settings("rows", *TARGET)
def rate(
    settings: Settings,
    rows: Annotated[str, typer.Argument(metavar="N|off", help="Row changes a second; off or 0 for no limit.")],
    as_json: JsonFlag = False,
) -> None:
    """Limits the row changes a second.  An upstream transaction that is larger is applied whole and paid afterwards."""
    _print(settings, _steerer(settings).rate(rows), as_json=as_json)


@command(
    ctl_app,
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
    lines = [*_control_lines(settings, steered.controls), f"{settings.name}: {steered.words}"]
    console.result(steered.document(), lines, as_json=as_json)


def _control_lines(settings: Settings, controls: Controls) -> list[str]:
    return [f"{settings.name}: {words}" for words in [one.words for one in controls.values()] or ["nothing is set"]]


quarantine_app = page_app(
    "Lists and shows quarantined messages and rows, tries them again, or drops them.",
    example="bridge quarantine list --config bridge.toml",
    exits=UNKNOWN,
)

_UPSTREAM_RETRY_SECONDS: Final = 10
"""How long an upstream that does not answer is tried again.  Short, because somebody waits for the command."""

IdsArgument = Annotated[list[int] | None, typer.Argument(metavar="ID", help="The ids of the entries.")]
AllFlag = Annotated[bool, typer.Option("--all", help="All entries that are held.")]


@command(quarantine_app, "list", example="bridge quarantine list --config bridge.toml", exits=UNKNOWN)
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
    console.result([document(entry) for entry in entries], output.quarantine_lines(entries), as_json=as_json)


@command(quarantine_app, "show", example="bridge quarantine show 17 --config bridge.toml", exits=UNKNOWN)
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
    whole = document(entry) | bytes_document(entry) | {"decoded": events}
    console.result(whole, output.entry_lines(entry, events), as_json=as_json)


@command(quarantine_app, "retry", example="bridge quarantine retry --all --config bridge.toml", exits=UNKNOWN)
@takes_settings("ids", "everything", *TARGET, "upstream", "protocol", "registry", *DECODING)
def retry(settings: Settings, ids: IdsArgument = None, everything: AllFlag = False, as_json: JsonFlag = False) -> None:
    """Applies entries whose rows are still as they were before the change (for an insert: absent), and tells why others
    were left."""
    _print_outcomes(settings, _quarantine(settings).retry(_chosen(ids, everything)), as_json=as_json)


@command(quarantine_app, "drop", example="bridge quarantine drop 17 18 --config bridge.toml", exits=UNKNOWN)
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
    console.result([asdict(outcome) for outcome in outcomes], output.outcome_lines(outcomes), as_json=as_json)
