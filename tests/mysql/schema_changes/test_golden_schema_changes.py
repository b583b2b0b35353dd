"""Genuine captures with every schema change that TiCDC sends, onto two versions of MariaDB and of MySQL."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bridge.commands.ddl import release
from bridge.ddl.rule import Capabilities, Feature
from bridge.errors import ApplyError, HeldError
from bridge.model import quote_name
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.probe import probe
from bridge.mysql.state.ddl_journal import Journal, JournalState
from bridge.mysql.state.progress import ProgressTable
from tests.support.fixtures import SERVERS
from tests.support.golden import PROTOCOLS, differences, plain_type
from tests.support.least_account import least_account
from tests.support.pipelines import admin, decoded, run_all

VARIANTS = {
    "canal-ext": "canal-json",
    "open": "open-protocol",
    "debezium-ext": "debezium",
    "debezium-noschema-ext": "debezium",
}

BY_HAND = {
    "RECOVER TABLE `rec`": [
        "CREATE TABLE app.rec (id INT PRIMARY KEY) COLLATE utf8mb4_bin", "INSERT INTO app.rec VALUES (1), (2)",
    ],
    "FLASHBACK TABLE `rec` TO `rec_back`": [
        "CREATE TABLE app.rec_back (id INT PRIMARY KEY) COLLATE utf8mb4_bin",
        "INSERT INTO app.rec_back VALUES (1), (2), (3)",
    ],
    "ALTER TABLE `tt` ADD COLUMN `j` JSON, ADD COLUMN `ts` TIMESTAMP NULL DEFAULT NULL,"
    " ADD COLUMN `vb` VARBINARY(20) DEFAULT x'00ff'": [
        "ALTER TABLE app.tt ADD j JSON, ADD ts TIMESTAMP NULL DEFAULT NULL, ADD vb VARBINARY(20) DEFAULT x'00efbfbd'",
    ],
}  # fmt: skip
"""Only TiDB has what was dropped: the statement is held, the operator copies the table and skips it.  Debezium leaves
both out: the first row of the table that is not there stops the bridge, and the operator does the same.  TiDB keeps a
default as text, and has U+FFFD for the byte ff in the rows from before: the operator makes the columns by hand."""

NOT_SENT = {
    "canal-json": {},
    "open-protocol": {},
    "debezium": {"fc": "CONSTRAINT `fkx` FOREIGN KEY (`pid`) REFERENCES `fp` (`id`)"},
}
"""Debezium leaves DROP FOREIGN KEY out: the target keeps it, and does not check it against the bridge's rows."""

MISSING = {"app.gtt"}
"""A global temporary table: no other server has one, and none of its rows is ever sent."""

OTHERWISE = ["app.gtt is missing"]

EXPRESSION_KEY, EXPRESSION_DEFAULT = "`expr_idx`", "uuid"
"""What changes no row, and not every server has: an index on an expression (not MariaDB, nor MySQL 5.7), an expression
as a default (not 5.7). An index that is invisible upstream is an ordinary one in 5.7."""


DATABASES = ("app", "app2", "gone", "my-db", "ks", "types", "bank")

CASES = [
    (variant, server)
    if variant == "canal-ext" or (variant, server) == ("debezium-ext", "target")
    else pytest.param(variant, server, marks=pytest.mark.soak)
    for variant in VARIANTS
    for server in SERVERS
]
"""What a server makes of a statement is of no protocol, and variants say the same
(tests/protocols/test_golden_messages.py), but for what Debezium leaves out."""


