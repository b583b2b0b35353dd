"""The image of conf/deploy/Dockerfile, built and run where an engine answers and its base can be had.

The engine's network and an hour of patience are all that it takes: `pytest -m soak tests/system/test_image.py -n 0`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

from tests.support.golden import capture
from tests.support.kubernetes import service_links
from tests.support.shown_output import ROOT
from tests.support.waiting import wait_for

DEBIAN: Final = "debian:bookworm-slim"
_MANUALS: Final = 'for i in 1 2 3 4 5 6 7 8; do mkdir -p "$1/usr/share/man/man$i"; done'
"""Without these folders the package of Java cannot be installed; the official slim images have them."""
_CERTIFICATES: Final = (
    'mkdir -p "$1/usr/local/share/ca-certificates"; cp /usr/local/share/ca-certificates/*.crt'
    ' "$1/usr/local/share/ca-certificates/" 2>/dev/null || true; chroot "$1" update-ca-certificates'
)
_PIP: Final = 'printf "[global]\\ncert = /etc/ssl/certs/ca-certificates.crt\\n" > "$1/etc/pip.conf"'
_CLEAN: Final = (
    'printf \'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb || true"; };\\n'
    'Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";\\n\''
    ' > "$1/etc/apt/apt.conf.d/docker-clean"; rm -f "$1"/var/cache/apt/*.bin'
)
"""As in the official images, so that apt leaves no archives and indexes in a layer (80 MB in each)."""
_PYTHON: Final = f"""FROM {DEBIAN}
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt PIP_BREAK_SYSTEM_PACKAGES=1
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-pip python3-venv \\
 && rm -rf /var/lib/apt/lists/* && ln -s python3 /usr/bin/python
"""


def have_base(name: str) -> str:
    """Sees to it that the engine has the base image `name`; returns why it cannot be had, "" when it is there."""
    if _ran(["docker", "image", "inspect", name]).returncode == 0:
        return ""
    pulled = _ran(["docker", "pull", name])
    if pulled.returncode == 0:
        return ""
    if shutil.which("mmdebstrap") is None:
        return f"{pulled.stderr.strip()[-200:]}; and there is no mmdebstrap to make it"
    hooks = [f"--customize-hook={hook}" for hook in (_MANUALS, _CERTIFICATES, _PIP, _CLEAN)]
    made = ["mmdebstrap", "--variant=minbase", "--include=ca-certificates,procps", *hooks, "bookworm", "-"]
    with subprocess.Popen(made, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as packing:
        imported = subprocess.run(
            ["docker", "import", "-", DEBIAN], stdin=packing.stdout, capture_output=True, check=False
        )
    built = _ran(["docker", "build", "--tag", name, "-"], _PYTHON)
    if packing.returncode or imported.returncode or built.returncode:
        return f"it cannot be made of Debian's packages: {built.stderr.strip()[-300:]}"
    return ""


def _ran(command: list[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

IMAGE = f"bridge:{version('bridge')}"
LIMITS = ("--read-only", "--tmpfs", "/tmp", "--memory", "3g", "--cap-drop", "ALL", "--user", "10001:10001")
WAITING = ("run", "--bootstrap-servers", "127.0.0.1:1", "--topic", "t", "--target", "mysql://u@127.0.0.1:1/")
MOST_BYTES = 1_400_000_000


def docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Calls the engine."""
    return subprocess.run(["docker", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a container to its end."""
    return docker("run", "--rm", *arguments)


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """The image; what the engine has of it already is not made again."""
    if shutil.which("docker") is None or docker("version").returncode:
        pytest.skip("no container engine answers")
    if why := have_base(base()):
        pytest.skip(f"the base of the image cannot be had: {why}")
    built = docker("build", "-f", "conf/deploy/Dockerfile", "-t", IMAGE, ".")
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]


@pytest.fixture
def waiting() -> Iterator[str]:
    """A container whose bridge waits for ends that are away."""
    started = docker("run", "--detach", *LIMITS, IMAGE, *WAITING)
    assert started.returncode == 0, started.stderr
    yield started.stdout.strip()
    docker("rm", "--force", started.stdout.strip())


def state(container: str) -> dict[str, object]:
    """What the engine says of a container."""
    found: dict[str, object] = json.loads(docker("inspect", "--format", "{{json .State}}", container).stdout)
    return found


def test_its_size_is_bounded() -> None:
    """Each machine pulls it; a base that is made of Debian's packages is larger than the official one."""
    assert int(docker("image", "inspect", "--format", "{{.Size}}", IMAGE).stdout) < MOST_BYTES


def base() -> str:
    """The image that it is made from."""
    text = (ROOT / "conf" / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    return next(line.split()[1] for line in text.splitlines() if line.startswith("FROM "))


def test_it_reads_settings_in_a_pod_that_may_write_nothing() -> None:
    """Beside a Service called bridge-orders, with a read-only root and no capability; its port is a default."""
    links = [part for name, value in service_links("bridge-orders").items() for part in ("--env", f"{name}={value}")]
    shown = ran(*LIMITS, *links, IMAGE, "check", "--show")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "BRIDGE_DEFAULT_WATCH_LISTEN" in shown.stdout


def test_wrong_usage_has_its_exit_code_unless_the_trial_remaps_it() -> None:
    """The trial's entry point makes 2 a clean end, which no restart policy starts again."""
    assert ran(IMAGE, "run").returncode == 2
    trial = ("--entrypoint", "tini", IMAGE, "-e", "2", "-e", "5", "--", "bridge")
    assert ran(*trial, "run").returncode == 0


def test_it_is_healthy_while_it_waits(waiting: str) -> None:
    """The check finds the address that the settings gave, in a container that may write to /tmp only."""
    wait_for(lambda: '"healthy"' in json.dumps(state(waiting)), "the container is not healthy", 120)


def test_a_stop_in_the_first_second_is_a_clean_one(waiting: str) -> None:
    """The first process of a container gets no signal that it has not taken."""
    began = time.monotonic()
    docker("stop", "--time", "40", waiting)
    assert time.monotonic() - began < 20
    assert state(waiting)["ExitCode"] in {0, 143}, docker("logs", waiting).stderr


def test_the_demo_runs_in_it() -> None:
    """Decoding, folding, Spark and verify, with what the image holds of Spark, as its user."""
    ended = ran("--memory", "6g", IMAGE, "demo", "--json")
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert json.loads(ended.stdout)["result"] == "equal"


DATA_SOURCE = """
import bridge
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
bridge.register(spark)
events = spark.read.format("bridge").option("input", "/capture.jsonl").option("timezone", "UTC").load()
print("kinds", sorted(row.kind for row in events.select("kind").distinct().collect()))
"""


def test_executors_write_and_other_jobs_read_in_it(target: str, golden: Path) -> None:
    """A replay in parallel consistency is equal by verify, and the data source gives the same messages' events."""
    # What the image holds of Spark is enough for all of it.
    host = ("--network", "host", "--volume", f"{capture(golden, 'canal-ext', 'bank')}:/capture.jsonl:ro", *LIMITS)
    ends = ("--input", "/capture.jsonl", "--target", target, "--timezone", "UTC")
    parallel = ("--consistency", "parallel", "--set", "stream.driver_rows=0", "--set", "stream.rows_per_transaction=50")
    replayed = ran(*host, IMAGE, "replay", *ends, *parallel)
    assert replayed.returncode == 0, replayed.stderr[-3000:]
    assert "executors_write" in replayed.stderr
    verified = ran(*host, IMAGE, "verify", *ends)
    assert verified.returncode == 0, verified.stdout + verified.stderr[-3000:]
    read = ran(*host, "--entrypoint", "python", IMAGE, "-c", DATA_SOURCE)
    assert "kinds ['boundary', 'insert'" in read.stdout, read.stdout + read.stderr[-3000:]
