"""What an interrupted verify had found equal, so that --resume does not read it again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

import orjson

from bridge.errors import UsageError
from bridge.model import TableName
from bridge.verify.compare.key_ranges import Tally
from bridge.verify.compare.row_diff import Shape


def looks_of(shape: Shape, order: tuple[int, ...]) -> str:
    """A digest of what rows are compared by: where it has changed, what was found equal counts no more.

    order: numbers of the columns that ranges go by.
    """
    return hashlib.sha256(repr((shape, order)).encode()).hexdigest()[:16]


class State:
    """A file of its own for each pipeline, target and way of comparing; removed when a verify comes to its end.

    identity: what a verification is of; another one has another file.
    """

    def __init__(self, identity: Mapping[str, str], *, resume: bool) -> None:
        digest = hashlib.sha256(orjson.dumps(dict(identity), option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
        self._path = _folder() / f"verify-{digest}.jsonl"
        self._lock = Lock()
        self._tables: dict[tuple[TableName, str], Tally] = self._load() if resume else {}
        self.path.write_bytes(b"" if not resume else self.path.read_bytes() if self.path.exists() else b"")

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return self._path

    def tally(self, table: TableName, looks: str) -> Tally:
        """How far a table was found equal.  looks: see `looks_of`."""
        return self._tables.get((table, looks), Tally())

    def keep(self, table: TableName, looks: str, tally: Tally) -> None:
        """After a chunk: everything up to tally.upto was equal, or all of the table."""
        if tally.differences or not (tally.is_done or tally.upto is not None):
            return
        line = {
            "table": list(table),
            "looks": looks,
            "rows": tally.rows,
            "chunks": tally.chunks,
            "upto": [None if value is None else value.hex() for value in tally.upto or ()],
            "done": tally.is_done,
        }
        with self._lock, self._path.open("ab") as file:
            file.write(orjson.dumps(line) + b"\n")

    def forget(self) -> None:
        """The verification came to its end."""
        self._path.unlink(missing_ok=True)

    def _load(self) -> dict[tuple[TableName, str], Tally]:
        if not self._path.exists():
            return {}
        tables: dict[tuple[TableName, str], Tally] = {}
        for line in self._path.read_bytes().splitlines():
            try:
                found = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue  # the last line of a process that was killed
            upto = tuple(None if value is None else bytes.fromhex(value) for value in found["upto"])
            tally = Tally(found["rows"], found["chunks"], [], upto or None, found["done"])
            tables[TableName(*found["table"]), found["looks"]] = tally
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
