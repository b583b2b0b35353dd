"""The README shows what there is."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_commands_are_those_of_the_program() -> None:
    """Every command of the program stands in the README's first list, and no other."""
    said = subprocess.run([sys.executable, "-m", "bridge", "--help"], capture_output=True, text=True, check=True).stdout
    offered = re.findall(r"^  (\w+)  +\S", said.split("Commands:")[1], re.MULTILINE)
    assert sorted(offered) == sorted(re.findall(r"^    bridge (\w+)  ", README, re.MULTILINE))


def test_the_two_commands_are_there() -> None:
    """A fresh checkout needs these two lines, and CI runs the second as it stands."""
    assert "\npip install uv && uv run bridge demo\n" in README
    assert "\npip install uv && uv run pytest\n" in README
    assert "uv run pytest\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_folders_are_those_of_the_package() -> None:
    """The README's map of the package names every folder."""
    folders = {path.name for path in (ROOT / "bridge").iterdir() if (path / "__init__.py").exists()}
    assert folders == set(re.findall(r"^\| bridge/(\w+)/ \|", README, re.MULTILINE))
