"""`--help`: what every page of it shows, and how little it takes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from bridge.cli.app import app
from bridge.cli.help_layout import Heading
from bridge.cli.options import SET, SETTINGS_FLAGS
from bridge.commands.manual import examples
from bridge.settings.load import fields, load_settings, place_of_flag
from tests.support.command import PROGRAM, bridge

SLOW_IMPORTS = {"bridge.config", "pydantic", "structlog", "rich", "sqlalchemy", "pymysql", "pyspark", "numpy"}
SILENT = {"help"}
"""The commands that print a text to read, and no result."""


def commands(group: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, each in group.commands.items():
        path = (*above, name)
        if hasattr(each, "commands"):
            yield from commands(each, path)
        else:
            yield " ".join(path), each


COMMANDS: dict[str, Any] = dict(commands(typer.main.get_command(app)))
GROUPS = sorted({path.rpartition(" ")[0] for path in COMMANDS})


def flags(name: str) -> set[str]:
    return {flag for option in COMMANDS[name].params for flag in option.opts if flag.startswith("--")}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_page_has_an_example_and_the_exit_codes(name: str) -> None:
    """The example is a call of that command, with flags that it has; `-h` shows the same page as `--help`."""
    page, short = bridge(*name.split(), "--help"), bridge(*name.split(), "-h")
    assert (page.code, page.out) == (0, short.out)
    example = page.out.split("\nExample:\n  ")[1].splitlines()[0]
    assert f"bridge {name}" in example
    assert {word for word in example.split() if word.startswith("--")} <= flags(name)
    codes = page.out.split("\nExit codes:\n")[1].split()
    assert {"0", "2", "3", "70"} <= set(codes)
    assert not [line for line in page.out.splitlines() if "<" in line]  # a type instead of a metavar


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - SILENT))
def test_results_can_be_had_as_json(name: str) -> None:
    """Programs read every result."""
    assert "--json" in flags(name)


def test_check_takes_every_flag_of_run() -> None:
    """A command line is checked by exchanging one word."""
    assert flags("run") <= flags("check")


def test_help_takes_little_time() -> None:
    """Less than 0.4 s, of the processors, which other work on the machine moves less than the clock."""
    spent = []
    for name in ("", "run", "ctl throttle"):
        process = subprocess.Popen([*PROGRAM, *name.split(), "--help"], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        spent.append(usage.ru_utime + usage.ru_stime)
    assert min(spent) < 0.4


def test_help_imports_little() -> None:
    """It takes a tenth of a second, not two."""
    code = "import sys; from bridge.cli.app import main\ntry: main(['run', '--help'])\nfinally: print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not SLOW_IMPORTS & set(said.splitlines()[-1].split())


_OF_A_START: Final = {"sqlalchemy", "structlog", "pymysql", "rich"}


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (["status", "--target", "x"], {"sqlalchemy"}),
        (["status", "--target", "mysql://root@db:3306/", "--set", "stream.writers=x"], {"sqlalchemy"}),
        (["run", "--target", "mysql://db/"], _OF_A_START),
        (["replay", "--input", "captures"], _OF_A_START),
        (["status", "--set", "no.such=1"], _OF_A_START),
        (["status", "--target", "mysql://root@127.0.0.1:1/"], set()),
    ],
)
def test_a_command_imports_what_it_needs(arguments: list[str], unneeded: set[str]) -> None:
    """Wrong usage is said after 0.3 s of processor time, and `status` takes 0.8 s; with these it was twice that."""
    code = f"import sys; from bridge.cli.app import main\ntry: main({arguments!r})\nfinally: print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert said.stderr.count("\n") == 1, said.stderr
    loaded = set(said.stdout.splitlines()[-1].split())
    assert not ({"numpy", "pyarrow", "pyspark", "confluent_kafka"} | unneeded) & loaded


def test_the_version_is_told() -> None:
    """By --version."""
    ended = bridge("--version")
    assert (ended.code, ended.out.split()[0]) == (0, "bridge")


@pytest.mark.parametrize("name", GROUPS)
def test_groups_list_their_commands(name: str) -> None:
    """Each with its first sentence, whole."""
    page = bridge(*name.split(), "-h").out
    inside = {path.removeprefix(f"{name} ").split()[0] for path in COMMANDS if path.startswith(name)}
    assert {line.split()[0] for line in page.splitlines() if line.startswith("  ") and line.split()} >= inside
    assert "..." not in page.partition("\n")[2]


@pytest.mark.parametrize("name", GROUPS)
def test_groups_have_an_example_and_the_exit_codes(name: str) -> None:
    """The example calls commands of that group."""
    page = bridge(*name.split(), "--help").out
    examples = page.split("\nExample:\n")[1].split("\n\n")[0].splitlines()
    inside = [path for path in COMMANDS if path.startswith(name)]
    assert all(any(f"bridge {path} " in f"{line} " for path in inside) for line in examples)
    assert {"0", "2", "3", "70"} <= set(page.split("\nExit codes:\n")[1].split())


@pytest.mark.parametrize("name", COMMANDS)
def test_headings_stand_in_one_order(name: str) -> None:
    """What a reader has found on one page stands in the same place on all others; nothing is written in typer's own
    signs."""
    page = bridge(*name.split(), "--help").out
    places = [page.find(f"\n{heading}:\n") for heading in Heading]
    found = [place for place in places if place >= 0]
    assert found == sorted(found)
    assert not re.search(r"[{}]|x>=", page)


def test_the_shell_completes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands and flags, by the script that --show-completion prints."""
    monkeypatch.setenv("_BRIDGE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "bridge replay --ti")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert bridge().out.split() == ["--timezone"]


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


@pytest.mark.parametrize("name", [name for name in SETTINGS_FLAGS if name not in {"config", "from_dump", SET}])
def test_a_flag_gives_a_setting(name: str) -> None:
    """One that there is; the default that its help names is the model's."""
    place = place_of_flag(name.removesuffix("_"))
    assert place in fields(), "name it with its section, or in SHORT_NAMES (bridge/settings/problems.py)"
    said = re.search(r"\[default: (.*)\]", SETTINGS_FLAGS[name].__metadata__[0].help)
    assert said is None or said[1] == str(fields()[place].default)


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
