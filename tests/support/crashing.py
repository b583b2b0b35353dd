"""A bridge process that dies, or is stopped: forks one child per request, which does so at a given step of its work.

Started as a program of its own, so that nothing forks the test's process with its threads.  Says 0 when it is ready;
reads one JSON request a line from stdin then, answers each with one line: what the child did.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.acero  # pyarrow imports it late; here once for all children

from bridge.ddl.policy import ddl_rules
from bridge.errors import BridgeError
from bridge.filters.table_filter import TableFilter
from tests.support.pipelines import admin, drop_all, run_all
from tests.support.scenarios import K, T, begin, k_row, t_row
from tests.support.upstreams import boundary, in_one_partition, schema_change

CRASHED = 9
SURVIVED = 0
SECONDS = 90.0
"""For anything that a child may take long for on a busy machine."""


def main() -> None:
    """Serves requests until stdin ends."""
    _warm_up(sys.argv[1])
    print(SURVIVED, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _child(**request)
        print(_exit_code(pid), flush=True)


def _exit_code(pid: int) -> int:
    """Waits for a child, and kills one that does not end: nobody else would, if it is stopped."""
    ended = os.pidfd_open(pid)
    try:
        if not select.select([ended], [], [], SECONDS)[0]:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(ended)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


class Trace:
    """Dies at the step of a number, or stops at the first step of a name, of which it then goes on; writes to `said`
    what it did.  Several threads may come to a step at once.

    die, stop: what is done to the process.
    """

    def __init__(
        self,
        crash_at: int | str,
        said: Path,
        die: Callable[[], object] = lambda: os._exit(CRASHED),
        stop: Callable[[], object] = lambda: os.kill(os.getpid(), signal.SIGSTOP),
    ) -> None:
        self._crash_at, self._said, self._die, self._stop = crash_at, said, die, stop
        self._steps = 0
        self._alone = threading.Lock()

    def __call__(self, step: str) -> None:
        with self._alone:
            self._steps += 1
            if step == self._crash_at and not self._said.exists():
                self._said.write_text(str(os.getpid()), encoding="utf-8")
                self._stop()
            if self._steps == self._crash_at:
                self._said.write_text(step, encoding="utf-8")
                self._die()


def _warm_up(url: str) -> None:
    """Runs a pipeline once: what is imported and built at its first use is there then for all children."""
    changes = [t_row(10, 1, 1), k_row(10, 1), schema_change(11, "ALTER TABLE t ADD COLUMN c INT"), t_row(12, 1, 2, c=3)]
    with admin(url) as session, redirect_stdout(sys.stderr):
        begin(session, [T, K])
        run_all(url, in_one_partition([*changes, boundary(13)]))
        drop_all(session)
    gc.freeze()


def _child(url: str, events: str, crash_at: int | str, said: str, options: dict[str, Any]) -> None:
    """`crash_at`: the number of the step to die at, or the name of the step to be stopped at, once."""
    os.dup2(2, 1)  # stdout is for answers
    try:
        with pa.ipc.open_file(events) as file:
            table = file.read_all()
        options["ddl"] = ddl_rules(**options.get("ddl", {}))
        options["tables"] = TableFilter(tuple(options.get("tables", ())))
        run_all(url, table, trace=Trace(crash_at, Path(said)), **options)
    except BridgeError as error:
        print(error)
        os._exit(error.exit_code)
    except BaseException:  # noqa: BLE001  # shown, and told by the exit code
        traceback.print_exc()
        os._exit(1)
    os._exit(SURVIVED)


if __name__ == "__main__":
    main()
