"""`bridge config`: examples of settings files."""

from __future__ import annotations

from typing import Annotated

import typer

from bridge import console
from bridge.cli import output
from bridge.cli.help_layout import command, page_app
from bridge.cli.options import JsonFlag

app = page_app("Prints examples of settings files.", example="bridge config example tls")


@command(app, "example", example="bridge config example ticdc-to-mysql > bridge.toml")
def example(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The example.  Without it, the examples are listed.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Prints a commented settings file, to begin with."""
    from bridge.commands import manual

    if name is None:
        known = manual.examples()
        behind = "`bridge config example NAME` prints one."
        console.print_json(known) if as_json else output.listed(known, 20, behind)
    else:
        text = manual.example(name)
        console.print_json({"name": name, "text": text}) if as_json else output.file_text(text)
