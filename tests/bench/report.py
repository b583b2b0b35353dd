"""What was found, as tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Rows = list[tuple[str, ...]]


def markdown(found: dict[str, Any]) -> str:
    """Every table of a document."""
    parts = []
    for title, head, rows in tables(found):
        lines = [_line(head), _line("---" for _ in head), *map(_line, rows)]
        parts.append(f"{title}\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def tables(found: dict[str, Any]) -> Iterable[tuple[str, tuple[str, ...], Rows]]:
    """Title, head and rows of each table."""
    if "catch_up" in found:
        yield from _catch_up(found["catch_up"])
    if "steady" in found:
        yield from _steady(found["steady"])
    if "large" in found:
        yield from _large(found["large"])
    if "cluster" in found:
        yield from _cluster(found["cluster"])


def _catch_up(part: dict[str, Any]) -> Iterable[tuple[str, tuple[str, ...], Rows]]:
    ceilings = [
        (f"ceiling, {c['workload']}, {c['connections']} connection{'s' * (c['connections'] > 1)}",
         *_rates(c["rows_per_s"]), "", "", "", "")
        for c in part["ceilings"]
    ]  # fmt: skip
    cases = [
        (
            f"{c['workload']}, {c['protocol']}, {c['consistency']}",
            *_rates(c["rows_per_s"]),
            *_ratios(c["ratio"]),
            f"{c['ratio_of_command']['median']:.2f}",
        )
        for c in part["cases"]
    ]
    head: tuple[str, ...] = ("rows/s", "min", "median", "max", "ratio min", "median", "max", "with the start")
    yield f"Catch-up, {part['events']:,} row changes", head, [*ceilings, *cases]
    kinds = ("driver", "workers", "jvm", "mariadb", "kafka")
    costs = [
        (
            f"{c['workload']}, {c['protocol']}, {c['consistency']}",
            *(f"{c['cpu_seconds_per_million'].get(kind, 0.0):.1f}" for kind in kinds),
            *(f"{c['peak_mib'][kind]:,.0f}" for kind in ("python", "jvm", "total")),
        )
        for c in part["cases"]
    ]
    head = ("CPU seconds per million, peak MiB", *kinds, "Python MiB", "JVM MiB", "together")
    yield "Cost", head, costs


def _rates(spread: dict[str, float]) -> Sequence[str]:
    return [f"{spread[name]:,.0f}" for name in ("min", "median", "max")]


def _ratios(spread: dict[str, float]) -> Sequence[str]:
    return [f"{spread[name]:.2f}" for name in ("min", "median", "max")]


def _steady(lives: list[dict[str, Any]]) -> Iterable[tuple[str, tuple[str, ...], Rows]]:
    rows = [
        (
            f"{life['protocol']}, {life['consistency']}",
            f"{latency['transactions_per_s']:g}",
            *(f"{latency[name]:.2f}" for name in ("p50", "p95", "max")),
            f"{life['first_row_s']:.1f}",
            *(f"{life['idle_percent_of_a_core'][name]:.1f}" for name in ("no_messages", "a_boundary_a_second")),
            f"{life['snapshots_wrong']} of {life['snapshots_read']:,}",
        )
        for life in lives
        for latency in life["latency_s"]
    ]
    head = (
        "from produce call to visible", "transactions/s", "p50 s", "p95 s", "max s", "first row s",
        "idle: % of a core", "a boundary a second: %", "wrong snapshots",
    )  # fmt: skip
    yield "Steady state, a boundary each 200 ms", head, rows


def _large(part: dict[str, Any]) -> Iterable[tuple[str, tuple[str, ...], Rows]]:
    rows = [
        (
            f"{one['shape']} of {one['rows']:,} row changes",
            f"{one['rows_per_s']:,}",
            *(f"{one['peak_mib'][kind]:,.0f}" for kind in ("python", "jvm", "total")),
            "yes" if one["within_limit"] else "NO",
        )
        for one in part["shapes"]
    ]
    title = f"Large, {part['protocol']}, {part['consistency']}; peak MiB"
    yield title, ("", "rows/s", "Python", "JVM", "together", f"within {part['limit_mib']:,}"), rows


def _cluster(part: dict[str, Any]) -> Iterable[tuple[str, tuple[str, ...], Rows]]:
    rows = [(f"{n} executor{'s' * (n > 1)}, rows/s", *_rates(spread)) for n, spread in part["rows_per_s"].items()]
    title = f"Standalone cluster, {part['protocol']}, {part['consistency']}, {part['events']:,} row changes"
    yield title, ("", "min", "median", "max"), [*rows, ("two to one", *_ratios(part["two_to_one"]))]
