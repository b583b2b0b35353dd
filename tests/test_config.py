"""Settings: where they come from, which wins, and what an error says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge.config import Settings
from bridge.errors import SettingsError, UsageError
from bridge.mysql.connection.tls import Tls
from bridge.secret_settings import read_secret
from bridge.settings.load import load_settings, variables
from tests.support.kubernetes import service_links


def load(
    tmp_path: Path,
    toml: str = "",
    environment: dict[str, str] | None = None,
    flags: dict[str, Any] | None = None,
    assignments: tuple[str, ...] = (),
) -> Settings:
    file = tmp_path / "bridge.toml"
    file.write_text(toml, encoding="utf-8")
    return load_settings(file, environment or {}, flags or {}, assignments)


@pytest.mark.parametrize(
    ("sources", "name"),
    [
        ({}, "bridge"),
        ({"toml": 'name = "file"'}, "file"),
        ({"toml": 'name = "file"', "environment": {"BRIDGE_NAME": "env"}}, "env"),
        ({"environment": {"BRIDGE_DEFAULT_NAME": "image"}}, "image"),
        ({"toml": 'name = "file"', "environment": {"BRIDGE_DEFAULT_NAME": "image"}}, "file"),
        ({"environment": {"BRIDGE_DEFAULT_NAME": "image", "BRIDGE_NAME": "env"}}, "env"),
        ({"toml": 'name = "file"', "environment": {"BRIDGE_NAME": ""}}, "file"),
        ({"environment": {"BRIDGE_NAME": "env"}, "assignments": ("name=set",)}, "set"),
        ({"environment": {"BRIDGE_NAME": "env"}, "flags": {"name": "flag"}}, "flag"),
        ({"toml": 'name = "file"', "environment": {"BRIDGE_NAME": "env"}, "flags": {"name": None}}, "env"),
        ({"toml": 'name = "file"', "assignments": ("name=set",), "flags": {"name": "flag"}}, "flag"),
    ],
)
def test_the_later_source_wins(tmp_path: Path, sources: dict[str, Any], name: str) -> None:
    """An image's default, then file, environment, flags; what was not given does not count."""
    assert load(tmp_path, **sources).name == name


@pytest.mark.parametrize(
    ("variable", "value", "path", "expected"),
    [
        ("BRIDGE_TARGET", "mysql://h/", "target.url", "mysql://h/"),
        ("BRIDGE_TARGET_URL", "mysql://h/", "target.url", "mysql://h/"),
        ("BRIDGE_TARGET_PASSWORD", "s", "target.password", "s"),
        ("BRIDGE_TARGET_PASSWORD_FILE", "/f", "target.password_file", "/f"),
        ("BRIDGE_TARGET_SCHEMA", "x", "target.schema_name", "x"),
        ("BRIDGE_BOOTSTRAP_SERVERS", "a:1,b:2", "source.bootstrap_servers", "a:1,b:2"),
        ("BRIDGE_TOPIC", "a,b", "source.topics", ("a", "b")),
        ("BRIDGE_SOURCE_TOPICS", "a,b", "source.topics", ("a", "b")),
        ("BRIDGE_INPUT", "/captures", "source.input", "/captures"),
        ("BRIDGE_FILTER", "a.*,!a.b", "filter", ("a.*", "!a.b")),
        ("BRIDGE_FROM", "earliest", "begin", "earliest"),
        ("BRIDGE_STREAM_TRIGGER_MS", "7", "stream.trigger_ms", 7),
        ("BRIDGE_TIMEZONE", "+08:00", "timezone", "+08:00"),
    ],
)
def test_environment_names(tmp_path: Path, variable: str, value: str, path: str, expected: object) -> None:
    """Every setting has a variable, BRIDGE_SECTION_KEY, and those with a flag one named like the flag."""
    found: Any = load(tmp_path, environment={variable: value})
    for part in path.split("."):
        found = getattr(found, part)
    assert found == expected


