"""`bridge ddl`: translate, list, and what it says of a schema change that waits."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.ddl.parser import Classified, classify
from bridge.ddl.policy import ddl_rules
from bridge.errors import HeldError
from bridge.events import DdlStatement, Kind
from tests.support.command import Ended, bridge
from tests.support.pipelines import decoded, run_all
from tests.support.upstreams import boundary, in_one_partition, schema_change


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """Runs the command with a text on stdin."""

    def run(text: str, *arguments: str) -> Ended:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        return bridge(*arguments)

    return run


def test_translate_for_a_flavour(typed: Callable[..., Ended]) -> None:
    """Statements on stdin are shown as the flavour would be sent them, with each change and its reason."""
    said = typed(
        "ALTER TABLE t ALTER INDEX `i;` INVISIBLE; -- and\nDROP TABLE t;", "ddl", "translate", "--schema", "app",
        "--flavour", "mariadb-10.11",
    )  # fmt: skip
    assert said.code == 0, said.err
    assert said.out.splitlines() == [
        "allow   alter table index visibility  ALTER TABLE t ALTER INDEX `i;` INVISIBLE",
        "    run as: ALTER TABLE t ALTER INDEX `i;` IGNORED",
        "    INVISIBLE  ->  IGNORED  (the target calls an invisible index IGNORED)",
        r"allow   drop table  -- and\nDROP TABLE t",
    ]


def test_translate_says_what_the_settings_do(typed: Callable[..., Ended]) -> None:
    """What would be held or refused is shown with the reason; as JSON too."""
    said = typed(
        "DROP TABLE app.t; GRANT ALL ON *.* TO x; RECOVER TABLE app.t; CREATE TABLE app.u (a INT)", "ddl", "translate",
        "--flavour", "mysql-8.0", "--set", "ddl.hold=drop table", "--json",
    )  # fmt: skip
    found = [(each["verdict"], each["reason"], each["text"]) for each in json.loads(said.out)]
    assert [verdict for verdict, _, _ in found] == ["hold", "allow", "hold", "allow"]
    assert "drop table" in found[0][1]
    assert found[1][1:] == ("it changes no table", None)
    assert "bring a dropped table back" in found[2][1]
    assert found[3][2] == "CREATE TABLE app.u (a INT)"


def test_translate_of_a_capture(golden: Path) -> None:
    """The schema changes of a capture file, copies left out."""
    path = str(golden / "open" / "ddl.jsonl")
    said = bridge("ddl", "translate", "--input", path, "--flavour", "mysql-5.7", "--timezone", "UTC", "--json")
    found = json.loads(said.out)
    assert len(found) == 118
    assert {each["verdict"] for each in found} == {"allow", "hold"}


def test_a_long_list_ends_with_the_last_ones(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """People see the last ones, and how many came before; JSON has all, unless a number is given."""
    texts = [f"CREATE TABLE m.t{number} (id INT PRIMARY KEY)" for number in range(5)]
    events = [schema_change(10 + number, text) for number, text in enumerate(texts)]
    run_all(target, in_one_partition([schema_change(1, "CREATE DATABASE m"), *events, boundary(20)]))
    monkeypatch.setattr("bridge.cli.groups._LISTED", 2)
    shown = bridge("ddl", "list", "--target", target)
    assert [text for text in texts if text in shown.out] == texts[-2:]
    assert "4 earlier schema changes not shown" in shown.err
    assert len(json.loads(bridge("ddl", "list", "--target", target, "--json").out)) == 6
    assert len(json.loads(bridge("ddl", "list", "--target", target, "--json", "--limit", "3").out)) == 3
    assert bridge("ddl", "list", "--target", target, "--limit", "0").out.count("CREATE TABLE") == 5


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        ("DROP TABLE t", ["--flavour", "oracle-19"], "is not a flavour"),
        ("DROP TABLE t", [], "no target is given"),
        ("DROP TABLE 't", ["--flavour", "mysql-8.0"], "a string has no end"),
        (" ; ", ["--flavour", "mysql-8.0"], "no schema change to translate"),
    ],
)
def test_translate_that_cannot(typed: Callable[..., Ended], text: str, arguments: list[str], words: str) -> None:
    """What it cannot do is a usage error of one line."""
    said = typed(text, "ddl", "translate", *arguments)
    assert said.code == 2
    assert words in said.last_line


def test_list_and_a_live_target(target: str, typed: Callable[..., Ended]) -> None:
    """What ran and what waits, with what was changed of its words; translate knows what the target was never given."""
    changes = ["CREATE DATABASE m", "CREATE TABLE t (a INT, KEY e ((a + 1)))", "DROP TABLE m.t"]
    events = in_one_partition([*(schema_change(10 + i, text) for i, text in enumerate(changes)), boundary(99)])
    with pytest.raises(HeldError):
        run_all(target, events, ddl=ddl_rules(hold=["drop table"]))
    said = bridge("ddl", "list", "--target", target).out
    assert "CREATE DATABASE m CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" in said
    assert "KEY e ((a + 1))  ->  nothing  (the target has no index on an expression)" in said
    [held] = json.loads(bridge("ddl", "list", "--open", "--json", "--target", target).out)
    assert (held["state"], held["statement"]) == ("held", "DROP TABLE m.t")
    said = typed("ALTER TABLE m.t DROP INDEX e", "ddl", "translate", "--target", target).out
    assert "run as: nothing" in said
    assert bridge("ddl", "approve", "999", "--target", target).code == 2
    assert bridge("ddl", "approve", held["id"], "--target", target).code == 0
    run_all(target, events, ddl=ddl_rules(hold=["drop table"]))
    assert json.loads(bridge("ddl", "list", "--open", "--json", "--target", target).out) == []


BY_TIME = [
    *(("canal", "canal-json"), ("canal-compat", "canal-json"), ("debezium", "debezium")),
    ("debezium-noschema", "debezium"),
]


@pytest.mark.parametrize(("variant", "protocol"), BY_TIME)
def test_formats_without_boundaries_are_understood_too(golden: Path, variant: str, protocol: str) -> None:
    """Schema changes with an event time only, and unqualified names, lie in the database that the message names."""
    events = decoded(golden / variant / "ddl.jsonl", protocol).to_pylist()
    changes = [event for event in events if event["kind"] == Kind.SCHEMA_CHANGE]
    assert len(changes) > 100
    for change in changes:
        known = classify(change["text"], change["schema"])
        assert isinstance(known, Classified), change["text"]
        assert all(table.schema for table in known.tables)


def test_native_names() -> None:
    """CKafka, official Canal and the native Debezium send the text as it was typed, in the database of the message."""
    for text, tables in [
        ("alter table orders add column note varchar(20)", ["shop.orders"]),
        ("RENAME TABLE a TO b, `c` TO other.d", ["shop.a", "shop.b", "shop.c", "other.d"]),
        ("/* from a tool */ CREATE TABLE IF NOT EXISTS `t` (id int) /*!50100 PARTITION BY HASH (id) */", ["shop.t"]),
        ("DROP TABLE `t` /* generated by server */", ["shop.t"]),
        ("truncate orders", ["shop.orders"]),
    ]:
        event = DdlStatement(1, 0, "shop", "", text, by_time=True)
        known = classify(event.statement, event.schema)
        assert isinstance(known, Classified)
        assert [str(table) for table in known.tables] == tables
