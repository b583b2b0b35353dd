"""`bridge config example`: the settings files that the package ships."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Final

from bridge.errors import UsageError

_SHIPPED: Final = Path(__file__).parent.parent / "conf"
_IN_THE_REPOSITORY: Final = Path(__file__).parent.parent.parent / "conf"


def examples() -> dict[str, str]:
    """Returns the examples: by name, the first sentence of each."""
    return {path.stem: _first_sentence(path) for path in sorted(_folder().glob("*.toml"))}


def example(name: str) -> str:
    """Returns an example; UsageError for a name that none has."""
    known = examples()
    if name not in known:
        near = [each for each in known if each.startswith(name)] or get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"there is no example {name!r}", fix=f"{hint}there are {', '.join(known)}")
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