def test_sections_merge(tmp_path: Path) -> None:
    """A later source replaces single settings, not the section around them."""
    toml = '[stream]\ntrigger_ms = 1\nstatus_seconds = 2\n[source.kafka]\n"security.protocol" = "SSL"'
    settings = load(
        tmp_path, toml, {"BRIDGE_STREAM_TRIGGER_MS": "3"}, {"topic": ["t"]}, ("spark.spark.master=local[4]",)
    )
    assert (settings.stream.trigger_ms, settings.stream.status_seconds) == (3, 2)
    assert settings.source.kafka == {"security.protocol": "SSL"}
    assert settings.source.topics == ("t",)
    assert settings.spark == {"spark.master": "local[4]"}


@pytest.mark.parametrize("first", ["master", '"spark.master"'])
@pytest.mark.parametrize("second", ["spark.master", "spark.spark.master"])
def test_spark_properties_go_by_both_names(tmp_path: Path, first: str, second: str) -> None:
    """Spark would take no notice of a property `master`; a later source replaces the same property."""
    toml = f'[spark]\n{first} = "local[1]"\n"ui.enabled" = "true"'
    settings = load(tmp_path, toml, assignments=(f"{second}=local[4]",))
    assert settings.spark == {"spark.master": "local[4]", "spark.ui.enabled": "true"}


WRONG = [
    ({"toml": "nmae = 1"}, "nmae"),
    ({"toml": "[stream]\ntriger_ms = 1"}, "stream.triger_ms"),
    ({"toml": "[stream]\ntrigger_ms = -1"}, "stream.trigger_ms"),
    ({"toml": 'consistency = "loose"'}, "consistency"),
    ({"toml": 'stream = "x"', "assignments": ("stream.trigger_ms=1",)}, "stream"),
    ({"toml": 'target = "x"'}, "target"),
    ({"environment": {"BRIDGE_STREAM_TRIGGER_MS": "soon"}}, "stream.trigger_ms"),
    ({"flags": {"name": ""}}, "name"),
    ({"assignments": ("stream.rows_per_transaction=0",)}, "stream.rows_per_transaction"),
    ({"assignments": ("nosuch.key=1",)}, "nosuch"),
    ({"assignments": ("name",)}, "name"),
    ({"assignments": ("target.schema=a%sb",)}, "target.schema"),
    ({"assignments": ("name.first=1",), "toml": 'name = "x"'}, "name"),
    ({"assignments": ("zz=1", "zz.y=2")}, "zz"),
]


@pytest.mark.parametrize(("sources", "setting"), WRONG)
def test_errors_name_the_setting(tmp_path: Path, sources: dict[str, Any], setting: str) -> None:
    """A wrong or unknown setting is a usage error (exit code 2) that names it."""
    with pytest.raises(UsageError) as raised:
        load(tmp_path, **sources)
    assert setting in str(raised.value)
    assert raised.value.exit_code == 2
    assert len(raised.value.lines) == 1


def problems(tmp_path: Path, **sources: Any) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as raised:
        load(tmp_path, **sources)
    return tuple(line.replace(f"{tmp_path}/", "") for line in raised.value.lines)


