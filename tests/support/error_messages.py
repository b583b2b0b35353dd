"""The messages of the bridge's errors, as its source has them, and the entries of the manual that name them.

A message is a pattern: its own words, with `...` for what is filled in.  Where a variable is the message, or a part of
it, each text that the function gives to the variable counts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

from bridge.errors import BridgeError, UnknownPipelineError
from tests.support.shown_output import MANUAL, ROOT

PAGE: Final = MANUAL / "when-it-stops.md"
FILLED: Final = "..."
_MAKERS: Final = {"refuse_part": ("RefusedRowsError", 2), "_added_topic_error": ("UsageError", 1)}
"""Functions that make an error of a text that they are given, with its class and the number of the argument."""


class Message(NamedTuple):
    """kind: the class of the error.  place: the file and line that raises it.  fixes: what it says to do, if words of
    that stand beside it."""

    kind: str
    text: str
    place: str
    fixes: tuple[str, ...] = ()


def kinds(base: type[BridgeError] = BridgeError) -> Iterator[type[BridgeError]]:
    """The tree of errors."""
    yield base
    for kind in base.__subclasses__():
        yield from kinds(kind)


@cache
def messages() -> list[Message]:
    """Every message that the source of the bridge holds words of."""
    names = {kind.__name__: 0 for kind in kinds() if kind is not UnknownPipelineError}
    arguments = {**{name: (name, at) for name, at in names.items()}, **_MAKERS}
    found = [Message("UnknownPipelineError", str(UnknownPipelineError(FILLED).what), "bridge/errors.py")]
    for path in sorted((ROOT / "bridge").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                found += _raised(function, arguments, path.relative_to(ROOT))
    return list(dict.fromkeys(one for one in found if re.search(r"\w", one.text.replace(FILLED, ""))))


def _raised(function: ast.FunctionDef, arguments: dict[str, tuple[str, int]], path: Path) -> Iterator[Message]:
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in arguments:
            kind, at = arguments[call.func.id]
            if len(call.args) > at:
                fixes = [text for word in call.keywords if word.arg == "fix" for text in _fixes(word.value)]
                for text in map(_shortened, _texts(call.args[at], function)):
                    yield Message(kind, text, f"{path}:{call.lineno}", tuple(fixes))


def _shortened(text: str) -> str:
    return re.sub(r"(\.\.\.)+", FILLED, text)


def _fixes(value: ast.expr) -> list[str]:
    """The texts that stand there; what is filled in is not followed."""
    match value:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            return [
                _shortened("".join(str(part.value) if isinstance(part, ast.Constant) else FILLED for part in parts))
            ]
        case ast.IfExp(body=one, orelse=other):
            return _fixes(one) + _fixes(other)
    return []


def _texts(value: ast.expr, function: ast.FunctionDef) -> list[str]:
    """The texts that an expression may give."""
    match value:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            return ["".join(one) for one in product(*(_texts(part, function) for part in parts))]
        case ast.FormattedValue(value=ast.Name() as name):
            return _texts(name, function)
        case ast.IfExp(body=one, orelse=other):
            return _texts(one, function) + _texts(other, function)
        case ast.Name(id=name):
            return [text for given in _given(name, function) for text in _texts(given, function)] or [FILLED]
    return [FILLED]


def _given(name: str, function: ast.FunctionDef) -> Iterator[ast.expr]:
    """What a function gives to a variable of its own."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                yield value
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                for target, value in zip(targets, values, strict=True):
                    if isinstance(target, ast.Name) and target.id == name:
                        yield value


def entries(text: str = "") -> list[str]:
    """The words of messages that a text, or the page, names in the first column of its tables."""
    rows = re.findall(r"^\| (.+?) \| .+ \| .+ \|$", text or PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [entry for row in rows for entry in row.split("; ") if row not in {"it says", "---"}]


def is_named(message: str, entry: str) -> bool:
    """Tells whether a message holds the words of an entry."""
    return re.search(".+".join(map(re.escape, entry.split(FILLED))), message) is not None
