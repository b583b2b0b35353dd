"""A genuine capture with damaged messages in it: each message ends applied or quarantined, with its position."""

from __future__ import annotations

import base64
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.captures import Line, canal, read_lines, with_value, write_lines
from tests.support.command import bridge
from tests.support.golden import capture
from tests.support.pipelines import sql

pytestmark = pytest.mark.usefixtures("spark")

TABLES = ("acc_a", "acc_b", "acc_c")
Place = tuple[int, int]


def broken(line: Line, how: int, chance: random.Random) -> Line:
    """A message that cannot be decoded."""
    value = base64.b64decode(line["value"])
    if how == 0:
        return with_value(line, value[: chance.randrange(len(value) - 1)])
    if how == 1:
        at = chance.randrange(len(value))
        return with_value(line, value[:at] + b"\xff\x00" + value[at:])
    if how == 2:
        return with_value(line, bytes(chance.randrange(256) for _ in range(chance.randrange(300))))
    message = canal(line)
    message["data"][0]["balance"] = chance.choice(["much", "1.5", "1" * 21, ["1"], {}])
    return with_value(line, json.dumps(message).encode())


def refused(line: Line) -> Line:
    """A message that decodes to a row which the target cannot hold."""
    message = canal(line)
    message["data"][0]["note"] = "longer than the forty characters of the column"
    return with_value(line, json.dumps(message).encode())


def place(line: Line) -> Place:
    return line["partition"], line["offset"]


def expected(lines: list[Line], without: set[Place]) -> dict[str, dict[int, tuple[int, str]]]:
    """Balance and note of each account when these messages are left out."""
    tables: dict[str, dict[int, tuple[int, str]]] = {table: {} for table in TABLES}
    messages = [(canal(line)["_tidb"], canal(line)) for line in lines if place(line) not in without]
    changes = [(tidb["commitTs"], message) for tidb, message in messages if message["type"] in {"INSERT", "UPDATE"}]
    for _, message in sorted(changes, key=lambda change: change[0]):
        row = message["data"][0]
        tables[message["table"]][int(row["id"])] = int(row["balance"]), row["note"]
    return tables


def found(url: str) -> dict[str, dict[int, tuple[int, str]]]:
    rows: dict[str, list[tuple[Any, ...]]] = {t: sql(url, f"SELECT id, balance, note FROM bank.{t}") for t in TABLES}
    return {table: {id_: (balance, note) for id_, balance, note in mine} for table, mine in rows.items()}


def beginning(lines: list[Line]) -> list[Line]:
    """What a quarter of the boundaries vouch for."""
    told = [canal(line)["_tidb"] for line in lines]
    boundaries = sorted({one["watermarkTs"] for one in told if "watermarkTs" in one})
    end = boundaries[len(boundaries) // 4]
    return [
        line
        for line, one in zip(lines, told, strict=True)
        if one.get("commitTs", 0) < end and one.get("watermarkTs", 0) <= end
    ]


def test_every_message_is_accounted_for(target: str, golden: Path, tmp_path: Path) -> None:
    """Damaged messages and refused rows are in the quarantine, each once, with their bytes or images; everything else
    is in the target; exit 4, the counts agree, and a second run changes nothing."""
    lines = beginning(read_lines(capture(golden, "canal-ext", "bank")))
    chance = random.Random(7)
    changes = [i for i, line in enumerate(lines) if canal(line)["type"] in {"INSERT", "UPDATE"}]
    chosen = chance.sample(changes, 120)
    damaged = list(lines)
    for n, i in enumerate(chosen[:80]):
        damaged[i] = broken(lines[i], n % 4, chance)
    for i in chosen[80:]:
        damaged[i] = refused(lines[i])
    path = write_lines(tmp_path / "bank.jsonl", damaged)
    flags = ("replay", "--protocol", "canal-json", "--input", str(path), "--target", target, "--json",
             "--on-bad-message", "quarantine", "--set", "stream.rows_per_transaction=1")  # fmt: skip
    ended = bridge(*flags)
    assert ended.code == 4, ended.err
    outcome = json.loads(ended.out)
    assert (outcome["quarantined"], outcome["rows"]) == (120, len(changes) - 120)
    held = sql(target, "SELECT `partition`, `offset`, event, code, message_value FROM _bridge.quarantine")
    by_place = {(partition, offset): entry for partition, offset, *entry in held}
    assert len(held) == len(by_place) == 120
    assert set(by_place) == {place(lines[i]) for i in chosen}
    for n, i in enumerate(chosen):
        index, code, value = by_place[place(lines[i])]
        if n < 80:
            assert (index, value) == (-1, base64.b64decode(damaged[i]["value"]))
            assert code in {"malformed", "bad-value", "unknown-type", "no-commit-ts"}
        else:
            assert (index, code, value) == (0, "target-refused", None)
    assert found(target) == expected(lines, {place(lines[i]) for i in chosen})
    status = json.loads(bridge("status", "--target", target, "--json").out)
    assert status["quarantined"] == 120
    again = bridge(*flags)
    assert (again.code, json.loads(again.out)["quarantined"]) == (0, 0)
    assert len(sql(target, "SELECT id FROM _bridge.quarantine")) == 120


def test_a_transaction_of_which_a_row_cannot_be_decoded(target: str, real_senders: Path, tmp_path: Path) -> None:
    """It would never be whole: the bridge stops before it with `quarantine` too, and says what to name.  The operator
    names the message; then what its transaction lacks is told, and with its id the bridge goes on without the row."""
    lines = read_lines(real_senders / "debezium-restarts" / "bank.jsonl")[:600]
    number = next(n for n, line in enumerate(lines) if n > 500 and line["topic"].endswith("acc_a"))
    lines[number] = with_value(lines[number], base64.b64decode(lines[number]["value"])[:-9])
    path = write_lines(tmp_path / "bank.jsonl", lines)
    arguments = ["replay", "--protocol", "debezium", "--input", str(path), "--target", target]
    arguments += ["--set", "ddl.source=mysql-8", "--timezone", "UTC", "--on-bad-message", "quarantine"]
    where = f"{lines[number]['topic']}/0/{lines[number]['offset']}"
    ended = bridge(*arguments)
    assert ended.code == 3, ended.err
    assert where in ended.last_line
    assert "source.quarantine, and its transaction in source.incomplete_transactions" in ended.last_line
    ended = bridge(*arguments, "--set", f"source.quarantine={where}")
    assert ended.code == 0, ended.err
    [id_] = re.findall(r"transaction_waits .*the transaction (\S+) lacks rows: bank.acc_a: 0 of 1", ended.err)
    arguments += ["--set", f"source.quarantine={where}", "--set", f"source.incomplete_transactions={id_}"]
    ended = bridge(*arguments)
    assert (ended.code, "applied 0 row changes" in ended.out) == (4, False), ended.err
    assert bridge(*arguments).code == 0  # it is reported once
    assert sql(target, "SELECT topic, `partition`, `offset` FROM _bridge.quarantine") == [
        (lines[number]["topic"], 0, lines[number]["offset"])
    ]