SAID = [
    ({"toml": "[stream]\ntriger_ms = 1"},
     "unknown setting stream.triger_ms; did you mean stream.trigger_ms? (bridge.toml)"),
    ({"toml": "[strem]\ntrigger_ms = 1"}, "unknown setting strem; did you mean stream? (bridge.toml)"),
    ({"toml": 'name = "x"\nzzz.y = 1'},
     "unknown setting zzz; `bridge help settings` lists them all (bridge.toml)"),
    ({"environment": {"BRIDGE_STREAM_TRIGER_MS": "1"}},
     "unknown setting BRIDGE_STREAM_TRIGER_MS; did you mean BRIDGE_STREAM_TRIGGER_MS? (the environment)"),
    ({"assignments": ("verify.worker=3",)}, "unknown setting verify.worker; did you mean verify.workers? (--set)"),
    ({"environment": {"BRIDGE_STREAM_TRIGGER_MS": "soon"}},
     "stream.trigger_ms is wrong (given: 'soon'): input should be a valid integer, unable to parse string as an"
     " integer (BRIDGE_STREAM_TRIGGER_MS)"),
    ({"flags": {"consistency": "loose"}},
     "consistency is wrong (given: 'loose'): input should be 'atomic' or 'parallel' (--consistency)"),
    ({"toml": "[verify]\nmax_load = 7"},
     "verify.max_load is wrong (given: 7): input should be a list (bridge.toml)"),
    ({"toml": 'source = "kafka:9092"'},
     "source is a section of settings, not a setting; fix: set one of its settings, source.<setting> (bridge.toml)"),
    ({"flags": {"timezone": "Mars/Base"}},
     "timezone: unknown time zone 'Mars/Base'; fix: give an IANA name, \"UTC\" or an offset like \"+08:00\""
     " (--timezone)"),
    ({"toml": '[[event_filters]]\nmatcher = ["a.*"]\nignore-evnt = ["delete"]'},
     "unknown setting event_filters.ignore-evnt; did you mean event_filters.ignore-event? (bridge.toml)"),
    ({"toml": '[[event_filters]]\nmatcher = 3'},
     "event_filters.matcher is wrong (given: 3): input should be a list (bridge.toml)"),
    ({"toml": "[stream]\nrows_per_transaction = true"},
     "stream.rows_per_transaction is wrong (given: True): it is no number (bridge.toml)"),
    ({"toml": '[target]\nurl = ["s3cret"]'}, "target.url is wrong: input should be a valid string (bridge.toml)"),
]  # fmt: skip


@pytest.mark.parametrize(("sources", "said"), SAID)
def test_what_is_said_of_a_wrong_setting(tmp_path: Path, sources: dict[str, Any], said: str) -> None:
    """The key, the value unless it may be secret, what is allowed, where it was given, and the closest key."""
    assert problems(tmp_path, **sources) == (said,)


def test_all_errors_are_said_at_once(tmp_path: Path) -> None:
    """Of every source, and of values that have the right form but no meaning."""
    found = problems(
        tmp_path,
        toml='nmae = "x"\nprotocol = "cana"\n[stream]\nwriters = 0\n[ddl]\nhold = ["dropp table"]\n',
        environment={"BRIDGE_TARGT": "mysql://h/", "BRIDGE_VERIFY_WORKERS": "many", "BRIDGE_VERIFY_MAX_LOAD": "busy"},
        assignments=("source.quarantin=t/0/1", "target.password=s3cret"),
        flags={"from": "soon", "filter": ["a.*", "["], "target": "db:s3cret", "upstream": "mysql://u:s3cret@h/?ssl=1"},
    )
    keys = ["BRIDGE_TARGT", "holds a password", "nmae", "protocol", "stream.writers", "ddl", "from:", "filter"]
    for key in [
        *keys,
        *("source.quarantin", "verify.workers", "verify.max_load", "target.url", "upstream.url"),
    ]:
        assert [key in line for line in found].count(True) == 1, (key, found)
    assert "s3cret" not in str(found)


@pytest.mark.parametrize("service", ["bridge", "bridge-orders", "bridge-target", "bridge-2", "bridge-service-port"])
def test_variables_of_kubernetes_are_no_settings(tmp_path: Path, service: str) -> None:
    """Every pod has them beside a Service, whatever that is called; no setting is called like one of them."""
    links = service_links(service)
    assert load(tmp_path, environment=links).name == "bridge"
    assert not links.keys() & variables().keys()


def test_a_port_that_kubernetes_did_not_set_is_a_mistake(tmp_path: Path) -> None:
    """Only Kubernetes' form is passed over, so that a wrong name is still found."""
    with pytest.raises(UsageError, match="BRIDGE_WATCH_PORT"):
        load(tmp_path, environment={"BRIDGE_WATCH_PORT": "9464"})


def test_unreadable_files(tmp_path: Path) -> None:
    """A configuration that is not there, or is not TOML, is named."""
    with pytest.raises(UsageError, match=r"absent\.toml"):
        load_settings(tmp_path / "absent.toml", {}, {}, ())
    with pytest.raises(UsageError, match=r"bridge.toml.*not TOML"):
        load(tmp_path, "name = ")


