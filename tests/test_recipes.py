"""What bridge/README.md says of where a change belongs is all that it takes, and tests name what is missing.

Each recipe is followed in a copy of the project: by half, whereupon the tests that are named say what is missing, then
whole.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
IN_SUITE = {"a setting", "a module"}
COPIED = ("bridge", "conf", "tests/support", "tests/conftest.py", "tests/test_*.py", "README.md", "pyproject.toml")


class Edit(NamedTuple):
    """Puts a text before another one, or at the end of a file."""

    file: str
    before: str
    text: str


class Recipe(NamedTuple):
    """half, rest: the edits.  commands: modules to run then.  tests: those that fail between the two."""

    half: Sequence[Edit]
    rest: Sequence[Edit]
    commands: Sequence[str]
    tests: Sequence[str]


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
    "a module": Recipe(
        [Edit("bridge/watch/toy.py", "", '"""Plays."""\n')],
        [Edit("bridge/watch/README.md", "| `view.py` |", "| `toy.py` | plays |\n")],
        [],
        ["tests/test_readme.py::test_a_package_says_what_is_in_it[watch]"],
    ),
}


@pytest.mark.parametrize(  # seconds of the processor each
    "name",
    [pytest.param(name, marks=pytest.mark.system if name in IN_SUITE else pytest.mark.soak) for name in RECIPES],
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


def apply(project: Path, edits: Sequence[Edit]) -> None:
    """Makes the edits."""
    for file, before, text in edits:
        path = project / file
        content = path.read_text(encoding="utf-8") if path.exists() else ""
        assert before in content, f"{file} has no {before!r} any more"
        path.write_text(content.replace(before, text + before, 1) if before else content + text, encoding="utf-8")


def ran(project: Path, *module: str) -> subprocess.CompletedProcess[str]:
    """Runs a module of the copy, or of an installed package."""
    return subprocess.run([sys.executable, "-m", *module], cwd=project, capture_output=True, text=True, check=False)
