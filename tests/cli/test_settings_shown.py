"""`bridge config example` and `bridge check --show`: settings files to begin with, and the settings in force."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from bridge.commands.manual import examples
from bridge.settings.load import load_settings
from tests.support.command import bridge

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "conf").glob("*.toml"))


def test_examples_are_listed() -> None:
    """With what each is for."""
    ended = bridge("config", "example")
    listed = [line.split(maxsplit=1) for line in ended.out.partition("\n\n")[0].splitlines()]
    assert [name for name, _ in listed] == NAMES == sorted(examples())
    assert all(len(words) > 20 for _, words in listed)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_can_be_loaded(tmp_path: Path, name: str) -> None:
    """As it is printed; it names source and target."""
    file = tmp_path / "bridge.toml"
    file.write_text(bridge("config", "example", name).out, encoding="utf-8")
    settings = load_settings(file, {}, {}, ())
    assert settings.source.bootstrap_servers
    assert settings.source.topics
    assert settings.target.url


def test_an_unknown_example() -> None:
    """The closest one is named."""
    ended = bridge("config", "example", "canal")
    assert (ended.code, "did you mean canal-to-mariadb?" in ended.err) == (2, True)


def test_the_wheel_holds_the_examples() -> None:
    """Where `bridge config example` looks for them first."""
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert built["targets"]["wheel"]["force-include"] == {"conf": "bridge/conf"}


def test_the_settings_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with where it was given; without secrets, and without a connection."""
    config = tmp_path / "bridge.toml"
    config.write_text(
        'protocol = "canal-json"\n[source]\ntopics = ["a", "b"]\n[source.kafka]\n"ssl.key.password" = "env:KEY"\n',
        encoding="utf-8",
    )
    monkeypatch.setenv("KEY", "s3cret1")
    monkeypatch.setenv("BRIDGE_TARGET_PASSWORD", "s3cret2")
    flags = ("--config", str(config), "--target", "mysql://u:s3cret3@h/", "--set", "stream.writers=5")
    shown = bridge("check", "--show", *flags)
    assert shown.code == 0
    lines = {line.split()[0]: line.split()[1:] for line in shown.out.splitlines()}
    assert lines["name"] == ['"bridge"', "default"]
    assert lines["timezone"] == ["-", "default"]
    assert lines["protocol"] == ['"canal-json"', str(config)]
    assert lines["source.topics"] == ['["a","b"]', str(config)]
    assert lines["source.kafka.ssl.key.password"] == ['"***"', str(config)]
    assert lines["target.url"] == ['"mysql://u:***@h/"', "--target"]
    assert lines["target.password"] == ['"***"', "BRIDGE_TARGET_PASSWORD"]
    assert lines["stream.writers"] == ["5", "--set"]
    document = json.loads(bridge("check", "--show", "--json", *flags).out)
    assert {"key": "stream.writers", "value": 5, "origin": "--set"} in document
    assert [each["key"] for each in document] == list(lines)
    assert "s3cret" not in shown.out + shown.err + str(document)
