"""`bridge ddl`: the commands that show schema changes and decide about those that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bridge import console
from bridge.cli import output
from bridge.cli.help_layout import UNKNOWN, command, page_app
from bridge.cli.options import DECODING, TARGET, JsonFlag, stdin_text, takes_settings
from bridge.errors import UnknownPipelineError, UsageError, counted

if TYPE_CHECKING:
    from bridge.config import Settings

_LISTED = 1000
"""How many schema changes are listed for people."""
app = page_app(
    "Shows schema changes, decides about those that wait, and shows how a statement would run on the target.",
    example="bridge ddl list --open --config bridge.toml",
    exits=UNKNOWN,
)

ChangeArgument = Annotated[
    str,
    typer.Argument(metavar="ID", help="The commit ts of the schema change, or its id as `bridge ddl list` shows it."),
]


@command(app, "list", example="bridge ddl list --open --config bridge.toml", exits=UNKNOWN)
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

    found = ddl.entries(target_of(settings), progress_of(settings))
    if found is None:
        raise UnknownPipelineError(settings.name)
    wanted = [entry for entry in found if entry.state in OPEN or not only_open]
    most = (0 if as_json else _LISTED) if limit is None else limit
    shown = wanted[-most:]
    output.schema_changes(shown, as_json=as_json)
    if earlier := len(wanted) - len(shown):
        console.note(f"{counted(earlier, 'earlier schema change')} not shown; --limit 0 shows all")


@command(app, "approve", example="bridge ddl approve 470611868434825218 --config bridge.toml", exits=UNKNOWN)
@takes_settings("change", *TARGET)
def approve(settings: Settings, change: ChangeArgument, as_json: JsonFlag = False) -> None:
    """Lets a held schema change run.  One that the target refused is tried again at the next start."""
    _release(settings, change, "APPROVED", as_json=as_json)


@command(app, "skip", example="bridge ddl skip 470611868434825218 --config bridge.toml", exits=UNKNOWN)
@takes_settings("change", *TARGET)
def skip(settings: Settings, change: ChangeArgument, as_json: JsonFlag = False) -> None:
    """Leaves a held or refused schema change out; replication continues with what follows it."""
    _release(settings, change, "SKIPPED", as_json=as_json)


@command(app, "done", example="bridge ddl done 470611868434825218 --config bridge.toml", exits=UNKNOWN)
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
    _release(settings, change, "DONE", _given(statement), as_json=as_json)


@command(
    app,
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
    _release(settings, change, "REPLACED", _given(statement), as_json=as_json)


def _given(statement: str) -> str:
    return stdin_text().strip() if statement == "-" else statement


def _release(settings: Settings, change: str, state: str, replacement: str = "", *, as_json: bool) -> None:
    from bridge.commands import ddl
    from bridge.commands.connections import progress_of, target_of
    from bridge.mysql.state.ddl_journal import JournalState

    entry = ddl.release(
        target_of(settings), progress_of(settings), change, JournalState[state], replacement, settings=settings
    )
    if as_json:
        console.print_json({**entry.document(), "replacement": replacement})
    else:
        console.line(f"{entry.id} is {entry.state}: {entry.statement}")


@command(
    app,
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
