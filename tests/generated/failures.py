"""How a generated run can end, but for rightly; and words about rows that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.generated.tables import Row


class Failure(Exception):  # noqa: N818  # what a generated run has found
    """A run that ended wrongly; `kind` is what shrinking keeps."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Stopped(Exception):  # noqa: N818  # not wrong: the bridge says that it cannot know
    """The bridge stopped where it may."""


class Crash(BaseException):
    """The end of a process."""


def sorted_rows(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows in an order that all values have."""
    return sorted(rows, key=repr)


def difference(name: str, rows: Sequence[Row], found: Sequence[tuple[Any, ...]]) -> str:
    """What the upstream and the target of a table do not both have."""
    wanted = Counter(repr(tuple(row.values())) for row in rows)
    there = Counter(map(repr, found))
    missing, extra = wanted - there, there - wanted
    columns = ", ".join(rows[0]) if rows else ""
    lines = [f"{name} ({columns})"]
    lines += [f"  the upstream has, the target not: {cut(row)}" for row in missing]
    lines += [f"  the target has, the upstream not: {cut(row)}" for row in extra]
    return "\n".join(lines)


def cut(text: str) -> str:
    """The beginning and the end of a text that is long."""
    return text if len(text) < 400 else f"{text[:200]} ... {text[-150:]}"
