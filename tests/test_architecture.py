"""The rooms of the house: imports point one way, nothing goes round in a circle, and the core is pure."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = (
    {"errors", "events", "tso", "model", "console", "filters", "secret_settings", "ends", "phases", "cache"},
    {"ddl"},
    {"protocols"},
    {"rows"},
    {"mysql"},
    {"config", "registry"},
    {"settings"},
    {"local"},
    {"sources", "spark"},
    {"pipeline"},
    {"watch"},
    {"verify"},
    {"commands"},
    {"exits"},
    {"demo"},
    {"cli"},
    {"__main__"},
)
"""Packages and modules of `bridge`, the lowest first; one imports from its own floor and from those below."""
PURE = ("protocols", "rows", "ddl")
DRIVERS = {"pyspark", "pymysql", "sqlalchemy", "confluent_kafka"}
CEILING = 49764
"""The most lines of `bridge`, without `demo` and `local`."""


@cache
def modules() -> dict[str, Path]:
    """Every module of the package, by its dotted name."""
    found = {}
    for path in (ROOT / "bridge").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path) -> Iterator[str]:
    """The modules of the package that one imports, wherever in it the import stands."""
    known = modules()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names} & known.keys()
            yield from names
            if len(names) < len(node.names) and node.module in known:
                yield node.module


@cache
def imports() -> dict[str, set[str]]:
    """What each module imports."""
    return {name: set(imported(path)) - {name} for name, path in modules().items()}


def floor_of(name: str) -> int:
    """The floor of a module."""
    room = name.split(".")[1]
    return next(number for number, rooms in enumerate(FLOORS) if room in rooms)


def test_imports_point_downward() -> None:
    """A lower floor knows nothing of a higher one."""
    upward = [
        f"{name} -> {other}"
        for name, others in imports().items()
        for other in others
        if "." in name and "." in other and floor_of(other) > floor_of(name)
    ]
    assert not upward


def test_no_module_imports_itself_by_way_of_others() -> None:
    """There is an order in which each module can be understood after those that it imports."""
    left = {name: others & imports().keys() for name, others in imports().items()}
    while ready := {name for name, others in left.items() if not others & left.keys()}:
        left = {name: others for name, others in left.items() if name not in ready}
    assert not left


@pytest.mark.parametrize("room", PURE)
def test_the_core_is_pure(room: str) -> None:
    """Decoding, folding, rendering and the rules of schema changes load neither Spark nor a driver, by any way."""
    names = sorted(name for name in modules() if name.startswith(f"bridge.{room}"))
    code = f"import importlib, sys; [importlib.import_module(n) for n in {names!r}]; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not DRIVERS & set(loaded)


def test_sqlalchemy_is_used_for_addresses_alone() -> None:
    """Why, and for what, is in bridge/mysql/connection/README.md."""
    users = {name for name, path in modules().items() if "sqlalchemy" in path.read_text(encoding="utf-8")}
    assert users == {"bridge.mysql.connection.target", "bridge.mysql.connection.server_url"}


def test_a_docstring_stands_below_what_it_describes() -> None:
    """One that follows another is of a constant that was moved away from it."""
    stray = [
        f"{path}:{one.lineno}"
        for path in sorted((ROOT / "bridge").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for before, one in pairwise(node.body if isinstance(node, ast.Module | ast.ClassDef) else [])
        if is_text(one) and (is_text(before) or not isinstance(before, ast.Assign | ast.AnnAssign))
    ]
    assert stray == []


def is_text(node: ast.stmt) -> bool:
    """Whether a statement is a text alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def test_the_tests_make_producers_in_one_place() -> None:
    """Each of them keeps the order within a partition: what stands behind its boundary is late, and dropped."""
    files = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    makers = {path.name for path in files if " Producer(" in path.read_text(encoding="utf-8")}
    assert makers == {"producers.py"}


def test_no_admin_client_is_asked_about_consumer_groups() -> None:
    """It ends the whole process, without a word, when the connection to the group's coordinator is lost meanwhile
    (librdkafka, issues 3663 and 4605)."""
    files = [path for room in ("bridge", "tests") for path in (ROOT / room).rglob("*.py") if path != Path(__file__)]
    assert [str(path) for path in files if "consumer_group_offsets" in path.read_text(encoding="utf-8")] == []


def test_the_package_does_not_grow() -> None:
    """What is added has to replace something: the ceiling is lowered with each merge."""
    lines = sum(
        len(path.read_text(encoding="utf-8").splitlines())
        for path in modules().values()
        if path.relative_to(ROOT).parts[1] not in {"demo", "local"}
    )
    assert lines <= CEILING


def test_no_folder_is_crowded() -> None:
    """A folder holds about a dozen files."""
    files = Counter(path.parent for path in modules().values() if not path.name.startswith("__"))
    assert {str(folder.relative_to(ROOT)) for folder, count in files.items() if count > 12} == set()
