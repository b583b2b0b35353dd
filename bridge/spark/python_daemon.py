"""The parent process of Spark's Python workers.

It imports everything that reading and decoding need before it forks the first worker.  Otherwise each worker would
import it again, which takes as long as decoding a hundred thousand rows: without what reads Kafka, and with the
directories of zips read anew in each, a small replay took 2.8 instead of 2.2 s of its processor time.  The JVM starts
one such process for each of PySpark's modules; those that plan need none of this.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Final

from bridge.protocols.fast.compiled.native_code import are_compiled
from bridge.spark.process_memory import freeze_loaded_modules, keep_freed_memory

_NICENESS: Final = 10
"""When all cores are busy, the applier and a target on the same machine come first: everything else waits for them."""
_DECODES: Final = "pyspark.worker"
"""PySpark's module of workers that run tasks."""


def main() -> None:
    """Serves the JVM."""
    keep_freed_memory()
    os.nice(_NICENESS)
    if sys.argv[1:] == [_DECODES]:
        import_module("bridge.sources.kafka.source")
        import_module("bridge.spark.worker_decoder").keep_zip_directories()
        if are_compiled():  # to compile takes 20 s, which few messages are not worth
            import_module("bridge.protocols.fast.loading")
    daemon = import_module("pyspark.daemon")
    freeze_loaded_modules()
    daemon.manager()


if __name__ == "__main__":
    main()
