"""A page of the manual as a terminal shows it: what does not fit into a cell of a table is folded, never cut."""

from __future__ import annotations

from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Markdown, MarkdownElement, TableElement
from rich.table import Table


class _FoldedTable(TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for drawn in super().__rich_console__(console, options):
            if isinstance(drawn, Table):
                for column in drawn.columns:
                    column.overflow = "fold"
            yield drawn


class Page(Markdown):
    """Markdown to be printed by rich."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "table_open": _FoldedTable}
