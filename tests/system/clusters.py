"""A Spark standalone cluster on this machine, made of pyspark's own jars."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import pyspark

from bridge.local.server import HOST, free_port

SPARK_HOME = Path(pyspark.__file__).parent
READY_SECONDS = 60.0


class Daemon:
    """A master or a worker with its log."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self.log_path = folder / f"{name}.log"
        work = folder / name
        work.mkdir(parents=True)
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), *arguments],
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
                env={
                    **os.environ,
                    "SPARK_HOME": str(SPARK_HOME),
                    "SPARK_LOCAL_IP": HOST,
                    "SPARK_LOCAL_DIRS": str(work),
                    "SPARK_WORKER_DIR": str(work),
                    "SPARK_DAEMON_MEMORY": "256m",
                },
            )
        self.pid = self._process.pid

    def says(self, words: str) -> None:
        """Waits until its log has them."""
        deadline = time.monotonic() + READY_SECONDS
        while words not in self.log_path.read_text(errors="replace"):
            assert self._process.poll() is None, self.log_path.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, f"no {words!r}: {self.log_path.read_text(errors='replace')[-2000:]}"
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL for it and for what it started."""
        for pid in [*below(self.pid), self.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


class Cluster:
    """One master, and workers of one core each.

    memory_mib: what each worker has for executors.
    """

    def __init__(self, folder: Path, workers: int, memory_mib: int = 1024) -> None:
        self._folder, self._count, self._memory_mib = folder, workers, memory_mib
        self.workers: list[Daemon] = []

    def __enter__(self) -> Self:
        port, page = free_port(), free_port()
        self.url = f"spark://{HOST}:{port}"
        self._master = Daemon(
            self._folder, "master", "org.apache.spark.deploy.master.Master", "--host", HOST, "--port", str(port),
            "--webui-port", str(page),
        )  # fmt: skip
        try:
            self._master.says("I have been elected leader")
            for _ in range(self._count):
                self.add_worker()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in (*self.workers, self._master):
            daemon.kill()

    @property
    def pids(self) -> dict[str, int]:
        """Name -> process id."""
        return {f"worker{number}": worker.pid for number, worker in enumerate(self.workers)}

    def add_worker(self) -> Daemon:
        """One more."""
        worker = Daemon(
            self._folder, f"worker{len(self.workers)}", "org.apache.spark.deploy.worker.Worker", self.url, "--host",
            HOST, "--cores", "1", "--memory", f"{self._memory_mib}m", "--webui-port", str(free_port()),
        )  # fmt: skip
        self.workers.append(worker)
        worker.says("Successfully registered with master")
        return worker


def below(pid: int) -> Iterator[int]:
    """The processes that a process has started, and theirs."""
    with suppress(OSError):
        for listed in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, listed.read_text().split()):
                yield from below(child)
                yield child