@pytest.fixture
def url(server: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The server of the case, by an account with exactly the grants that the manual lists."""
    whole = str(request.getfixturevalue(server))
    with admin(whole) as session, least_account(whole, DATABASES) as url:
        before = session.value("SELECT @@GLOBAL.explicit_defaults_for_timestamp")
        session.execute("SET GLOBAL explicit_defaults_for_timestamp = ON")  # 5.7 lets nobody else
        yield url
        session.execute(f"SET GLOBAL explicit_defaults_for_timestamp = {before}")


@cache
def events(golden: Path, variant: str, script: str) -> pa.Table:
    """The decoded captures."""
    return decoded(golden / variant / f"{script}.jsonl", PROTOCOLS[variant]).filter(pc.field("table") != "vecs")


def replay(url: str, events: pa.Table) -> list[str]:
    """Replays, and does as an operator what the bridge asks for; the statements that were done by hand."""
    by_hand: list[str] = []
    while True:
        try:
            run_all(url, events)
        except HeldError as held:
            named = re.search(r"(\d+-[0-9a-f]+)$", held.fix)
            assert named
            by_hand.append(release(Target(url), ProgressTable("bridge"), named[1], JournalState.SKIPPED).statement)
        except ApplyError as stopped:
            by_hand.append(what_made(stopped))
        else:
            return by_hand
        with admin(url) as session:
            for statement in BY_HAND[by_hand[-1]]:
                session.execute(statement)


def what_made(stopped: ApplyError) -> str:
    """The statement that was not sent, and would have made the table which is missing."""
    missing = re.search(r"the target has no table app\.(\w+)", stopped.what)
    assert missing, stopped
    return next(text for text in BY_HAND if text.endswith(f"`{missing[1]}`"))


@pytest.mark.parametrize(("variant", "server"), CASES)
def test_keys_end_as_upstream(url: str, golden: Path, variant: str) -> None:
    """Tables of every key shape, with keys that change, are the upstream's at its end."""
    assert replay(url, events(golden, variant, "keys")) == []
    assert differences(url, golden, "keys", variant) == []


@pytest.mark.parametrize(
    ("variant", "script", "server"),
    [
        *(("canal-ext", "all_types", server) for server in ("mysql_target", "old_mysql_target")),
        *((variant, "all_types", "target") for variant in ("canal-ext", "open", "canal-delete-handle")),
        ("canal-ext", "keys_tabledisp", "target"),
        *((variant, "bank", "target") for variant in ("canal-ext", "debezium-ext")),
    ],
)
def test_rows_end_as_upstream(url: str, golden: Path, variant: str, script: str) -> None:
    """Every type at its limits is on the target what it is upstream, also where deletes hold the key alone; and so is a
    bank."""
    assert replay(url, events(golden, variant, script)) == []
    assert differences(url, golden, script, variant) == []


@pytest.mark.parametrize(("variant", "server"), CASES)
def test_schema_changes_end_as_upstream(url: str, server: str, golden: Path, variant: str) -> None:
    """After 118 schema changes with rows between, columns, types, keys, indexes by name, collations, partitions and
    rows are the upstream's, but for what the server has not; what was rewritten is on record."""
    assert replay(url, events(golden, variant, "ddl")) == list(BY_HAND)
    assert differences(url, golden, "ddl", variant) == OTHERWISE
    expected = json.loads((golden / "expected" / "ddl.json").read_text(encoding="utf-8"))
    with admin(url) as session:
        target = probe(session)
        for name, table in expected["tables"].items():
            if name not in MISSING:
                found, wanted = facts(show_create(session, name)), as_it_can_be(facts(table["create"]), target)
                wanted["constraints"] |= {
                    kept for table, kept in NOT_SENT[VARIANTS[variant]].items() if name == f"app.{table}"
                }
                assert found == wanted, name
        assert views(session) == set(expected["views"])
        if (variant, server) == ("canal-ext", "target"):
            rewritten_is_on_record(session)


def rewritten_is_on_record(session: Session) -> None:
    """Of each statement the journal says what ran, and of each change of its words what was before, after, and why."""
    entries = Journal("bridge", "_bridge").entries(session)
    assert len(entries) == 118
    assert {entry.state for entry in entries} == {JournalState.DONE, JournalState.SKIPPED}
    for entry in entries:
        rewritten = entry.run_text != entry.statement and entry.state is JournalState.DONE
        assert rewritten == bool(entry.rewrites), entry
    by_statement = {entry.statement: entry for entry in entries}
    hidden = by_statement["ALTER TABLE `t1` ALTER INDEX `idx_val2` INVISIBLE"]
    assert hidden.run_text == "ALTER TABLE `t1` ALTER INDEX `idx_val2` IGNORED"
    assert hidden.rewrites == (("INVISIBLE", "IGNORED", "the target calls an invisible index IGNORED"),)
    assert by_statement["ALTER TABLE `t1` ADD INDEX `expr_idx`((LOWER(`val`)))"].run_text == ""


def as_it_can_be(wanted: dict[str, Any], target: Capabilities) -> dict[str, Any]:
    """The upstream's table without what the target has not."""
    has_hidden = target.has(Feature.INVISIBLE_INDEX) or target.has(Feature.IGNORED_INDEX)
    left_out = [] if target.has(Feature.EXPRESSION_INDEX) else [EXPRESSION_KEY]
    keys = {(key, is_hidden and has_hidden) for key, is_hidden in wanted["keys"] if key.split()[1] not in left_out}
    columns = wanted["columns"]
    if not target.has(Feature.EXPRESSION_DEFAULT):
        columns = {
            name: told._replace(default=told.default.replace(EXPRESSION_DEFAULT, "")) for name, told in columns.items()
        }
    return wanted | {"keys": keys, "columns": columns}


def show_create(session: Session, name: str) -> str:
    schema, _, table = name.partition(".")
    return str(session.raw_rows(f"SHOW CREATE TABLE {quote_name(schema, table)}")[0][1].decode(errors="replace"))


def facts(create: str) -> dict[str, Any]:
    """What two servers' SHOW CREATE TABLE must agree on: columns with their collation and default, indexes with their
    names, partitions with their bounds."""
    collation = re.search(r"COLLATE=(\w+)", create)
    named = collation[1] if collation else "utf8mb4_general_ci"  # which MySQL 5.7 does not print
    columns, keys, constraints = {}, set(), set()
    for line in create.splitlines():
        if column := re.match(r"  `((?:[^`]|``)+)` (\S+?)( .*?)?,?$", line):
            columns[column[1]] = column_facts(column[2], column[3] or "", named)
        elif key := re.match(r"  ((?:PRIMARY |UNIQUE )?KEY .*?)(?: /\*.*| IGNORED)?,?$", line):
            keys.add((key[1], "INVISIBLE" in line or "IGNORED" in line))
        elif line.startswith("  CONSTRAINT"):
            constraints.add(line.strip(" ,"))
    comment = re.search(r"COMMENT='(.*)'", create)
    return {
        **{"columns": columns, "keys": keys, "constraints": constraints, "partitions": partitions(create)},
        **{"collation": named, "comment": comment and comment[1]},
    }


def partitions(create: str) -> tuple[str, set[tuple[str, str]]]:
    """How a table is divided, and its partitions with their bounds; values of a list have no order, names no quotes."""
    _, _, clause = create.replace("`", "").partition("PARTITION BY ")
    by = re.match(r"[^\n]*(?:\n *PARTITIONS \d+)?", clause)
    assert by
    bounds = re.findall(
        r"PARTITION (\w+) VALUES (LESS THAN|IN) (\(.*?\)|MAXVALUE)(?: ENGINE|[,)]*$)", clause, re.MULTILINE
    )
    return "".join(by[0].split()), {(name, kind + ",".join(sorted(plain(bound)))) for name, kind, bound in bounds}


def plain(bound: str) -> list[str]:
    return bound.strip("()").split(",")


class ColumnFacts(NamedTuple):
    """collation: where it is not the table's."""

    type: str
    is_not_null: bool
    collation: str | None
    default: str
    is_generated: bool


def column_facts(kind: str, rest: str, table_collation: str) -> ColumnFacts:
    named = re.search(r"COLLATE (\w+)", rest)
    collation = None if named is None or named[1] == table_collation else named[1]
    default = re.search(r"DEFAULT ('(?:[^']|'')*'|\S+)", rest)
    return ColumnFacts(
        "json" if kind == "longtext" and "json_valid" in rest else kind if kind == "json" else plain_type(kind),
        "NOT NULL" in rest,
        None if kind in {"json", "longtext"} else collation,
        plain_default(default and default[1]),
        "GENERATED ALWAYS" in rest,
    )


def plain_default(default: str | None) -> str:
    """MariaDB prints numbers without quotes, functions in lower case, and NULL where it is the default anyway."""
    return "" if default in {None, "NULL"} else re.sub(r"[^\w.-]", "", str(default)).lower()


def views(session: Session) -> set[str]:
    rows: Iterator[tuple[str, str]] = iter(
        session.rows("SELECT table_schema, table_name FROM information_schema.views WHERE table_schema LIKE 'app%'")
    )
    return {f"{schema}.{name}" for schema, name in rows}
