"""The options of a verification.

Keeps what an interrupted verify has found equal, so that --resume does not read it again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Protocol

import orjson

from bridge.config import Settings, VerifySection
from bridge.ddl.policy import DdlRules
from bridge.errors import UsageError
from bridge.filters.routes import RowRules
from bridge.filters.table_filter import TableFilter
from bridge.model import TableName
from bridge.mysql.server_load import MostLoad, parse_limits
from bridge.verify.compare.key_ranges import Tally
from bridge.verify.compare.row_diff import ComparedColumns


class ProgressListener(Protocol):
    """Hears how far a verification is."""

    def stage(self, words: str) -> None:
        """Hears what verify does now, or waits for."""

    def plan(self, rows: int) -> None:
        """Hears about how many rows there are to compare."""

    def done(self, table: TableName, rows: int) -> None:
        """Hears how many more rows of a table have been compared."""


@dataclass(frozen=True)
class VerifyOptions:
    """section: the settings of verify; max_load: status variable and its limit; fix_file: where the fixing statements
    go, None for nowhere; ddl: how the target's tables are made; row_rules: which tables are compared, and what is done
    with their row changes.
    """

    section: VerifySection = field(default_factory=VerifySection)
    max_load: MostLoad = field(default_factory=dict)
    fix_file: Path | None = None
    resume: bool = False
    ddl: DdlRules = field(default_factory=DdlRules)
    row_rules: RowRules = field(default_factory=RowRules)

    @property
    def tables(self) -> TableFilter:
        """Which tables are compared."""
        return self.row_rules.routes.tables

    @property
    def shards(self) -> str:
        """Writes the settings that decide which rows a table of several shards holds; "" where none are merged."""
        routes = self.row_rules.routes.routes
        return repr((routes, self.tables.rules)) if any(route.merges for route in routes) else ""

    @classmethod
    def of(cls, settings: Settings, *, fix_file: Path | None, resume: bool) -> VerifyOptions:
        """Takes the options from the settings; UsageError for a rule that cannot be read."""
        load, ddl = parse_limits(settings.verify.max_load, "--max-load"), settings.ddl_rules()
        return cls(settings.verify, load, fix_file, resume, ddl, settings.row_rules)


def comparison_digest(shape: ComparedColumns) -> str:
    """Gives a digest of the columns that rows are compared by.  What was found equal under another digest is read
    again."""
    return hashlib.sha256(repr(shape).encode()).hexdigest()[:16]


class Checkpoint:
    """What one verify has found equal, in a file for each pipeline, target and way of comparing.

    The file is removed when a verify comes to its end.
    identity: tells which verification it is; each has a file of its own.
    """

    def __init__(self, identity: Mapping[str, str], *, resume: bool) -> None:
        digest = hashlib.sha256(orjson.dumps(dict(identity), option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
        self.path = _folder() / f"verify-{digest}.jsonl"
        self._lock = Lock()
        self._tables: dict[tuple[TableName, str], Tally] = self._load() if resume else {}
        self.path.write_bytes(b"" if not resume else self.path.read_bytes() if self.path.exists() else b"")

    def tally(self, table: TableName, digest: str) -> Tally:
        """Tells how far a table was found equal.  digest: see `comparison_digest`."""
        return self._tables.get((table, digest), Tally())

    def keep(self, table: TableName, digest: str, tally: Tally) -> None:
        """Writes down, after a chunk, that everything up to tally.upto is equal, or the whole table."""
        if tally.differences or not (tally.is_done or tally.upto is not None):
            return
        line = {
            "table": list(table),
            "looks": digest,
            "rows": tally.rows,
            "chunks": tally.chunks,
            "upto": [None if value is None else value.hex() for value in tally.upto or ()],
            "done": tally.is_done,
        }
        with self._lock, self.path.open("ab") as file:
            file.write(orjson.dumps(line) + b"\n")

    def forget(self) -> None:
        """Removes the file: the verification has come to its end."""
        self.path.unlink(missing_ok=True)

    def _load(self) -> dict[tuple[TableName, str], Tally]:
        if not self.path.exists():
            return {}
        tables: dict[tuple[TableName, str], Tally] = {}
        for line in self.path.read_bytes().splitlines():
            try:
                entry = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue  # the last line of a process that was killed
            upto = tuple(None if value is None else bytes.fromhex(value) for value in entry["upto"])
            tally = Tally(entry["rows"], entry["chunks"], [], upto or None, entry["done"])
            tables[TableName(*entry["table"]), entry["looks"]] = tally
        return tables


def _folder() -> Path:
    base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "bridge"
    try:
        base.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"the folder {base} for --resume cannot be made: {error.strerror}", fix="set XDG_STATE_HOME"
        ) from error
    return base
