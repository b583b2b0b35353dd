"""What the demo has found, as tables for people and as a document for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from bridge import console
from bridge.demo.bank import SCHEMA
from bridge.demo.compare import ComparedTable


@dataclass(frozen=True)
class DemoResult:
    """The outcome of a demo.

    sending_seconds: how long the upstream has sent; seconds: how long everything took.
    first_violations: the first snapshots that were no state of the upstream, in words.
    latency: the median seconds from a commit to a reader that sees it; None when none was measured.
    verified: the last line of `bridge verify`; "" unless the tables were equal.
    """

    tables: tuple[ComparedTable, ...]
    transactions: int
    schema_changes: int
    row_changes: int
    sending_seconds: float
    kills: int
    snapshots: int
    violations: int
    first_violations: tuple[str, ...]
    latency: float | None
    verified: str
    seconds: float

    @property
    def is_good(self) -> bool:
        """Tells whether all tables are equal, and every snapshot was a state of the upstream."""
        equal = bool(self.tables) and not any(table.difference for table in self.tables)
        return equal and bool(self.verified) and self.snapshots > 0 and self.violations == 0

    def document(self) -> dict[str, Any]:
        """Returns what `--json` prints."""
        return {"result": self._verdict(), **asdict(self)}

    def print(self) -> None:
        """Prints the tables and the facts to stdout, and what was wrong to stderr."""
        self._print_grids()
        for table in self.tables:
            if table.difference:
                console.note(f"{SCHEMA}.{table.table}: {table.difference}")
        for words in self.first_violations:
            console.note(f"violation: {words}")

    def _print_grids(self) -> None:
        grid = Grid(title="Target against upstream", title_justify="left")
        grid.add_column("table")
        grid.add_column("rows", justify="right")
        grid.add_column("equal?")
        for table in self.tables:
            grid.add_row(f"{SCHEMA}.{table.table}", f"{table.rows:,}", "equal" if not table.difference else "DIFFERENT")
        facts = Grid(show_header=False, box=None, pad_edge=False)
        for name, value in self._facts():
            facts.add_row(name, Text(value))
        terminal = Console(highlight=False)
        terminal.print(grid)
        terminal.print(facts)

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "transactions", f"{self.transactions:,}, and {self.schema_changes} schema changes"
        yield "row changes", f"{self.row_changes:,}, {self.row_changes / self.sending_seconds:,.0f} a second"
        yield "bridge killed", f"{self.kills} time" + ("" if self.kills == 1 else "s")
        yield "snapshots read", f"{self.snapshots:,}, of which {self.violations} were no state of the upstream"
        if self.latency is not None:
            yield "latency", f"{self.latency:.2f} s from commit to visible (median)"
        yield "bridge verify", self.verified or "NOT EQUAL; its log has more"
        yield "took", f"{self.seconds:.0f} s"
        yield "result", self._verdict()

    def _verdict(self) -> str:
        return "equal" if self.is_good else "NOT EQUAL"
