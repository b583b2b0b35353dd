"""Finds the line of a TOML file in which a setting stands.  `tomllib` does not tell it."""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

from bridge.settings.places import Place

_HEADER: Final = re.compile(r"\s*\[{1,2}([^\[\]]+)\]{1,2}\s*(#.*)?")
_KEY: Final = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[\w-]+))*)\s*=""")


def lines_of(text: str) -> dict[Place, int]:
    """Returns the first line of each key, and of each section; what stands within a value of several lines may be
    among them."""
    found: dict[Place, int] = {}
    section: Place = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(line):
            section = _parts(header[1])
            found.setdefault(section, number)
        elif key := _KEY.match(line):
            found.setdefault((*section, *_parts(key[1])), number)
    return found


def _parts(key: str) -> Place:
    try:
        inside: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    parts = []
    while isinstance(inside, dict):
        ((name, inside),) = inside.items()
        parts.append(name)
    return tuple(parts)
