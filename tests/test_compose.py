"""docker-compose.yml, as far as it can be checked without an engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parent.parent
ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}


@pytest.fixture(scope="module")
def compose() -> list[str]:
    """The command of Compose v2, the plugin or the program of its own."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is None:
            continue
        version = subprocess.run([*command, "version", "--short"], capture_output=True, text=True, check=False)
        if version.returncode == 0 and not version.stdout.startswith("1."):
            return command
    pytest.skip("Compose v2 is not installed: neither `docker compose` nor `docker-compose` is there")


def config(compose: list[str], *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [*compose, "-f", str(PROJECT / "docker-compose.yml"), "config", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT | environment, check=False)


def services(compose: list[str], **environment: str) -> dict[str, Any]:
    services: dict[str, Any] = json.loads(config(compose, "--format", "json", **environment).stdout)["services"]
    return services


def test_is_valid_without_any_environment(compose: list[str]) -> None:
    """`docker compose up` needs no variable to be set, and Compose has no complaint, not even a warning."""
    checked = config(compose, "-q")
    assert (checked.returncode, checked.stderr) == (0, "")


def test_bridge_waits_for_healthy_servers(compose: list[str]) -> None:
    """The bridge starts when both servers answer, and both say when they do."""
    found = services(compose)
    assert {"kafka", "mariadb", "bridge"} < set(found)
    waits = {name: wait["condition"] for name, wait in found["bridge"]["depends_on"].items()}
    assert waits == {"kafka": "service_healthy", "mariadb": "service_healthy"}
    assert all("healthcheck" in found[name] for name in waits)


def test_settings_come_from_the_environment(compose: list[str]) -> None:
    """BRIDGE_* of the shell reach the bridge; the password goes by file reference only, never by value."""
    found = services(compose, BRIDGE_TOPIC="orders", BRIDGE_TARGET_PASSWORD="hunter2")
    assert found["bridge"]["environment"]["BRIDGE_TOPIC"] == "orders"
    assert found["bridge"]["environment"]["BRIDGE_TARGET_PASSWORD_FILE"] == "/run/secrets/target_password"
    assert "hunter2" not in json.dumps(found)
