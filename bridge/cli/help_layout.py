"""Lays out `--help`: commands and flags in groups, an example, and the exit codes.

It is plain text: typer's own layout takes longer to import than everything else that `--help` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import typer
from typer._click.exceptions import UsageError as WrongUsage
from typer.core import TyperCommand, TyperGroup

SETTINGS_FAILED: Final = "wrong usage or settings"
STOPPED: Final = "stopped by a failure that a retry did not cure"
EXITS: Final = {0: "done", 2: SETTINGS_FAILED, 3: STOPPED, 70: "a bug in the bridge"}
"""The exit codes of every command; those of its own add to them (the manual, operating, has all)."""
UNKNOWN: Final = {1: "the pipeline is unknown"}
COMMANDS: Final = "Commands"
_FLAG_WIDTH: Final = 32
_HELP_FLAGS: Final = ("-h", "--help")
_CONTEXT: Final[dict[str, Any]] = {"help_option_names": [*_HELP_FLAGS], "max_content_width": 110}
_LEAST: Final = re.compile(r"(; |  \[)x>=0\]$")
"""How typer writes that a number is not negative, which needs no words."""


class Heading(StrEnum):
    """The headings of arguments and flags, in the order that all pages have."""

    ARGUMENTS = "Arguments"
    PIPELINE = "Pipeline"
    SOURCE = "Source"
    TARGET = "Target"
    UPSTREAM = "Upstream"
    MEANING = "What is replicated, and how"
    SETTINGS = "Settings"
    LOG = "Log"
    OPTIONS = "Options"


class _NamedInErrors:
    """Has errors of its arguments name the command, for the page that they point to: typer names none where the value
    of a flag is missing."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments."""
        try:
            return super().parse_args(ctx, args)  # type: ignore[misc, no-any-return]  # of the command beside it
        except WrongUsage as error:
            error.ctx = error.ctx or ctx
            raise


class PageCommand(_NamedInErrors, TyperCommand):
    """A command whose flags are listed in groups.

    example: how it is called; exits: its exit codes, each with what it means.
    """

    example: str
    exits: Mapping[int, str]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Returns what is written behind the command's name: ID where typer writes {ID}."""
        return [re.sub(r"^{(.*)}", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes arguments and flags, the example and the exit codes."""
        _write_records(formatter, _records(self, ctx))
        _write_use(formatter, self.example, self.exits)


class PageGroup(_NamedInErrors, TyperGroup):
    """A command that has commands, which are listed in groups with their first sentence.

    example: how one of them is called; exits: the exit codes of all of them.
    """

    example: str
    exits: Mapping[int, str]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the flags, then the commands, an example and the exit codes."""
        _write_records(formatter, _records(self, ctx))
        self.format_commands(ctx, formatter)
        _write_use(formatter, self.example, self.exits)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands by group."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        shown = [(name, item) for name, item in commands if item is not None and not item.hidden]
        records = [(_panel(item) or COMMANDS, (name, _first_sentence(item.help or ""))) for name, item in shown]
        _write_groups(formatter, _grouped(records))


def page_app(help_: str, *, example: str, exits: Mapping[int, str] | None = None) -> typer.Typer:
    """Returns a group of commands whose help is laid out as above.

    exits: as of `command`.
    """
    return typer.Typer(
        help=help_,
        cls=type("Pages", (PageGroup,), {"example": example, "exits": {**EXITS, **(exits or {})}}),
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings=_CONTEXT,
    )


def command(
    app: typer.Typer, name: str, *, example: str, exits: Mapping[int, str] | None = None, group: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds a function to `app` as a command.

    example: how it is called.
    exits: its exit codes with what they mean, as far as they are not those of every command.
    group: the heading below which `--help` of the app lists it.
    """
    kind = type("Page", (PageCommand,), {"example": example, "exits": {**EXITS, **(exits or {})}})
    return app.command(name, cls=kind, rich_help_panel=group)


def page_of(root: Any, arguments: Sequence[str]) -> str | None:
    """Returns the help that `COMMAND... --help` asks for; None for other arguments.

    Flags of the commands above are not parsed for it, since typer imports pydantic to do so, which takes 0.2 s.
    """
    *names, last = arguments or [""]
    if last not in _HELP_FLAGS:
        return None
    context = typer.Context(root, info_name="bridge", **_CONTEXT)
    for name in names:
        inner = getattr(context.command, "commands", {}).get(name)
        if inner is None:
            return None
        context = typer.Context(inner, info_name=name, parent=context)
    return context.get_help()


def _records(shown: Any, ctx: Any) -> Iterator[tuple[str, tuple[str, str]]]:
    for parameter in shown.get_params(ctx):
        if parameter.param_type_name == "argument":
            yield Heading.ARGUMENTS, (parameter.metavar, parameter.help or "")
        elif record := parameter.get_help_record(ctx):
            flag, words = record
            shown_words = _LEAST.sub(lambda match: "]" if match[1] == "; " else "", words)
            yield _panel(parameter) or Heading.OPTIONS, (flag, shown_words)


def _write_records(formatter: Any, records: Any) -> None:
    groups = _grouped(records)
    _write_groups(formatter, {heading: groups[heading] for heading in Heading if heading in groups})


def _grouped(records: Any) -> dict[str, list[tuple[str, str]]]:
    groups: dict[str, list[tuple[str, str]]] = {}
    for group, record in records:
        groups.setdefault(group, []).append(record)
    return groups


def _write_groups(formatter: Any, groups: Mapping[str, list[tuple[str, str]]]) -> None:
    for group, rows in groups.items():
        with formatter.section(group):
            formatter.write_dl(_aligned(rows, groups.values()), col_max=_FLAG_WIDTH)


def _write_use(formatter: Any, example: str, exits: Mapping[int, str]) -> None:
    with formatter.section("Example"):
        formatter.write("".join(f"{'':>{formatter.current_indent}}{line}\n" for line in example.split("\n")))
    with formatter.section("Exit codes"):
        formatter.write_dl([(str(code), meaning) for code, meaning in sorted(exits.items())])


def _aligned(rows: Sequence[tuple[str, str]], groups: Any) -> list[tuple[str, str]]:
    """Pads the first column to one width in all groups."""
    width = min(max(len(first) for group in groups for first, _ in group), _FLAG_WIDTH)
    return [(f"{first:<{width}}", second) for first, second in rows]


def _panel(shown: Any) -> str | None:
    panel = getattr(shown, "rich_help_panel", None)
    return panel if isinstance(panel, str) else None


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].partition(";")[0].rstrip(".")
