"""Builds the TiDB of the tests, so that no test waits for it: `uv run python -m tests.support.tidb`."""

from __future__ import annotations

import sys

from bridge.local import LocalError
from tests.support.tidb import build, is_built


def main() -> int:
    """Says what it does; a machine that cannot build it is no failure, since the tests say so too."""
    if not is_built():
        print("building the TiDB of the tests, once for this user: about ten minutes on two cores", flush=True)
    try:
        print(f"the TiDB of the tests is {build() / 'tidb'}")
    except LocalError as error:
        print(f"{error}; tests with TiDB are skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
