"""A secret is nowhere but where it is needed: not in files, on command lines, in what is printed, nor in Spark's."""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import make_url

from bridge.errors import UsageError
from bridge.secret_settings import is_secret
from bridge.settings.load import load_settings
from tests.pipeline.test_bad_messages import capture
from tests.support.captures import row, watermark
from tests.support.command import SECONDS, Process, bridge
from tests.support.pipelines import admin, sql

MARK = "s3cr3t"
URL = f"mysql://u:{MARK}@127.0.0.1:1/"
NOWHERE = "mysql://root@127.0.0.1:1/"

REFUSED = {
    "target.password": MARK,
    "upstream.password": MARK,
    "source.kafka_password": MARK,
    "target.url": URL,
    "upstream.url": URL,
    "source.kafka.sasl.password": MARK,
    "source.kafka.ssl.key.password": MARK,
    "source.kafka.ssl.keystore.password": MARK,
    "source.kafka.ssl.key.pem": MARK,
    "source.kafka.sasl.jaas.config": f'org...PlainLoginModule required password="{MARK}";',
    "source.kafka.sasl.oauthbearer.client.secret": MARK,
    "source.kafka.sasl.oauthbearer.config": f"token={MARK}",
    "spark.spark.authenticate.secret": MARK,
    "spark.spark.ssl.keyPassword": MARK,
    "spark.spark.hadoop.fs.s3a.secret.key": MARK,
    "spark.spark.hadoop.fs.s3a.access.key": MARK,
    "spark.spark.driver.extraJavaOptions": f"-Djavax.net.ssl.trustStorePassword={MARK}",
    "spark.spark.jars.repositories": f"https://u:{MARK}@repo/",
}
"""Settings that hold a secret, by the path that --set has for them."""


def as_toml(path: str, value: str) -> str:
    section, _, name = path.partition(".")
    if name.startswith("kafka."):
        section, name = "source.kafka", name.removeprefix("kafka.")
    return f"[{section}]\n{json.dumps(name)} = {json.dumps(value)}\n"


@pytest.mark.parametrize("path", REFUSED)
def test_none_in_a_file_or_on_the_command_line(tmp_path: Path, path: str) -> None:
    """Exit code 2; the line says where the secret belongs, and does not say it."""
    config = tmp_path / "bridge.toml"
    config.write_text(as_toml(path, REFUSED[path]))
    for flags, words in ((("--config", str(config)), str(config)), (("--set", f"{path}={REFUSED[path]}"), "--set")):
        ended = bridge("status", "--target", NOWHERE, *flags)
        assert (ended.code, len(ended.err.splitlines())) == (2, 1)
        assert f"{words}" in ended.err
        assert "holds a password" in ended.err
        assert any(place in ended.err for place in ("BRIDGE_", "env:NAME", "JDK_JAVA_OPTIONS"))
        assert MARK not in ended.err


@pytest.mark.parametrize(
    "name",
    [
        "ssl.ca.location", "ssl.key.location", "sasl.mechanism", "sasl.username", "security.protocol",
        "sasl.oauthbearer.token.endpoint.url", "spark.driver.memory", "spark.authenticate",
        "spark.authenticate.secretBitLength", "spark.authenticate.secret.file", "spark.executor.cores",
        "spark.hadoop.fs.s3a.aws.credentials.provider", "spark.kubernetes.authenticate.oauthTokenFile",
    ],
)  # fmt: skip
def test_what_is_no_secret(name: str) -> None:
    """Names that only speak of one."""
    assert not is_secret(name)


def test_secrets_are_referred_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """env:NAME and file:PATH stand for what they name, in a file and with --set; what is missing is said."""
    monkeypatch.setenv("KEY_PASSWORD", MARK)
    (tmp_path / "secret").write_text(f"{MARK}\n")
    config = tmp_path / "bridge.toml"
    config.write_text(
        '[source.kafka]\n"ssl.key.password" = "env:KEY_PASSWORD"\n"ssl.ca.location" = "file:x"\n'
        f'[spark]\n"spark.authenticate.secret" = "file:{tmp_path}/secret"\n'
    )
    found = load_settings(config, {}, {}, ["source.kafka.sasl.oauthbearer.config=env:KEY_PASSWORD"])
    assert found.source.kafka == {
        "ssl.key.password": MARK, "ssl.ca.location": "file:x", "sasl.oauthbearer.config": MARK
    }  # fmt: skip
    assert found.spark == {"spark.authenticate.secret": MARK}
    assert MARK not in repr(found)
    for reference in ("env:NOT_SET", "file:/nowhere"):
        with pytest.raises(UsageError, match=r"ssl\.key\.password"):
            load_settings(None, {}, {}, [f"source.kafka.ssl.key.password={reference}"])


