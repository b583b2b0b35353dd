"""Spark's parent of Python workers, with all that decoding needs loaded before the first worker is forked: each would
else load it anew, which takes as long as decoding a hundred thousand rows."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder

from pyspark import daemon

import bridge.stream.kafka_source  # noqa: F401


class WithoutPandas(MetaPathFinder):
    """PyArrow looks for pandas when it makes its first array; loading it takes longer than everything else together."""

    def find_spec(self, name: str, *_: object) -> None:
        """Says that there is no pandas."""
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


if __name__ == "__main__":
    sys.meta_path.insert(0, WithoutPandas())
    daemon.manager()  # type: ignore[no-untyped-call]
