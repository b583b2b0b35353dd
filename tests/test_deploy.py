"""The files of `conf/deploy`, as far as they can be checked without an engine, a cluster and an init system."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.cli.pipeline_run import END_SECONDS, REPORT_SECONDS
from bridge.local import kafka, mariadb
from bridge.settings.load import load_settings
from tests.support.kubernetes import service_links

PROJECT = Path(__file__).parent.parent
DEPLOY = PROJECT / "conf" / "deploy"
METRIC = re.compile(r"\bbridge_[a-z_]+")
METRICS_PAGE = PROJECT / "bridge" / "manual" / "watching.md"


def documents(name: str) -> list[Any]:
    """The documents of a YAML file."""
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def expressions() -> Iterator[str]:
    """What the alert rules and the dashboard ask Prometheus for."""
    for group in documents("alerts.yml")[0]["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    dashboard = json.loads((DEPLOY / "grafana" / "bridge.json").read_text(encoding="utf-8"))
    yield from (target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    yield from (variable["query"] for variable in dashboard["templating"]["list"])


def test_rules_and_dashboard_name_only_metrics_that_exist() -> None:
    """The manual lists them all, which a test compares with a live /metrics."""
    known = set(METRIC.findall(METRICS_PAGE.read_text(encoding="utf-8")))
    asked = {name for expression in expressions() for name in METRIC.findall(expression)}
    assert asked - known == set()
    assert len(asked) > 10


def test_prometheus_accepts_its_rules_and_settings(tmp_path: Path) -> None:
    """By its own tool, where it is installed (Debian: prometheus)."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not there")
    for name in ("alerts.yml", "prometheus.yml"):
        text = (DEPLOY / name).read_text(encoding="utf-8").replace("/etc/prometheus/", f"{tmp_path}/")
        (tmp_path / name).write_text(text, encoding="utf-8")
    for check in (["rules", "alerts.yml"], ["config", "prometheus.yml"]):
        checked = subprocess.run(
            ["promtool", "check", *check], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


RULE_TESTS = """
rule_files: [alerts.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'bridge_build_info{job="kubernetes-pods",pipeline="orders",instance="10.0.0.7:9464"}', values: "1x10"}
      - {series: 'bridge_build_info{job="kubernetes-pods",pipeline="stock",instance="10.0.0.8:9464"}', values: "1x200"}
      - {series: 'bridge_source_lag_seconds{job="kubernetes-pods",instance="10.0.0.8:9464"}', values: "0x200"}
      - {series: 'bridge_apply_lag_seconds{job="kubernetes-pods",instance="10.0.0.8:9464"}', values: "0x20 90x180"}
    alert_rule_test:
      - {eval_time: 10m, alertname: BridgeDown, exp_alerts: []}
      - eval_time: 30m
        alertname: BridgeDown
        exp_alerts:
          - exp_labels: {severity: critical, pipeline: orders}
            exp_annotations: {summary: The bridge orders does not answer, description: DESCRIPTION}
      - {eval_time: 30m, alertname: BridgeSourceLag, exp_alerts: []}
      - {eval_time: 15m, alertname: BridgeApplyLag, exp_alerts: []}
  - interval: 1m
    input_series: []
    alert_rule_test:
      - eval_time: 5m
        alertname: BridgeDown
        exp_alerts:
          - exp_labels: {severity: critical}
            exp_annotations: {summary: No bridge answers, description: DESCRIPTION}
"""


def test_a_bridge_that_is_absent_is_an_alert(tmp_path: Path) -> None:
    """Whatever job it was of, and also when none has ever answered; one at rest has no lag."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not there")
    shutil.copy(DEPLOY / "alerts.yml", tmp_path)
    (down,) = (rule for rule in documents("alerts.yml")[0]["groups"][0]["rules"] if rule["alert"] == "BridgeDown")
    said = json.dumps(down["annotations"]["description"])
    (tmp_path / "tests.yml").write_text(RULE_TESTS.replace("DESCRIPTION", said), encoding="utf-8")
    tested = subprocess.run(
        ["promtool", "test", "rules", "tests.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_no_rule_depends_on_the_name_of_a_job() -> None:
    """Discovery by annotations gives another one than prometheus.yml."""
    assert not [expression for expression in expressions() if "job=" in expression]


def test_every_rule_says_what_to_do() -> None:
    """Who is woken is told how bad it is, what it is and where to look."""
    rules = documents("alerts.yml")[0]["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 5
    for rule in rules:
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["annotations"].keys() == {"summary", "description"}


def test_the_dashboard_has_no_two_panels_in_one_place() -> None:
    """Each has an id, a title and an expression, and they do not cover each other."""
    panels = json.loads((DEPLOY / "grafana" / "bridge.json").read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_kubernetes_runs_one_bridge_and_gives_it_time_to_end() -> None:
    """One replica, never two at once; probes that start no process; no root; the password from a secret."""
    config, deployment, service = documents("kubernetes.yaml")
    spec = deployment["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    pod = spec["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > END_SECONDS
    assert pod["securityContext"]["runAsNonRoot"] is True
    (container,) = pod["containers"]
    probes = {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")}
    assert probes == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    assert all(container[name]["timeoutSeconds"] > 1 for name in probes)
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels == service["spec"]["selector"]
    assert service["spec"]["ports"][0]["port"] == container["ports"][0]["containerPort"]
    secret = next(volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume)
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert f'password_file = "{mounted["secrets"]}/target-password"' in config["data"]["bridge.toml"]
    assert secret == config["metadata"]["name"] == "bridge-orders"


def test_kubernetes_bounds_what_the_bridge_may_write() -> None:
    """Nothing but the scratch volume, of a bounded size that the node's limit has room for."""
    pod = documents("kubernetes.yaml")[1]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    written = [mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
    (scratch,) = [volume for volume in pod["volumes"] if volume["name"] in written]
    bounds = [scratch["emptyDir"]["sizeLimit"], container["resources"]["limits"]["ephemeral-storage"]]
    scratch_size, limit = (int(bound.removesuffix("Gi")) for bound in bounds)
    assert scratch_size < limit


def test_a_change_of_the_settings_starts_the_bridge_anew() -> None:
    """The pod carries their checksum, and not an image that may become another one under its name."""
    config, deployment, _ = documents("kubernetes.yaml")
    template = deployment["spec"]["template"]
    checksum = hashlib.sha256(config["data"]["bridge.toml"].encode()).hexdigest()
    assert template["metadata"]["annotations"]["checksum/settings"] == checksum
    assert template["spec"]["containers"][0]["image"] == f"bridge:{version('bridge')}"


def test_the_pod_of_kubernetes_has_settings(tmp_path: Path) -> None:
    """The bridge reads its file in the environment that the kubelet makes beside its Service."""
    config, deployment, service = documents("kubernetes.yaml")
    assert deployment["spec"]["template"]["spec"]["enableServiceLinks"] is False
    (tmp_path / "bridge.toml").write_text(config["data"]["bridge.toml"], encoding="utf-8")
    (tmp_path / "target-password").write_text("secret\n", encoding="utf-8")
    environment = service_links(service["metadata"]["name"]) | service_links("kubernetes")
    shown = subprocess.run(
        [sys.executable, "-m", "bridge", "check", "--show", "--config", str(tmp_path / "bridge.toml")],
        env={"PATH": os.environ["PATH"], "HOSTNAME": "bridge-orders-0", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert re.search(r'listen +"0\.0\.0\.0:9464', shown.stdout), shown.stdout


def test_compose_shows_a_working_pipeline() -> None:
    """A producer of the same image and topic as the bridge, and what watches it; every mounted file is there."""
    services = yaml.safe_load((PROJECT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    assert services.keys() == {"kafka", "mariadb", "bridge", "producer", "prometheus", "grafana"}
    assert services["producer"]["image"] == services["bridge"]["image"]
    assert services["bridge"]["environment"]["BRIDGE_TOPIC"] == services["producer"]["command"][-1]
    assert (PROJECT / services["bridge"]["build"]["dockerfile"]).is_file()
    mounts = [mount.split(":") for service in services.values() for mount in service.get("volumes", [])]
    files = {PROJECT / source: target for source, target, *_ in mounts if source.startswith("./")}
    assert len(files) == 5
    assert all(path.is_file() for path in files)
    assert documents("prometheus.yml")[0]["rule_files"][0] in files.values()
    assert documents("prometheus.yml")[0]["scrape_configs"][0]["static_configs"][0]["targets"] == ["bridge:9464"]
    sources = documents("grafana/datasource.yml")[0]["datasources"]
    assert {source["uid"] for source in sources} == {"prometheus"}
    folder = documents("grafana/dashboards.yml")[0]["providers"][0]["options"]["path"]
    assert f"{folder}/bridge.json" in files.values()


def test_the_trial_goes_on_by_itself_unless_that_would_not_help() -> None:
    """Every service starts again; the bridge not after 2 and 5, as with systemd.  What Kafka keeps is bounded."""
    services = yaml.safe_load((PROJECT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    assert all(service["restart"] in {"unless-stopped", "on-failure"} for service in services.values())
    unit = (DEPLOY / "bridge@.service").read_text(encoding="utf-8")
    prevented = re.search(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)
    assert prevented is not None
    codes = [part for code in prevented[1].split() for part in ("-e", code)]
    assert services["bridge"]["restart"] == "on-failure"
    assert services["bridge"]["entrypoint"] == ["tini", *codes, "--", "bridge"]
    bounds = [services["kafka"]["environment"][f"KAFKA_LOG_RETENTION_{unit}"] for unit in ("MS", "BYTES")]
    assert all(int(bound) > 0 for bound in bounds)


def test_the_trial_has_the_servers_that_the_tests_have() -> None:
    """Kafka in one version everywhere; MariaDB of one series."""
    services = yaml.safe_load((PROJECT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    assert services["kafka"]["image"] == f"apache/kafka:{kafka.VERSION}"
    assert services["mariadb"]["image"] == f"mariadb:{mariadb.VERSION.rpartition('.')[0]}"


def test_nothing_that_is_published_reaches_beyond_this_machine() -> None:
    """The trial has no passwords but one."""
    services = yaml.safe_load((PROJECT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_image_runs_as_a_user_and_fetches_nothing_at_its_start() -> None:
    """What Spark needs is fetched by that user while the image is built."""
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    user, prepared = lines.index("USER 10001:10001"), lines.index("RUN bridge setup")
    assert user < prepared
    assert not [line for line in lines[user + 1 :] if line.startswith("USER")]


def test_a_change_of_the_code_leaves_the_layer_of_its_dependencies(tmp_path: Path) -> None:
    """They come first, in the versions of pyproject.toml; what is copied is let through by .dockerignore."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert text.index("pip install --no-cache-dir -r requirements.txt -c constraints.txt") < text.index("COPY bridge ")
    project = PROJECT / "pyproject.toml"
    subprocess.run([sys.executable, str(DEPLOY / "requirements.py"), str(project)], cwd=tmp_path, check=True)
    wanted = (tmp_path / "requirements.txt").read_text(encoding="utf-8").splitlines()
    constrained = (tmp_path / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert all("==" in line for line in (*wanted, *constrained))
    assert {"pyspark", "py4j"} <= {line.partition("==")[0] for line in (*wanted, *constrained)}
    let_through = (PROJECT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [part for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE) for part in line.split()]
    assert {f"!{part.removeprefix('./').partition('/')[0]}" for part in copied} <= set(let_through)
    assert "*" in let_through


def test_the_image_has_defaults_that_a_file_overrides_and_its_health_check_follows(tmp_path: Path) -> None:
    """Where it listens is the last word of whoever writes the settings; the check starts no interpreter."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    (environment,) = (dict(pair.split("=") for pair in line[4:].split()) for line in set_in(text) if "WATCH" in line)
    assert load_settings(None, environment, {}, []).watch.listen == "0.0.0.0:9464"
    (tmp_path / "bridge.toml").write_text('watch.listen = "8000"', encoding="utf-8")
    settings = load_settings(tmp_path / "bridge.toml", environment, {}, [])
    assert (settings.watch.listen, settings.watch.address_file) == ("8000", "/tmp/bridge-address")
    copied = re.search(r"^COPY (\S+) (\S+)$\nHEALTHCHECK .*\n +CMD (.*)", text, re.MULTILINE)
    assert copied is not None
    source, folder, command = copied.groups()
    assert json.loads(command) == ["bash", folder + (PROJECT / source).resolve(strict=True).name]


def set_in(dockerfile: str) -> list[str]:
    """The lines of a Dockerfile that set variables."""
    return [line for line in dockerfile.splitlines() if line.startswith("ENV ")]


def test_the_first_process_of_the_container_takes_every_signal() -> None:
    """It is an init, since Linux keeps signals from a first process that has not taken them yet."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"apt-get install .*\btini\b", text)
    assert 'ENTRYPOINT ["tini", "--", "bridge"]' in text
    services = yaml.safe_load((PROJECT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    assert services["producer"]["entrypoint"][0] == "tini"
    assert not [name for name in ("bridge", "producer") if services[name].get("init")]


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """And stops the bridge so that it can end by itself."""
    text = (DEPLOY / "bridge@.service").read_text(encoding="utf-8")
    assert "\nKillMode=mixed\n" in text
    stop = re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    assert stop is not None
    assert int(stop[1]) > END_SECONDS
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not there")
    unit = tmp_path / "bridge@.service"
    unit.write_text(text.replace("/opt/bridge/bin/bridge ", f"{sys.executable} "), encoding="utf-8")
    checked = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    said = [line for line in checked.stderr.splitlines() if "bridge@" in line]
    assert (checked.returncode, said) == (0, [])
    security = ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=30", str(unit)]
    rated = subprocess.run(security, capture_output=True, text=True, check=False)
    if "unrecognized option" in rated.stderr:  # before systemd 250
        pytest.skip(rated.stderr)
    assert rated.returncode == 0, rated.stdout[-300:]


def test_systemd_starts_the_bridge_for_as_long_as_that_may_help() -> None:
    """No limit of starts leaves it down after an outage; it says that it is alive far more often than it has to."""
    text = (DEPLOY / "bridge@.service").read_text(encoding="utf-8")
    assert "\nStartLimitIntervalSec=0\n" in text
    assert "\nType=notify\n" in text
    watchdog = re.search(r"^WatchdogSec=(\d+)$", text, re.MULTILINE)
    assert watchdog is not None
    assert int(watchdog[1]) > 10 * REPORT_SECONDS
    credential = re.search(r"^LoadCredential=([\w-]+):", text, re.MULTILINE)
    assert credential is not None
    assert f"\nEnvironment=BRIDGE_TARGET_PASSWORD_FILE=%d/{credential[1]}\n" in text
