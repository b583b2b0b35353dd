"""Genuine messages of TiCDC's own encoders."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bridge.events import Boundary, Kind, RowChange, key_names
from bridge.protocols.values.row_image import split_forms
from bridge.tso import ms_tso, tso_ms
from tests.support.wire import capture_events, check_sound, messages, names_of, row_changes, row_of, split, untyped

SCRIPTS = ["all_types", "all_types_tz8", "keys", "keys_raw", "keys_tabledisp", "ddl", "bank"]
WHOLE = ["canal-ext", "canal-rowkey", "canal-compat", "open", "open-lz4"]
MOST_SCRIPTS = [script for script in SCRIPTS if script != "bank"]
CAPTURES = [
    (variant, script) for variant in WHOLE for script in (SCRIPTS if variant in ("canal-ext", "open") else MOST_SCRIPTS)
]
DEBEZIUM = [
    (variant, script)
    for variant in ("debezium", "debezium-ext", "debezium-noschema", "debezium-noschema-ext")
    for script in (SCRIPTS if variant.endswith("ext") else MOST_SCRIPTS)
]
ROWS = (Kind.INSERT, Kind.UPDATE, Kind.DELETE)


def capture(golden: Path, variant: str, script: str) -> Sequence[tuple[int, Any]]:
    return capture_events(golden / variant / f"{script}.jsonl")


def _has_boundaries(variant: str) -> bool:
    return not variant.startswith("debezium") or variant.endswith("ext")


def rows(events: Sequence[tuple[int, Any]]) -> list[RowChange]:
    return [event for _, event in events if event.kind in ROWS]


@pytest.mark.parametrize(("variant", "script"), CAPTURES + DEBEZIUM)
def test_every_message_decodes(golden: Path, variant: str, script: str) -> None:
    """No message of a changefeed that sends whole rows is bad."""
    events = capture(golden, variant, script)
    check_sound([event for _, event in events])
    assert [event.reason for _, event in events if event.kind is Kind.BAD] == []


@pytest.mark.parametrize(("variant", "script"), CAPTURES)
def test_numbers_of_events(golden: Path, variant: str, script: str) -> None:
    """As many changes as the upstream made; a schema change has 1 copy (canal) or 4, and may be split."""
    counts = Counter(event.kind for _, event in capture(golden, variant, script))
    stats = json.loads((golden / "expected" / f"{script}.json").read_text())["stats"]
    copies = 4 if variant.startswith("open") else 1
    assert counts[Kind.SCHEMA_CHANGE] == copies * (118 if script == "ddl" else stats["ddl"])
    assert counts[Kind.INSERT] == stats.get("row-insert", 0)
    assert counts[Kind.UPDATE] == stats.get("row-update", 0)
    assert counts[Kind.DELETE] == stats.get("row-delete", 0)


@pytest.mark.parametrize(("variant", "script"), [case for case in CAPTURES + DEBEZIUM if _has_boundaries(case[0])])
def test_boundaries_hold(golden: Path, variant: str, script: str) -> None:
    """After a boundary its partition holds nothing below it, and boundaries never go back."""
    boundaries: Counter[int] = Counter()
    for partition, event in capture(golden, variant, script):
        assert event.commit_ts >= boundaries[partition]
        if event.kind is Kind.BOUNDARY:
            boundaries[partition] = event.commit_ts
    assert len(boundaries) == 4


@pytest.mark.parametrize("script", SCRIPTS)
def test_both_formats_say_the_same(golden: Path, script: str) -> None:
    """Canal-JSON and Open Protocol of one upstream give the same literals, statements and boundaries."""
    canal, opened = (rows(capture(golden, variant, script)) for variant in ("canal-ext", "open"))
    alike = [Counter(row._replace(index=0, key="") for row in row_changes(untyped(rows))) for rows in (canal, opened)]
    assert alike[0] == alike[1]
    keys = [
        {(event.schema, event.table, event.commit_ts): event.key for event in events if key_names(event.key)}
        for events in (canal, opened)
    ]
    assert keys[0].items() <= keys[1].items()
    others = [
        {event for _, event in capture(golden, variant, script) if event.kind not in ROWS}
        for variant in ("canal-ext", "open")
    ]
    assert others[0] == others[1]


@pytest.mark.parametrize(("variant", "script"), DEBEZIUM)
def test_debezium_says_the_same(golden: Path, variant: str, script: str) -> None:
    """Debezium has the rows, schema changes and boundaries of Canal-JSON, but for the statements that it does not send
    (protocols.md, debezium), with the same columns and NULLs."""
    both = capture(golden, "canal-ext", script), capture(golden, variant, script)
    statements, boundaries = (
        [{event for _, event in found if event.kind is kind} for found in both]
        for kind in (Kind.SCHEMA_CHANGE, Kind.BOUNDARY)
    )
    assert statements[1] <= statements[0]
    assert len(statements[0] - statements[1]) == (5 if script == "ddl" else 0)
    assert boundaries[1] == (boundaries[0] if variant.endswith("ext") else set())
    shapes = [Counter(_shape(*found) for found in events if found[1].kind in ROWS) for events in both]
    assert shapes[0] == shapes[1]


def _shape(partition: int, event: RowChange) -> tuple[object, ...]:
    names, _ = split_forms(event.columns)
    nulls = str([image and [literal == "NULL" for literal in split(image)] for image in (event.before, event.after)])
    if event.table == "times":  # a zero date is NULL there
        nulls = ""
    return partition, event.kind, event.commit_ts, event.schema, event.table, names, nulls


@pytest.mark.parametrize(("variant", "script"), [*(("canal-ext", script) for script in SCRIPTS), *DEBEZIUM])
def test_partitions_are_ordered(golden: Path, variant: str, script: str) -> None:
    """Inside a partition of Canal-JSON and of TiCDC's Debezium, commit_ts never goes back (protocols.md, Ordering)."""
    last: Counter[int] = Counter()
    for partition, event in capture(golden, variant, script):
        assert event.commit_ts >= last[partition]
        assert isinstance(event, Boundary) or not event.by_time
        last[partition] = event.commit_ts
    assert last


