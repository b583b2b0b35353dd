"""The README and the maps of the packages show what there is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "bridge"
README = (ROOT / "README.md").read_text(encoding="utf-8")
FOLDERS = sorted({path.parent for path in PACKAGE.rglob("*.py")})
NOT_LISTED = {"__init__.py", "__main__.py"}


def test_the_commands_are_those_of_the_program() -> None:
    """Every command of the program stands in the README's first list, and no other."""
    said = subprocess.run([sys.executable, "-m", "bridge", "--help"], capture_output=True, text=True, check=True).stdout
    offered = re.findall(r"^  (\w+)  +\S", said.split("--help")[1].split("Example:")[0], re.MULTILINE)
    assert sorted(offered) == sorted(re.findall(r"^    bridge (\w+)  ", README, re.MULTILINE))


def test_the_two_commands_are_there() -> None:
    """A fresh checkout needs these two lines, and CI runs the second as it stands."""
    assert "\npip install uv && uv run bridge demo\n" in README
    assert "\npip install uv && uv run pytest\n" in README
    assert "uv run pytest\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    """Ten kilobytes are read; everything else is a page of the manual."""
    assert len(README.encode()) <= 10 * 1024


def test_the_map_names_every_package() -> None:
    """bridge/README.md lists each package once."""
    listed = re.findall(r"^\| \[\w+\]\((\w+)/README\.md\) \|", (PACKAGE / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(
        {path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("README.md")} - {"README.md"}
    )


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_package_says_what_is_in_it(folder: Path) -> None:
    """The README of a package has a line for each of its modules and packages, and for nothing that is not there."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    table = "\n".join(line.split(" | ")[0] for line in text.splitlines() if line.startswith("| "))
    modules = {path.name for path in folder.glob("*.py")} - NOT_LISTED
    packages = {path.name for path in folder.iterdir() if path in FOLDERS}
    assert set(re.findall(r"`(\w+\.py)`", table)) == modules
    assert set(re.findall(r"\]\((\w+)/README\.md\)", table)) >= packages


def test_the_way_of_the_data_is_there() -> None:
    """Every file that bridge/README.md names is there."""
    text = (PACKAGE / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"(?<![\w/<])((?:\w+/)+\w+\.py)", text)
    assert len(named) > 20
    assert [name for name in named if not (PACKAGE / name).exists()] == []
