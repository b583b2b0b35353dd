"""What Spark starts as its Python: it lets the process that has everything loaded do the work in its place.

The JVM starts a Python process for tasks, and three that plan, one after the other.  To import what each needs took 0.3
to 0.6 s of processor time (`fork_server` loads it once, while the JVM starts).
"""

from __future__ import annotations

import os
import sys

from bridge.spark.fork_server import SERVER, hand_over, serve


def main() -> None:
    """Runs the module that the first argument names, by itself where no process has loaded what it needs."""
    arguments = sys.argv[1:]
    address = os.environ.pop(SERVER, "")
    if not (address and hand_over(address, arguments)):
        serve(arguments)


if __name__ == "__main__":
    main()
