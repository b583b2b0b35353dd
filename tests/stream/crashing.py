"""A bridge process that dies, or is stopped: forks one child per request, which does so at a given step of its work.

Started as a program of its own, so that nothing forks the test's process with its threads.  Says 0 when it is ready;
reads one JSON request a line from stdin then, answers each with one line: what the child did.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pandas  # type: ignore[import-untyped]  # noqa: F401  # pyarrow imports these two late; here once for all children
import pyarrow as pa
import pyarrow.acero

from bridge.errors import BridgeError
from bridge.target.ddl_policy import ddl_rules
from tests.stream.pipelines import admin, drop_all, run_all
from tests.stream.scenarios import K, T, begin, k_row, t_row
from tests.stream.upstreams import boundary, in_one_partition, schema_change

CRASHED = 9
SURVIVED = 0


def main() -> None:
    """Serves requests until stdin ends."""
    _warm_up(sys.argv[1])
    print(SURVIVED, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _child(**request)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


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
    steps = 0

    def trace(step: str) -> None:
        nonlocal steps
        steps += 1
        if step == crash_at and not Path(said).exists():
            Path(said).write_text(str(os.getpid()), encoding="utf-8")
            os.kill(os.getpid(), signal.SIGSTOP)
        if steps == crash_at:
            Path(said).write_text(step, encoding="utf-8")
            os._exit(CRASHED)

    try:
        with pa.ipc.open_file(events) as file:
            table = file.read_all()
        run_all(url, table, trace=trace, ddl=ddl_rules(**options.pop("ddl", {})), **options)
    except BridgeError as error:
        print(error)
        os._exit(error.exit_code)
    except BaseException:  # noqa: BLE001  # shown, and told by the exit code
        traceback.print_exc()
        os._exit(1)
    os._exit(SURVIVED)


if __name__ == "__main__":
    main()
