"""Reads the moment of a dump from the `metadata` file that dumpling and mydumper write beside it.

Both write where the log of the server was when they began to read.  TiDB calls its log `tidb-binlog`, and the position
is the TSO of the snapshot that is dumped (dumpling/export/metadata.go; mydumper sets tidb_snapshot to it).  Newer
versions of mydumper write an ini file, with the keys behind `#`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from bridge.errors import UsageError

FILE: Final = "metadata"
_TIDB_LOG: Final = "tidb-binlog"
_MASTER: Final = re.compile(r"SHOW MASTER STATUS:\s*$|\[(?:master|source)\]\s*$")
_OTHER: Final = re.compile(r"SHOW [\w ]+STATUS:|\[.*\]\s*$|Finished dump")
_STARTED: Final = re.compile(r"(?:# )?Started dump at: (.+)")
_LOG: Final = re.compile(r"[#\s]*(?:log|file|(?:source|master)_log_file)\s*[:=]\s*[\"']?([^\"'\s]+)", re.IGNORECASE)
_POSITION: Final = re.compile(
    r"[#\s]*(?:pos|position|(?:source|master)_log_pos)\s*[:=]\s*[\"']?([^\"'\s][^\"']*?)[\"']?\s*$", re.IGNORECASE
)
_LEAST_TSO: Final = 1 << 48
"""A TSO of January 1970; a position in a file of the binlog has 32 bits."""
_MOST_TSO: Final = (1 << 63) - 1


class DumpMoment(NamedTuple):
    """Where the server's log was.

    started: when the dump began, by the clock and in the zone of its machine.
    position: as it is written; "" when the file does not say it.
    """

    started: str
    log: str
    position: str


def begin_after(folder: Path) -> int:
    """Gives the TSO at which a pipeline begins behind a dump: everything below it is in the dump, nothing above.

    Raises UsageError where the folder holds no dump, or one that does not name a TSO.
    """
    moment = read_moment(_text(folder / FILE).splitlines())
    is_number = re.fullmatch(f"[0-9]{{1,{len(str(_MOST_TSO))}}}", moment.position)
    if moment.log == _TIDB_LOG and is_number and _LEAST_TSO <= int(moment.position) < _MOST_TSO:
        return int(moment.position) + 1  # the snapshot holds what was committed at its very TSO
    if moment.log == _TIDB_LOG or not moment.position:
        raise UsageError(
            f"the dump {folder} does not name its moment: its {FILE} has no TSO",
            fix="dump again as an account that may read the server's log (PROCESS; on MySQL REPLICATION CLIENT), or"
            " give --from; after a dump with --snapshot TIME, that time with its zone (2026-11-21T05:00:00+08:00)",
        )
    raise UsageError(
        f"the dump {folder} was not made from TiDB: it names {moment.log} at {moment.position}, and no message names a"
        " position of that log",
        fix=f"give --from TIME, some time before the dump began ({moment.started}, in its machine's zone): see"
        " bridge help starting",
    )


def read_moment(lines: Iterable[str]) -> DumpMoment:
    """Reads the file; what it does not say is empty."""
    lines = list(lines)
    started = next((match[1].strip() for line in lines if (match := _STARTED.match(line))), "")
    own_lines = list(_of_master(lines))
    log = next((match[1] for line in own_lines if (match := _LOG.match(line))), "")
    position = next((match[1] for line in own_lines if (match := _POSITION.match(line))), "")
    return DumpMoment(started, log, position)


def _of_master(lines: Iterable[str]) -> Iterator[str]:
    """Gives the lines about the dumped server itself, not those about the one that it follows."""
    is_own = False
    for line in lines:
        if _MASTER.match(line):
            is_own = True
        elif _OTHER.match(line):
            is_own = False
        elif is_own:
            yield line


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}",
            fix="give --from-dump the folder that dumpling or mydumper wrote to; the dump must have ended",
        ) from error
