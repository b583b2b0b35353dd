"""Real nodes of Galera: the tests' MariaDB with the library of Debian's package `galera-4`, which is kept beside the
embedded servers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final, Self

import pymysql
import pytest

from bridge.cache.folders import cached
from bridge.local import MariaDB
from bridge.local.mariadb import VERSION
from bridge.local.server import HOST, free_port
from tests.support.waiting import wait_for

PACKAGE: Final = "galera-4"
_FETCH_SECONDS: Final = 300
_SECONDS: Final = 60.0
_POSITION: Final = "# GALERA saved state\nversion: 2.1\nuuid: {uuid}\nseqno: {number}\nsafe_to_bootstrap: 0\n"


def provider() -> Path:
    """The library; skips where the package cannot be had."""
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            pytest.skip(f"Galera comes from Debian's package {PACKAGE}: there is no {program}")
    return next(cached(PACKAGE, _fetch).rglob("libgalera_smm.so"))


def _fetch(folder: Path) -> None:
    _run(folder, "apt-get", "download", PACKAGE)
    (package,) = folder.glob("*.deb")
    _run(folder, "dpkg-deb", "-x", package.name, ".")
    package.unlink()


def _run(folder: Path, *command: str) -> None:
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    if ended.returncode:
        pytest.skip(f"{' '.join(command)} fails: {ended.stderr.strip()[-200:]}")


class GaleraNode(MariaDB):
    """A node on 127.0.0.1 of a cluster that it begins, or that it joins.

    others: nodes that run and have what a fresh server has: no data is transferred to this one.
    """

    def __init__(self, *others: GaleraNode, version: str = VERSION) -> None:
        super().__init__(version=version)
        self._others = others
        self._port, self._transfer_port = 0, 0

    @property
    def place(self) -> str:
        """Where the other nodes find it."""
        return f"{HOST}:{self._port}"

    def position(self) -> str:
        """How far its data is, as the file of a node that stopped in order says it."""
        state = self.state()
        return _POSITION.format(uuid=state["wsrep_local_state_uuid"], number=state["wsrep_last_committed"])

    def _answers(self) -> bool:
        """A node that has not joined yet refuses every query but such."""
        try:
            return self.state()["wsrep_ready"] == "ON"
        except pymysql.Error:
            return False

    def state(self) -> dict[str, str]:
        """What it says of itself and its cluster, as it also does when it does no work."""
        return dict(self.run("SHOW STATUS LIKE 'wsrep_%'"))

    def run(self, statement: str) -> list[tuple[str, str]]:
        """Runs a statement, with as few others as can be."""
        with (
            pymysql.connect(host=HOST, port=self.port, user="root", connect_timeout=5) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
            return list(cursor.fetchall())

    def _prepare(self, folder: Path) -> None:
        super()._prepare(folder)
        self._port = free_port(self.port)
        self._transfer_port = free_port(self._port)
        for node in self._others[:1]:
            (folder / "data" / "grastate.dat").write_text(node.position())

    def _command(self, folder: Path) -> list[str]:
        settings = {
            "gmcast.listen_addr": f"tcp://{self.place}",
            "ist.recv_addr": f"{HOST}:{self._transfer_port}",
            "gcache.size": "16M",
            "pc.weight": "1" if self._others else "2",  # so that a node that is cut off has no majority
        }
        return [
            *super()._command(folder),
            "--wsrep-on=ON",
            f"--wsrep-provider={provider()}",
            f"--wsrep-provider-options={';'.join(f'{name}={value}' for name, value in settings.items())}",
            f"--wsrep-cluster-address=gcomm://{','.join(node.place for node in self._others)}",
            f"--wsrep-node-address={HOST}",
            "--loose-plugin-wsrep-provider=OFF",  # with that plugin of 11.4 the library's options cannot be set later
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
        ]


class Cluster:
    """Two nodes.  The second one can be cut off from the first, which then goes on alone."""

    def __init__(self, version: str = VERSION) -> None:
        self.first = GaleraNode(version=version)
        self.second = GaleraNode(self.first, version=version)

    def __enter__(self) -> Self:
        self.first.start()
        try:
            self.second.start()
        except BaseException:
            self.first.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.second.stop(0)
        self.first.stop(0)

    def cut_off(self) -> None:
        """Cuts the second node off; returns when it knows."""
        self._isolate(1)
        self._wait_for("OFF")

    def join_again(self) -> None:
        """Ends that."""
        self._isolate(0)
        self._wait_for("ON")

    def _isolate(self, isolate: int) -> None:
        self.second.run(f"SET GLOBAL wsrep_provider_options = 'gmcast.isolate={isolate}'")

    def _wait_for(self, ready: str) -> None:
        complaint = f"wsrep_ready does not become {ready}"
        wait_for(lambda: self.second.state()["wsrep_ready"] == ready, complaint, _SECONDS)