def test_files_with_a_byte_order_mark(tmp_path: Path) -> None:
    """Editors of Windows write one, which is no part of the text."""
    secret = tmp_path / "password"
    secret.write_text("s3cret\n", encoding="utf-8-sig")
    settings = load(tmp_path, f'\ufeff[target]\nurl = "mysql://u@h/"\npassword_file = "{secret}"')
    assert settings.target.url == "mysql://u@h/"
    assert read_secret(str(secret), "target.password_file") == "s3cret"


@contextmanager
def _without_rights(path: Path) -> Iterator[int]:
    """Of this file; gives the uid that reads it then."""
    path.chmod(0)
    own = os.geteuid()
    os.seteuid(own or 65534)  # root reads everything
    try:
        yield os.geteuid()
    finally:
        os.seteuid(own)


def test_a_file_without_the_right_to_read_it(tmp_path: Path) -> None:
    """The error names who wanted to read it, which in a container nobody sees, and the command that helps."""
    path = tmp_path / "file"
    path.write_text("")
    readers = (
        lambda: read_secret(str(path), "target.password_file"),
        lambda: load_settings(path, {}, {}, ()),
        lambda: Tls("required", cert=str(path)).driver_settings(),
    )
    for read in readers:
        with _without_rights(path) as uid, pytest.raises(UsageError) as raised:
            read()
        assert f"cannot be read: Permission denied; fix: the bridge runs as uid {uid}: chown {uid} {path}" in str(
            raised.value
        )


def test_no_password_in_the_file_or_shown(tmp_path: Path) -> None:
    """A password in the configuration is refused; one from the environment is in no text of the settings."""
    with pytest.raises(UsageError, match="BRIDGE_TARGET_PASSWORD"):
        load(tmp_path, '[target]\npassword = "s3cret"')
    settings = load(tmp_path, environment={"BRIDGE_TARGET_PASSWORD": "s3cret"})
    assert settings.target.password == "s3cret"
    assert "s3cret" not in repr(settings)
    assert "s3cret" not in str(settings)


def test_kafkas_password_comes_from_the_environment(tmp_path: Path) -> None:
    """It joins the client's properties; in a file it is refused, by either name."""
    settings = load_settings(None, {"BRIDGE_KAFKA_PASSWORD": "p"}, {}, ["source.kafka.sasl.username=u"])
    assert settings.source.client_properties == {
        "sasl.username": "u", "sasl.password": "p", "socket.timeout.ms": "30000"
    }  # fmt: skip
    for text in ('[source]\nkafka_password = "p"', '[source.kafka]\n"sasl.password" = "p"'):
        (tmp_path / "bridge.toml").write_text(text)
        with pytest.raises(UsageError, match="holds a password"):
            load_settings(tmp_path / "bridge.toml", {}, {}, [])


@pytest.mark.parametrize(
    ("assignments", "milliseconds"),
    [(["source.timeout_seconds=7"], "7000"), (["source.kafka.socket.timeout.ms=90", "source.timeout_seconds=7"], "90")],
)
def test_the_timeout_of_a_request_to_kafka(assignments: list[str], milliseconds: str) -> None:
    """It is the client's, unless the client's own property is given."""
    settings = load_settings(None, {}, {}, assignments)
    assert settings.source.client_properties == {"socket.timeout.ms": milliseconds}


@pytest.mark.parametrize(
    ("assignments", "zone"),
    [
        ((), None),
        (("timezone=Asia/Tokyo",), "Asia/Tokyo"),
        (("timezone=Asia/Tokyo", "ddl.timezone=+08:00"), "+08:00"),
        (("ddl.timezone=+08:00",), "+08:00"),
    ],
)
def test_the_zone_of_schema_changes(tmp_path: Path, assignments: tuple[str, ...], zone: str | None) -> None:
    """It is that of the messages unless it is given."""
    assert load(tmp_path, assignments=assignments).ddl_rules().timezone == zone
