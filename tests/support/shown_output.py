"""Blocks of real output in the README and the manual, and how they are held against what the program prints now.

A block is a fence below a comment `<!-- output: NAME -->` (the README's demo stands below `<!-- demo -->`).  A line
that begins with `$ ` is the command, what follows is its output.  The tests that make a block fail when it shows
something else; with WRITE_SHOWN_OUTPUT=1 in the environment they write it anew:

WRITE_SHOWN_OUTPUT=1 uv run pytest tests/test_manual*.py tests/*/test_shown.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"
MANUAL: Final = ROOT / "bridge" / "manual"
WRITE: Final = "WRITE_SHOWN_OUTPUT"
_BLOCK: Final = re.compile(r"^<!-- (?:output: )?([a-z-]+) -->\n+```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER: Final = re.compile(r"\d+(?:[.,:]\d+)*")


class Block(NamedTuple):
    """command: what stands behind `$ `, "" where there is no such line."""

    page: Path
    command: str
    output: str


def pages() -> list[Path]:
    """The README and the pages of the manual."""
    return [README, *sorted(MANUAL.glob("*.md"))]


@cache
def blocks() -> Mapping[str, Block]:
    """Every block, by its name."""
    found: dict[str, Block] = {}
    for page in pages():
        for name, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
            assert name not in found, f"two blocks are called {name}"
            first, _, rest = text.partition("\n")
            is_command = first.startswith("$ ")
            found[name] = Block(page, first[2:] if is_command else "", rest if is_command else text)
    return found


def assert_shown(name: str, output: str, *, exactly: bool = False) -> None:
    """Fails unless the block shows this output; numbers and widths of columns may differ unless it has to be the same
    exactly."""
    block = blocks()[name]
    output = "".join(f"{line.rstrip()}\n" for line in output.strip("\n").splitlines())
    if (block.output if exactly else masked(block.output)) == (output if exactly else masked(output)):
        return
    if os.environ.get(WRITE):
        _write(name, block, output)
        return
    raise AssertionError(
        f"the block {name!r} of {block.page.name} has to show what follows; set {WRITE}=1 for this test to write it"
        f"\n\n{output}"
    )


def _write(name: str, block: Block, output: str) -> None:
    text = block.page.read_text(encoding="utf-8")
    found = next(one for one in _BLOCK.finditer(text) if one[1] == name)
    command = f"$ {block.command}\n" if block.command else ""
    block.page.write_text(text[: found.start(2)] + command + output + text[found.end(2) :], encoding="utf-8")


def masked(text: str) -> str:
    """Without numbers and widths of columns."""
    text = re.sub(r"[─━]+", "─", _NUMBER.sub("#", text))
    return "\n".join(re.sub(r" +", " ", line).strip() for line in text.splitlines())
