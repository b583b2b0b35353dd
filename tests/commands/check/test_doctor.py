"""`bridge check` of the upstream and of what senders tell; no Spark is needed to look."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest

from tests.support.captures import write_lines
from tests.support.command import bridge
from tests.support.pipelines import sql
from tests.support.wire import canal


@pytest.fixture(autouse=True)
def _table(target: str) -> None:
    sql(target, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")


def findings(target: str, *flags: str) -> tuple[int, list[str]]:
    ended = bridge("check", "--target", target, *flags)
    return ended.code, ended.out.splitlines()


def test_the_upstream_of_whole_rows(target: str, tmp_path: Path) -> None:
    """One that is not TiDB will do for verify; what a topic without boundaries cannot promise is said."""
    message = json.loads(canal("INSERT", {"id": ("int", "1")}, es=1_700_000_000_000))
    del message["_tidb"]
    line = {"partition": 0, "offset": 0, "key": None, "value": base64.b64encode(json.dumps(message).encode()).decode()}
    path = str(write_lines(tmp_path / "w.jsonl", [line]))
    code, lines = findings(target, "--input", path, "--upstream", target)
    assert (code, [line for line in lines if line.startswith("FAIL")]) == (0, [])
    assert any(line.startswith("OK") and "the upstream answers: 11" in line for line in lines)
    for words in ("in its order, every change exactly once", "in parts", "swap their keys within a second"):
        assert any(words in line for line in lines)


@pytest.mark.parametrize(
    ("without", "old", "level", "said"),
    [
        ("", b"", "OK", ".transaction tells the upstream's transactions"),
        ("", b'"transaction":{', "FAIL", "provide.transaction.metadata was off"),
        (".transaction", b"", "WARN", "transaction of several partitions in parts"),
    ],
    ids=["with the topic of transactions", "switched on too late", "without it"],
)
def test_what_debezium_tells_of_transactions(
    target: str, real_senders: Path, tmp_path: Path, without: str, old: bytes, level: str, said: str
) -> None:
    """Genuine messages: whether they will be applied as whole transactions, and what is in the way."""
    lines = (real_senders / "debezium-restarts/bank.jsonl").read_text(encoding="utf-8").splitlines()
    found = [line for line in map(json.loads, lines[:900]) if not without or not line["topic"].endswith(without)]
    for line in found if old else ():
        value = base64.b64decode(line["value"] or "")
        line["value"] = base64.b64encode(re.sub(old + b"[^}]*}", b'"transaction":null', value)).decode()
    path = str(write_lines(tmp_path / "t.jsonl", found))
    _, told = findings(target, "--protocol", "debezium", "--input", path)
    assert any(line.startswith(level) and said in line for line in told), told


CASES = Path(__file__).parents[2] / "cases"


@pytest.mark.parametrize(("name", "count"), [("debezium_3.3.0_defaults", 3), ("f9_debezium_361_partitioned", 2)])
def test_what_the_sender_has_lost_is_told(target: str, name: str, count: int) -> None:
    """Genuine messages of Debezium with its defaults: each loss with what to set, and nothing of TiCDC's settings."""
    ended = bridge("check", "--target", target, "--input", str(CASES / f"{name}.jsonl"), "--filter", "shop.*", "--json")
    lines = [one for one in json.loads(ended.out) if one["check"] == "sender"]
    assert [one["level"] for one in lines] == ["warn"] * count
    fixes = " ".join(one["fix"] for one in lines)
    assert "skipped.operations=none" in fixes
    assert "replace.null.with.default=false" in fixes
    assert ("write NULL in such statements" in fixes) == (count == 3)
    assert "TiCDC" not in "".join(one["what"] + one["fix"] for one in lines)