def test_a_url_may_hold_one_for_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the flag or the environment; it is not shown."""
    ended = bridge("status", "--target", URL)
    assert (ended.code, MARK in ended.err, "mysql://u:***@127.0.0.1:1/" in ended.err) == (3, False, True)
    monkeypatch.setenv("BRIDGE_TARGET", URL)
    assert bridge("status").code == 3


@pytest.mark.parametrize("url", [f"//u:{MARK}@h", f"mysql://h:{MARK}/", f"mysql://u:a {MARK}@h:x/", f"mysql:{MARK}@h"])
def test_a_url_that_cannot_be_read(url: str) -> None:
    """It is not shown, since nobody knows which part of it is what."""
    ended = bridge("status", "--target", url)
    assert (ended.code, MARK in ended.err) == (2, False)


# --- any place

HOST = "127.0.0.1:1"
holders = st.sampled_from(
    [URL, f"mysql://u:{MARK}@{HOST}/?password={MARK}", f"postgres://u:{MARK}@{HOST}/", f"mysql://{HOST}/?x={MARK}",
     f"mysql://u:a@{MARK}@{HOST}/", f"mysql://u:{MARK}@127.0.0.1:x/"]
)  # fmt: skip
values = st.one_of(
    *(holders.map(form) for form in (lambda x: x, lambda x: [x], lambda x: {"url": x}, lambda x: [{"a": x}]))
)
sections = st.sampled_from(["", "target", "upstream", "source", "source.kafka", "stream", "spark", "ddl", "nosuch"])
names = st.sampled_from(
    ["url", "password", "pasword", "name", "protocol", "filter", "topics", "bootstrap_servers", "writers", "tls",
     "tls_ca", "password_file", "sasl.password", "retry_seconds", "target", "source", "kafka", URL, "timezone", "from"]
)  # fmt: skip
SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


def in_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {in_toml(one)}" for name, one in value.items()) + "}"
    return f"[{', '.join(map(in_toml, value))}]" if isinstance(value, list) else json.dumps(value)


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(sections, names, values)
def test_a_file_with_one_anywhere(tmp_path: Path, section: str, name: str, value: Any) -> None:
    """Right place or wrong, right type or wrong: what is said of the file does not say it."""
    config = tmp_path / "bridge.toml"
    config.write_text((f"[{section}]\n" if section else "") + f"{json.dumps(name)} = {in_toml(value)}\n")
    ended = bridge("check", "--config", str(config))
    assert MARK not in ended.out + ended.err
    assert "Traceback" not in ended.err


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(
    st.sampled_from(["--set", "--target", "--source", "--config", "--input", "--protocol", "--filter", "--timezone",
                     "--bootstrap-servers", "-target", "--nosuch", "--targt"]),
    sections, names, holders, st.booleans(),
)  # fmt: skip
def test_a_command_line_with_one_anywhere(flag: str, section: str, name: str, value: str, joined: bool) -> None:
    """The same for flags, misspelt ones too."""
    if flag == "--set":
        value = f"{section}.{name}={value}" if section else value
    arguments = [f"{flag}={value}"] if joined else [flag, value]
    ended = bridge("check", *arguments)
    assert MARK not in ended.out + ended.err
    assert "Traceback" not in ended.err


# --- a whole run


def command_lines() -> Iterator[str]:
    """Of every process of this machine."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


@pytest.fixture
def guest(target: str) -> Iterator[tuple[str, str]]:
    """The URL of an account with a password, and the password."""
    mark = f"m{uuid.uuid4().hex}"
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (id INT PRIMARY KEY)")
        session.execute(f"CREATE USER guest@'%' IDENTIFIED BY '{mark}'")
        session.execute("GRANT ALL ON *.* TO guest@'%'")
        yield str(make_url(target).set(username="guest", password=None)), mark
        session.execute("DROP USER guest@'%'")


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc")
def test_a_run_leaves_no_trace_of_one(guest: tuple[str, str], target: str, tmp_path: Path) -> None:
    """Not in the log, on any process's command line, in the bridge's tables, nor in Spark's own log of events; and
    neither a file nor a process."""
    url, mark = guest
    public, events, config = uuid.uuid4().hex, tmp_path / "events", tmp_path / "bridge.toml"
    left = tmp_path / "left"
    events.mkdir()
    left.mkdir()
    capture(tmp_path, [row(10, 1), watermark(90)])
    properties = {
        **{"spark.authenticate.secret": "env:SPARK_SECRET", "spark.some.passphrase": "env:SPARK_SECRET"},
        **{"spark.some.public": public, "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"},
        **{"spark.eventLog.dir": f"file://{events}"},
    }
    config.write_text("[spark]\n" + "".join(f'"{name}" = "{value}"\n' for name, value in properties.items()))
    environment = dict.fromkeys(("BRIDGE_TARGET_PASSWORD", "SPARK_SECRET", "BRIDGE_KAFKA_PASSWORD"), mark)
    arguments = ("--config", str(config), "--input", str(tmp_path / "capture.jsonl"), "--target", url)
    seen = set[str]()
    deadline = time.monotonic() + SECONDS
    with Process(tmp_path, "replay", *arguments, environment={**environment, "TMPDIR": str(left)}) as replay:
        while replay.code is None and time.monotonic() < deadline:
            seen.update(command_lines())
            time.sleep(0.05)
        assert replay.code == 0, replay.end_of_log
        assert "where the time went" in replay.log, replay.log
        replay.wait_for_end_of_group()
    assert list(left.iterdir()) == []
    assert any(f"spark.some.public={public}" in line for line in seen)
    assert not [line for line in seen if mark in line]
    assert sql(target, "SELECT * FROM m.t") == [(1,)]
    held = [sql(target, f"SELECT * FROM _bridge.{name}") for name in ("progress", "owner", "schema_changes")]
    written = "".join(path.read_text(errors="replace") for path in events.rglob("*") if path.is_file())
    assert public in written
    assert mark not in replay.log + str(held) + written


def test_what_verify_writes(guest: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of --fix-sql names the servers, without passwords."""
    url, mark = guest
    for name in ("BRIDGE_TARGET_PASSWORD", "BRIDGE_SOURCE_PASSWORD"):
        monkeypatch.setenv(name, mark)
    fixes = tmp_path / "fix.sql"
    ended = bridge("verify", "--against", "source", "--source", url, "--target", url, "--fix-sql", str(fixes))
    assert ended.code == 0, ended.err
    written = fixes.read_text()
    assert "guest:***@" in written
    assert mark not in written + ended.out + ended.err
