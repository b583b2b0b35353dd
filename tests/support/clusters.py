"""A Spark standalone cluster on this machine, made of pyspark's own jars."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar, Self

import pyspark

from bridge.local.server import HOST, Server, free_port

SPARK_HOME = Path(pyspark.__file__).parent


class _Daemon(Server):
    """A master or a worker, alive no longer than this process.  An executor ends with its worker."""

    name: ClassVar[str] = "Spark"
    needs: ClassVar[str] = "it needs Java 17"

    def __init__(self, main_class: str, ready: str, *arguments: str) -> None:
        super().__init__()
        self._main_class, self._ready, self._arguments = main_class, ready, arguments

    def _prepare(self, folder: Path) -> None:
        (folder / "work").mkdir()

    def _command(self, folder: Path) -> list[str]:
        environment = {
            "SPARK_HOME": SPARK_HOME,
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": folder / "work",
            "SPARK_WORKER_DIR": folder / "work",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
        }
        program = [str(SPARK_HOME / "bin" / "spark-class"), self._main_class, *self._arguments]
        page = ["--host", HOST, "--webui-port", str(free_port())]
        return ["env", *(f"{name}={value}" for name, value in environment.items()), *program, *page]

    def _answers(self) -> bool:
        return self._ready in (self.folder / "server.log").read_text(errors="replace")


class Cluster:
    """One master, and workers of one core each.

    memory_mib: what each worker has for executors.
    """

    def __init__(self, workers: int, memory_mib: int = 1024) -> None:
        port = free_port()
        self.url = f"spark://{HOST}:{port}"
        deploy, size = "org.apache.spark.deploy", ("--cores", "1", "--memory", f"{memory_mib}m")
        self._master = _Daemon(f"{deploy}.master.Master", "have been elected leader", "--port", str(port))
        self.workers = [
            _Daemon(f"{deploy}.worker.Worker", "Successfully registered with master", *size, self.url)
            for _ in range(workers)
        ]
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting, ThreadPoolExecutor() as pool:
            for daemon in (self._master, *self.workers):
                starting.callback(daemon.stop)
            self._master.start()
            list(pool.map(_Daemon.start, self.workers))
            self._running = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @property
    def pids(self) -> dict[str, int]:
        """Name -> process id."""
        return {f"worker{number}": worker.pid for number, worker in enumerate(self.workers)}
