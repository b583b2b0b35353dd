"""What bridge/README.md says of where a change belongs is all that it takes, and tests name what is missing.

Each recipe is followed in a copy of the project: by half, whereupon the tests that are named say what is missing, then
whole.
"""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
IN_SUITE = {"a setting"}
COPIED = ("bridge", "conf", "tests", "README.md", "pyproject.toml")
TOY_MESSAGE = (
    b'{"id":1,"database":"shop","table":"toys","pkNames":["id"],"isDdl":false,"type":"INSERT","es":1700000000000,'
    b'"ts":1700000000001,"sql":"","sqlType":{"id":4},"mysqlType":{"id":"int"},"data":[{"id":"7"}],"old":null}'
)


class Edit(NamedTuple):
    """Puts a text before another one, or at the end of a file."""

    file: str
    before: str
    text: str


class Recipe(NamedTuple):
    """half, rest: the edits.  commands: modules to run then.  tests: those that fail between the two.

    shown: a command, its stdin, and what it prints at the end.
    """

    half: Sequence[Edit]
    rest: Sequence[Edit]
    commands: Sequence[str]
    tests: Sequence[str]
    shown: tuple[str, str, str] | None = None


RECIPES = {
    "a setting": Recipe(
        [
            Edit(
                "bridge/config.py",
                "    status_seconds: float = Field(default=10, gt=0)\n",
                '    toy_seconds: float = Field(default=7, gt=0)\n    """How long the toy takes."""\n',
            )
        ],
        [Edit("conf/bridge.toml", "status_seconds = 10", "toy_seconds = 7              # how long the toy takes\n")],
        ["tests.support.settings_page"],
        [
            "tests/test_manual.py::test_the_settings_page_is_made_from_the_model",
            "tests/test_manual.py::test_the_example_of_a_settings_file_is_whole",
        ],
    ),
    "a failure": Recipe(
        [
            Edit(
                "bridge/tso.py",
                "",
                "\n\ndef break_toy() -> None:\n    from bridge.errors import SourceError\n\n"
                '    raise SourceError("the toy of a source is broken for good", fix="buy another one")\n',
            )
        ],
        [
            Edit(
                "bridge/manual/when-it-stops.md",
                "| Kafka has no topic ... |",
                "| the toy of a source is broken | a | b |\n",
            )
        ],
        [],
        ["tests/test_manual_errors.py::test_every_message_has_an_entry"],
    ),
    "wrong usage": Recipe(
        [
            Edit(
                "bridge/tso.py",
                "",
                "\n\ndef refuse_toy() -> None:\n    from bridge.errors import UsageError\n\n"
                '    raise UsageError("the toy cannot be played with", fix="read its page")\n',
            )
        ],
        [],
        ["tests.support.usage_messages"],
        ["tests/test_manual_errors.py::test_the_table_of_wrong_usage_is_made_from_the_source"],
    ),
    "a protocol": Recipe(
        [
            Edit("bridge/protocols/toy/__init__.py", "", '"""Decodes toys."""\n'),
            Edit(
                "bridge/protocols/toy/decoder.py",
                "",
                '"""Decodes toys: Canal-JSON with a key."""\n\n'
                "from bridge.protocols.canal.decoder import CanalJsonDecoder\n\n\n"
                "class ToyDecoder(CanalJsonDecoder):\n"
                '    """Decodes toys."""\n\n'
                '    protocols = ("toy",)\n',
            ),
            Edit(
                "bridge/protocols/toy/recognition.py",
                "",
                '"""The facts of toys."""\n\n'
                "from bridge.protocols.protocol import Protocol, Recognised\n\n"
                "TOY = Protocol(\n"
                '    "toy",\n'
                '    "toy.fast:FastToyDecoder",\n'
                '    "have a toy as their key",\n'
                '    of_key=lambda key, value: Recognised("toy", "a toy") if key == b"toy" else None,\n'
                ")\n",
            ),
            Edit(
                "bridge/protocols/toy/fast.py",
                "",
                '"""Leaves toys to parsing."""\n\n'
                "from bridge.protocols.fast.decoder import FastDecoder\n"
                "from bridge.protocols.toy.decoder import ToyDecoder\n\n\n"
                "class FastToyDecoder(FastDecoder):\n"
                '    """Leaves all messages to parsing."""\n\n'
                "    def __init__(self, options):\n"
                "        super().__init__(ToyDecoder(options))\n",
            ),
            Edit(
                "bridge/protocols/detect.py",
                "from bridge.protocols.protocol import",
                "from bridge.protocols.toy.recognition import TOY\n",
            ),
            Edit("bridge/protocols/detect.py", "OPEN_PROTOCOL, CANAL_JSON,", "TOY, "),
        ],
        [
            Edit(
                "bridge/protocols/toy/README.md",
                "",
                "# Toys\n\n| file | holds |\n| --- | --- |\n| `decoder.py`, `fast.py` | toys |\n"
                "| `recognition.py` | facts |\n",
            ),
            Edit("bridge/protocols/README.md", "| [values](values", "| [toy](toy/README.md) | toys |\n"),
            Edit("bridge/manual/protocols.md", "| `ckafka` |", "| `toy` | a toy shop | nothing | nothing |\n"),
            Edit("bridge/cli/options.py", "ckafka, debezium or open-protocol.", "toy, "),
            Edit("conf/bridge.toml", "open-protocol", "toy, "),
            Edit(
                "toys.jsonl",
                "",
                '{"topic": "t", "partition": 0, "offset": 0, "timestamp": 1, "key": "dG95", "value": "'
                + base64.b64encode(TOY_MESSAGE).decode()
                + '"}\n',
            ),
        ],
        [],
        [
            *(
                f"tests/protocols/test_registered.py::test_a_list_has_every_protocol[{name}]"
                for name in (
                    "the help of --protocol in bridge/cli/options.py",
                    "the comment in conf/bridge.toml",
                    "the table in bridge/manual/protocols.md",
                )
            ),
            "tests/protocols/test_registered.py::test_each_has_a_folder_of_its_own[toy]",
            *(f"tests/test_readme.py::test_a_package_says_what_is_in_it[{name}]" for name in ("protocols", "toy")),
        ],
        ("bridge inspect --input toys.jsonl", "", "shop.toys"),
    ),
    "a rule for schema changes": Recipe(
        [
            Edit(
                "bridge/ddl/rules/tables.py",
                "def hints(",
                "def toys(statement: StatementParts, site: Site) -> Iterator[Edit]:\n"
                '    """Removes MIN_ROWS."""\n'
                "    for scope in option_scopes(statement):\n"
                "        for i, token in outer(scope):\n"
                '            if token.word == "MIN_ROWS":\n'
                '                yield remove(scope[i : value_at(scope, i) + 1], "toys have no rows")\n\n\n',
            )
        ],
        [Edit("bridge/ddl/rewrite.py", "    (tables.hints,", "    (tables.toys, None),\n")],
        [],
        ["tests/ddl/test_rewrite.py::test_every_rule_has_its_place"],
        (
            "bridge ddl translate --flavour mariadb-11.4",
            "CREATE TABLE d.t (id INT PRIMARY KEY) MIN_ROWS=5",
            "toys have no rows",
        ),
    ),
    "a line of check": Recipe(
        [
            Edit(
                "bridge/commands/check/doctor.py",
                '        yield from _of("source", lambda',
                '        yield fail("toys", "none", "buy one") if settings is None else ok("toys", "toys are there")\n',
            )
        ],
        [Edit("tests/commands/check/test_judgements.py", "CUT = RowChange(", 'TOYS = "toys"\n')],
        [],
        ["tests/commands/check/test_judgements.py::test_every_line_that_can_fail_is_in_a_test"],
        ("bridge check --target mysql://root@127.0.0.1:1/ --input nothing.jsonl", "", "toys are there"),
    ),
    "a module": Recipe(
        [Edit("bridge/watch/toy.py", "", '"""Plays."""\n')],
        [Edit("bridge/watch/README.md", "| `watch.py` |", "| `toy.py` | plays |\n")],
        [],
        ["tests/test_readme.py::test_a_package_says_what_is_in_it[watch]"],
    ),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_finds_its_places(name: str) -> None:
    """Its edits fit the files as they are."""
    for file, before, _ in (*RECIPES[name].half, *RECIPES[name].rest):
        assert not before or before in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {before!r} any more"


@pytest.mark.parametrize(  # seconds of the processor each
    "name", [pytest.param(name, marks=pytest.mark.system if name in IN_SUITE else pytest.mark.soak) for name in RECIPES]
)
def test_a_recipe_is_whole(tmp_path: Path, name: str) -> None:
    """Half of it fails the tests that are named, and all of it passes them."""
    recipe = RECIPES[name]
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *COPIED]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout
    packed = subprocess.run(["tar", "cf", "-", "-T", "-"], cwd=ROOT, input=files, capture_output=True, check=True)
    subprocess.run(["tar", "xf", "-"], cwd=tmp_path, input=packed.stdout, check=True)
    apply(tmp_path, recipe.half)
    half = ran(tmp_path, "pytest", "-n", "0", "-q", *recipe.tests)
    assert half.stdout.count("\nFAILED ") == len(recipe.tests), half.stdout
    apply(tmp_path, recipe.rest)
    for command in recipe.commands:
        assert ran(tmp_path, command).returncode == 0
    whole = ran(tmp_path, "pytest", "-n", "0", "-q", *recipe.tests)
    assert whole.returncode == 0, whole.stdout
    if recipe.shown:
        command, stdin, words = recipe.shown
        printed = ran(tmp_path, *command.split(), stdin=stdin)
        assert words in printed.stdout, printed


def apply(project: Path, edits: Sequence[Edit]) -> None:
    """Makes the edits."""
    for file, before, text in edits:
        path = project / file
        path.parent.mkdir(exist_ok=True)
        content = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(content.replace(before, text + before, 1) if before else content + text, encoding="utf-8")


def ran(project: Path, *module: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a module of the copy, or of an installed package."""
    command = [sys.executable, "-m", *module]
    return subprocess.run(command, cwd=project, input=stdin, capture_output=True, text=True, check=False)
