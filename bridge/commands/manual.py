"""What `bridge help` and `bridge config example` show: pages of the manual, and settings files to begin with."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Final

from bridge.errors import UsageError, meant

_PAGES: Final = files("bridge") / "manual"
_LISTED: Final = re.compile(r"^\| \[([a-z-]+)\]\(\1\.md\) \| (.+) \|$", re.MULTILINE)
TOPICS: Final = dict(_LISTED.findall((_PAGES / "README.md").read_text(encoding="utf-8")))
"""The pages, and what each of them tells."""

_COMMENT: Final = re.compile(r"^<!--.*?-->\n", re.MULTILINE)
_PICTURE: Final = re.compile(r"!\[([^\]]*)\]\((?:\.\./)*([^)]*)\)")
_PAGE: Final = re.compile(r"\[([^\]]*)\]\(([a-z-]+)\.md(?:#[^)]*)?\)")
_LINK: Final = re.compile(r"\[([^\]]*)\]\((?!https?:)(?:\.\./)*([^)#]*)(?:#[^)]*)?\)")


def page(topic: str) -> str:
    """Returns a page as Markdown whose links make sense in a terminal; UsageError for an unknown topic."""
    if topic not in TOPICS:
        hint = meant(topic.lower(), TOPICS)
        raise UsageError(f"the manual has no page {topic!r}", fix=f"{hint}the pages are: {', '.join(TOPICS)}")
    return for_terminal((_PAGES / f"{topic}.md").read_text(encoding="utf-8"))


def for_terminal(text: str) -> str:
    """Removes the comments of a page and replaces its links: those to other pages with the command that prints them,
    those to pictures and files with their path in the repository."""
    text = _PICTURE.sub(r"(\1: `\2` in the repository)", _COMMENT.sub("", text))
    text = _PAGE.sub(lambda link: f"{link[1]} (`bridge help {link[2]}`)" if link[2] in TOPICS else link[0], text)
    return _LINK.sub(r"\1 (`\2` in the repository)", text)


_SHIPPED: Final = Path(__file__).parent.parent / "conf"
_IN_THE_REPOSITORY: Final = Path(__file__).parent.parent.parent / "conf"


def examples() -> dict[str, str]:
    """Returns the examples: by name, the first sentence of each."""
    return {path.stem: _first_sentence(path) for path in sorted(_folder().glob("*.toml"))}


def example(name: str) -> str:
    """Returns an example; UsageError for a name that none has."""
    names = examples()
    if name not in names:
        raise UsageError(f"there is no example {name!r}", fix=f"{meant(name, names)}there are {', '.join(names)}")
    return (_folder() / f"{name}.toml").read_text(encoding="utf-8")


def _folder() -> Path:
    return _SHIPPED if _SHIPPED.is_dir() else _IN_THE_REPOSITORY


def _first_sentence(path: Path) -> str:
    comment = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("# "):
            break
        comment.append(line.removeprefix("# "))
    return " ".join(comment).partition(".  ")[0].rstrip(".")