@pytest.mark.parametrize("script", MOST_SCRIPTS)
@pytest.mark.parametrize("variant", ["debezium", "debezium-ext", "debezium-noschema-ext"])
def test_debeziums_keys_are_the_handle_keys(golden: Path, variant: str, script: str) -> None:
    """The columns of the message's key are those that Open Protocol marks as the handle key."""
    keys = [
        {(event.schema, event.table, event.commit_ts): set((event.key or "").split("\0")) for event in rows(found)}
        for found in (capture(golden, "open", script), capture(golden, variant, script))
    ]
    assert keys[0] == keys[1]


@pytest.mark.parametrize("script", MOST_SCRIPTS)
@pytest.mark.parametrize("variant", ["canal-rowkey", "canal-compat", "canal-updated-only"])
def test_variants_of_canal_json_say_the_same(golden: Path, variant: str, script: str) -> None:
    """Row keys, types with parameters and partial old rows change nothing."""
    numbers, events = (list(part) for part in zip(*capture(golden, variant, script), strict=True))
    same_numbers, same = (list(part) for part in zip(*capture(golden, "canal-ext", script), strict=True))
    assert (numbers, untyped(events)) == (same_numbers, untyped(same))


@pytest.mark.parametrize("script", MOST_SCRIPTS)
def test_lz4_says_the_same(golden: Path, script: str) -> None:
    """lz4 frames change nothing but the batches."""
    plain, packed = (
        Counter(event._replace(index=0) for event in rows(capture(golden, variant, script)))
        for variant in ("open", "open-lz4")
    )
    assert plain == packed


@pytest.mark.parametrize("script", MOST_SCRIPTS)
def test_partial_old_rows_of_open_protocol_are_completed(golden: Path, script: str) -> None:
    """A partial `p` is completed; one that lost names (TiCDC's defect) is right or not there, never wrong."""
    whole, partial = (
        Counter(event._replace(index=0) for event in rows(capture(golden, variant, script)))
        for variant in ("open", "open-updated-only")
    )
    lost = Counter({event: n for event, n in partial.items() if event.kind is Kind.UPDATE and not event.before})
    assert lost == Counter(event._replace(before=None) for event in (whole - partial).elements())
    assert partial - whole == lost
    assert all(event.key for event in lost)
    assert lost.total() <= (20 if script.startswith("all_types") else 0)


@pytest.mark.parametrize("script", ["all_types", "all_types_tz8"])
@pytest.mark.parametrize("variant", ["canal-ext", "open"])
def test_timestamps_are_those_of_debezium(golden: Path, variant: str, script: str) -> None:
    """TIMESTAMP written in the changefeed's zone becomes what Debezium, UTC by definition, says of it."""
    expected = {}
    for _, _, value in messages(golden / "debezium" / f"{script}.jsonl"):
        payload = json.loads(value or b"")["payload"]
        if payload.get("op") == "c" and payload["source"]["table"] == "times":
            expected[payload["after"]["id"]] = [_as_literal(payload["after"][name]) for name in ("ts", "ts3", "ts6")]
    seen = {}
    for event in rows(capture(golden, variant, script)):
        if event.table == "times" and event.kind is Kind.INSERT:
            row = row_of(event, event.after)
            seen[int(row["id"])] = [_zero_as_debezium(row[name]) for name in ("ts", "ts3", "ts6")]
    assert len(seen) == 6
    assert seen == expected


def _as_literal(zoned: str | None) -> str:
    return "'" + zoned.replace("T", " ").replace("Z", "") + "'" if zoned else "NULL"


def _zero_as_debezium(literal: str) -> str:
    return "'1970-01-01 00:00:00'" if literal.startswith("'0000-00-00") else literal


@pytest.mark.parametrize(("variant", "bad"), [("canal-handle-key-only", 7), ("open-handle-key-only", 8)])
def test_rows_cut_to_their_key_are_bad(golden: Path, variant: str, bad: int) -> None:
    """large-message-handle leaves rows that are not whole; each is said to be so."""
    reasons = [e.reason for _, e in capture(golden, variant, "all_types") if e.kind is Kind.BAD]
    assert len(reasons) == bad
    assert all("whole row" in reason for reason in reasons)


@pytest.mark.parametrize("variant", ["canal-delete-handle", "open-delete-handle"])
def test_deletes_with_the_key_only(golden: Path, variant: str) -> None:
    """delete-only-output-handle-key-columns: the image has the key's columns alone, or none, which is bad."""
    events = capture(golden, variant, "all_types")
    assert not [event for _, event in events if event.kind is Kind.BAD]
    assert all(names_of(event) == event.key for event in rows(events) if event.kind is Kind.DELETE)
    if variant.startswith("canal"):
        unusable = [event.reason for _, event in capture(golden, variant, "keys") if event.kind is Kind.BAD]
        assert len(unusable) == 4
        assert all("cannot be applied" in text for text in unusable)


@pytest.mark.parametrize("script", SCRIPTS)
def test_without_the_extension(golden: Path, script: str) -> None:
    """Canal-JSON without the TiDB extension says the same but boundaries, with the event time for the commit_ts."""
    extended = [
        (partition, event._replace(commit_ts=ms_tso(tso_ms(event.commit_ts)), by_time=True))
        for partition, event in capture(golden, "canal-ext", script)
        if event.kind is not Kind.BOUNDARY
    ]
    assert capture(golden, "canal", script) == extended
