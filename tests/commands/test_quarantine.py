"""`bridge quarantine` on a real quarantine: filled by a pipeline, worked through by the command."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.commands.quarantine import Quarantine
from bridge.config import Settings
from bridge.filters.routes import Routes
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.protocols.values.row_image import with_forms
from tests.pipeline.test_bad_messages import capture
from tests.pipeline.test_truncated_rows import History, cut
from tests.support.captures import row, watermark
from tests.support.command import Ended, bridge
from tests.support.pipelines import ran_with, run_all, session_after
from tests.support.upstreams import Literal, boundary, in_one_partition, literal, row_change, schema_change
from tests.support.waiting import at_work, wait_for

AT = ("timestamp", "2024-01-01 08:00:00")
OTHER = ("timestamp", "2024-01-01 09:00:00")


session = session_after("CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY, at TIMESTAMP NULL)")


def fill(target: str, folder: Path, *messages: dict[str, Any] | bytes) -> None:
    """Runs a pipeline without a time zone over these messages and a boundary."""
    run_all(target, capture(folder, [*messages, watermark(90)], timezone=None), quarantine=True)


def quarantine(target: str, *arguments: str) -> Ended:
    return bridge("quarantine", arguments[0], "--target", target, *arguments[1:])


def retried(target: str, *arguments: str) -> list[tuple[bool, str]]:
    """What a retry in the zone of the messages came to."""
    ended = quarantine(target, "retry", *arguments, "--timezone", "+08:00", "--json")
    assert ended.code == 0, ended.err
    return [(outcome["done"], outcome["why"]) for outcome in json.loads(ended.out)]


def update(ts: int, before: dict[str, tuple[str, str | None]], after: dict[str, tuple[str, str | None]]) -> Any:
    return {
        **row(ts, 1, **after), "type": "UPDATE",  # type: ignore[arg-type]
        "old": [{"id": "1", **{name: value for name, (_, value) in before.items()}}],
    }  # fmt: skip


def rows(session: Session) -> list[tuple[Any, ...]]:
    return session.rows("SELECT id, CAST(at AS CHAR) FROM m.t ORDER BY id")


def states(session: Session) -> list[str]:
    return [state for (state,) in session.rows("SELECT state FROM _bridge.quarantine ORDER BY id")]


@pytest.mark.usefixtures("session")
def test_list_and_show(target: str, tmp_path: Path) -> None:
    """Every entry with position, code and reason; one with its bytes and what it decodes to now."""
    fill(target, tmp_path, b"{[broken]", row(10, 1, at=AT))
    listed = quarantine(target, "list")
    assert listed.code == 0
    assert all(words in listed.out for words in ("cdc/0/0", "malformed", "cdc/0/1", "no-timezone", "held"))
    documents = json.loads(quarantine(target, "list", "--json").out)
    assert [(d["id"], d["offset"], d["code"], d["index"]) for d in documents] == [
        (1, 0, "malformed", -1), (2, 1, "no-timezone", -1)
    ]  # fmt: skip
    shown = quarantine(target, "show", "1")
    assert "{[broken] (9 bytes)" in shown.out
    assert "commit ts   unknown\n" in shown.out
    assert "not JSON" in shown.out
    assert '"kind":"bad"' in quarantine(target, "show", "2").out
    [event] = json.loads(quarantine(target, "show", "2", "--timezone", "+08:00", "--json").out)["decoded"]
    assert (event["kind"], event["after"]) == ("insert", {"id": "1", "at": "'2024-01-01 00:00:00'"})


def test_retry_with_the_setting_that_was_missing(target: str, session: Session, tmp_path: Path) -> None:
    """Entries are applied in their order, once, and count no more as held."""
    fill(target, tmp_path, row(10, 1, at=AT), update(11, {"at": AT}, {"at": OTHER}), row(12, 2, at=AT))
    assert json.loads(bridge("status", "--target", target, "--json").out)["quarantined"] == 3
    assert retried(target, "--all") == [(True, "applied: 1 row change")] * 3
    assert rows(session) == [(1, "2024-01-01 01:00:00"), (2, "2024-01-01 00:00:00")]
    assert states(session) == ["applied"] * 3
    assert json.loads(bridge("status", "--target", target, "--json").out)["quarantined"] == 0
    assert retried(target, "1") == [(False, "it is applied already")]
    assert retried(target, "--all") == []
    assert "applied: 1 row change" in quarantine(target, "list", "--settled", "--json").out


@pytest.mark.parametrize(
    ("form", "setting", "stored"),
    [
        ("ckafka:UTC,", "ckafka.binary=base64", b"i\xa6\x9a"),
        ("ckafka:UTC,", "ckafka.binary=latin1", b"aaaa"),
        ("json:,,", "debezium.binary_handling_mode=hex", b"\xaa\xaa"),
        ("json:double,,\1blob", "debezium.binary_handling_mode=base64", b"i\xa6\x9a"),
    ],
)
def test_retry_with_the_way_in_which_values_are_written(
    target: str, session: Session, form: str, setting: str, stored: bytes
) -> None:
    """It was missing when the row was quarantined."""
    session.execute("CREATE TABLE m.c (id INT PRIMARY KEY, b BLOB)")
    change = row_change(10, "c", ["id", "b"], ["id"], after=[1, "aaaa"])
    change = change._replace(columns=with_forms(change.columns or "", ["", form]))
    run_all(target, in_one_partition([change, boundary(20)]), quarantine=True)
    assert retried(target, "--all")[0][0] is False
    assert retried(target, "--all", "--set", setting) == [(True, "applied: 1 row change")]
    assert session.rows("SELECT b FROM m.c") == [(stored,)]


def test_what_an_event_filter_leaves_out_stays(target: str, session: Session, tmp_path: Path) -> None:
    """A message whose rows are left out now is not applied by a retry."""
    fill(target, tmp_path, row(10, 1, at=AT))
    given = {"name": "bridge", "timezone": "UTC", "event_filters": [{"matcher": ["m.*"], "ignore-event": ["insert"]}]}
    [outcome] = Quarantine(Target(target), Settings.model_validate(given)).retry(None) or []
    assert (outcome.done, outcome.why) == (False, "an event filter leaves its row changes out")
    assert (rows(session), states(session)) == ([], ["held"])


def test_other_routes_than_those_of_the_pipeline_are_refused(target: str, session: Session, tmp_path: Path) -> None:
    """They would write its rows to another table; what does not depend on them still works."""
    session.execute("CREATE DATABASE r")
    session.execute("CREATE TABLE r.t LIKE m.t")
    fill(target, tmp_path, row(10, 1, at=AT))
    ran_with(session, Routes())
    ended = quarantine(target, "retry", "--all", "--timezone", "+08:00", "--route", "m.t -> r.t")
    assert (ended.code, "m.t went to m.t, and would go to r.t" in ended.last_line) == (2, True), ended.err
    assert (session.rows("SELECT * FROM r.t"), rows(session), states(session)) == ([], [], ["held"])
    assert retried(target, "--all") == [(True, "applied: 1 row change")]


@pytest.mark.parametrize(("ignored", "left"), [("delete", [2]), ("insert", [2]), ("update", [1])])
def test_event_filters_judge_the_update_that_moves_a_row_read_back(
    target: str, session: Session, tmp_path: Path, ignored: str, left: list[int]
) -> None:
    """As in the pipeline: not the delete and the insert that it is written as.  Its table has another name there."""
    session.execute("CREATE DATABASE r")
    session.execute("CREATE TABLE r.t (id INT PRIMARY KEY, v VARCHAR(9))")
    session.execute("INSERT INTO r.t VALUES (1, 'a')")
    fill(target, tmp_path, cut(12, 2, kind="UPDATE", was=1))
    given = {"event_filters": [{"matcher": ["m.*"], "ignore-event": [ignored]}], "route": ["m.* -> r.*"]}
    settings = Settings.model_validate(given)
    [outcome] = Quarantine(Target(target), settings, History({(12, "2"): "'b'"})).retry(None) or []
    assert (outcome.done, [id_ for (id_,) in session.rows("SELECT id FROM r.t")]) == (left == [2], left), outcome.why


def test_what_an_earlier_version_put_aside_is_not_written_to_mysql(
    target: str, session: Session, tmp_path: Path
) -> None:
    """A message or a row change of the server's own databases stays where it is."""
    session.execute("ALTER TABLE m.t ADD CHECK (id < 9)")
    fill(target, tmp_path, row(10, 1, at=AT), row(11, 9))
    session.execute(
        "UPDATE _bridge.quarantine SET message_value = REPLACE(message_value, '\"m\"', '\"mysql\"'),"
        " row_change = REPLACE(row_change, '\"m\"', '\"mysql\"')"
    )
    session.execute("CREATE TABLE mysql.t LIKE m.t")
    try:
        outcomes = retried(target, "--all")
        assert session.rows("SELECT * FROM mysql.t") == []
    finally:
        session.execute("DROP TABLE mysql.t")
    assert [done for done, _ in outcomes] == [False, False]
    assert all("it is in one of the server's own databases" in why for _, why in outcomes)


@pytest.mark.parametrize(
    ("message", "meanwhile", "why"),
    [
        (row(10, 1, at=AT), "INSERT INTO m.t VALUES (1, NULL)", "Duplicate entry '1'"),
        (update(10, {"at": AT}, {"at": OTHER}), "DO 0", "not on the target as it was"),
        (update(10, {"at": AT}, {"at": OTHER}), "INSERT INTO m.t VALUES (1, NULL)", "not on the target as it was"),
        ({**row(10, 1, at=AT), "type": "DELETE"}, "INSERT INTO m.t VALUES (1, NULL)", "not on the target as it was"),
        ({**row(10, 1, at=AT), "type": "UPDATE"}, "INSERT INTO m.t VALUES (1, NULL)", "does not hold the old row"),
        (row(10, 1, at=AT), "DROP TABLE m.t", "no table m.t"),
        (row(10, 1, at=AT), "ALTER TABLE m.t DROP COLUMN at", "lacks the column at"),
        (row(10, 1, at=AT), "ALTER TABLE m.t ADD CHECK (id <> 1)", "the target refused rows of m.t: 4025"),
        (b"{", "DO 0", "still cannot be decoded"),
    ],
)  # fmt: skip
def test_what_is_left_says_why(
    target: str, session: Session, tmp_path: Path, message: Any, meanwhile: str, why: str
) -> None:
    """An entry whose row is not as the message found it is left, and nothing is written."""
    fill(target, tmp_path, message)
    session.execute(meanwhile)
    before = session.rows("SELECT * FROM m.t") if "DROP TABLE" not in meanwhile else []
    [(done, said)] = retried(target, "--all")
    assert not done
    assert why in said
    assert states(session) == ["held"]
    assert "DROP TABLE" in meanwhile or session.rows("SELECT * FROM m.t") == before


def test_a_message_of_several_rows_is_applied_whole_or_not_at_all(
    target: str, session: Session, tmp_path: Path
) -> None:
    """One row that has changed since keeps the others of its message from being applied."""
    several = row(10, 1, at=AT)
    several["data"].append({"id": "2", "at": AT[1]})
    fill(target, tmp_path, several)
    session.execute("INSERT INTO m.t VALUES (2, NULL)")
    assert not retried(target, "1")[0][0]
    assert rows(session) == [(2, None)]
    session.execute("DELETE FROM m.t")
    assert retried(target, "1") == [(True, "applied: 2 row changes")]
    assert [id_ for id_, _ in rows(session)] == [1, 2]


def test_refused_rows(target: str, session: Session) -> None:
    """A row that the target refused is applied when the target takes it; so is one of a table without a key."""
    session.execute("CREATE TABLE m.k (v VARCHAR(3))")
    session.execute("CREATE TABLE m.u (id INT PRIMARY KEY, v VARCHAR(3))")
    changes = [
        row_change(10, "u", ["id", "v"], ["id"], after=[1, "a"]),
        row_change(11, "u", ["id", "v"], ["id"], before=[1, "a"], after=[1, "long"]),
        row_change(12, "k", ["v"], [], after=["long"]),
        row_change(13, "k", ["v"], [], before=["long"]),
    ]
    run_all(target, in_one_partition([*changes, boundary(20)]), quarantine=True, rows_per_transaction=1)
    assert [done for done, _ in retried(target, "--all")] == [False, False, False]
    for table in ("k", "u"):
        session.execute(f"ALTER TABLE m.{table} MODIFY v VARCHAR(9)")
    assert [done for done, _ in retried(target, "--all")] == [True, True, True]
    assert session.rows("SELECT * FROM m.u") == [(1, "long")]
    assert session.rows("SELECT * FROM m.k") == []


def test_a_row_without_a_key_that_is_there_already(target: str, session: Session) -> None:
    """It is not written twice: somebody may have written by hand what was refused."""
    session.execute("CREATE TABLE m.k (v VARCHAR(3))")
    insert = row_change(10, "k", ["v"], [], after=["long"])
    run_all(target, in_one_partition([insert, boundary(20)]), quarantine=True)
    session.execute("ALTER TABLE m.k MODIFY v VARCHAR(9)")
    session.execute("INSERT INTO m.k VALUES ('long')")
    assert retried(target, "--all") == [(False, "m.k has this row already")]
    assert session.rows("SELECT * FROM m.k") == [("long",)]


def test_a_row_that_gave_way_to_another(target: str, session: Session) -> None:
    """An update that was refused leaves its row with a unique value that the upstream gave to another row: that one is
    written, in safe mode, and a retry says what became of the first."""
    session.execute("CREATE TABLE m.w (id INT PRIMARY KEY, u INT UNIQUE, v VARCHAR(3))")
    columns = ["id", "u", "v"]
    changes = [
        row_change(10, "w", columns, ["id"], after=[1, 5, "a"]),
        row_change(11, "w", columns, ["id"], before=[1, 5, "a"], after=[1, 6, "long"]),
        row_change(12, "w", columns, ["id"], after=[2, 5, "b"]),
    ]
    run_all(target, in_one_partition([*changes, boundary(20)]), quarantine=True, rows_per_transaction=1)
    session.execute("ALTER TABLE m.w MODIFY v VARCHAR(9)")
    [(done, why)] = retried(target, "--all")
    assert not done
    assert "took a unique value that it still held" in why
    assert session.rows("SELECT * FROM m.w") == [(2, 5, "b")]


def test_updates_that_wait_for_each_other(target: str, session: Session) -> None:
    """Each takes the unique value that the next one gives up: they are retried until nothing more is applied."""
    session.execute("CREATE TABLE m.w (id INT PRIMARY KEY, u INT UNIQUE, v VARCHAR(3))")
    columns = ["id", "u", "v"]
    changes = [row_change(10, "w", columns, ["id"], after=[n, n, "a"]) for n in (1, 2, 3)]
    changes += [row_change(11, "w", columns, ["id"], before=[n, n, "a"], after=[n, n + 1, "long"]) for n in (1, 2, 3)]
    run_all(target, in_one_partition([*changes, boundary(20)]), quarantine=True, rows_per_transaction=1)
    session.execute("ALTER TABLE m.w MODIFY v VARCHAR(9)")
    assert [done for done, _ in retried(target, "--all")] == [True, True, True]
    assert session.rows("SELECT * FROM m.w ORDER BY id") == [(n, n + 1, "long") for n in (1, 2, 3)]


def test_updates_that_trade_values_in_a_circle(target: str, session: Session) -> None:
    """None of them can come first: both stay, and the rest is applied."""
    session.execute("CREATE TABLE m.w (id INT PRIMARY KEY, u INT UNIQUE, v VARCHAR(3))")
    columns, numbers = ["id", "u", "v"], {1: 2, 2: 1, 3: 30, 4: 3}
    changes = [row_change(10, "w", columns, ["id"], after=[n, n, "a"]) for n in numbers]
    changes += [
        row_change(11, "w", columns, ["id"], before=[n, n, "a"], after=[n, u, "long"]) for n, u in numbers.items()
    ]
    run_all(target, in_one_partition([*changes, boundary(20)]), quarantine=True, rows_per_transaction=1)
    session.execute("ALTER TABLE m.w MODIFY v VARCHAR(9)")
    found = retried(target, "--all")
    assert [done for done, _ in found] == [False, False, True, True]
    assert all("Duplicate entry" in why for done, why in found if not done)
    assert session.rows("SELECT u, v FROM m.w ORDER BY id") == [(1, "a"), (2, "a"), (30, "long"), (3, "long")]


SINCE = [
    (["ALTER TABLE u MODIFY e ENUM('b','a')"], "m.u was changed: ALTER"),
    (["ALTER TABLE u CONVERT TO CHARACTER SET latin1"], "m.u was changed: ALTER"),
    (["TRUNCATE TABLE u"], "m.u was changed: TRUNCATE"),
    (
        ["DROP TABLE u", "CREATE TABLE u (id INT PRIMARY KEY, e ENUM('a','b'), v VARCHAR(3), w INT)"],
        "m.u was changed: DROP",
    ),
    (["RENAME TABLE u TO o", "CREATE TABLE u LIKE o"], "m.u was changed: RENAME"),
    (["ALTER TABLE u DROP COLUMN w", "ALTER TABLE u ADD COLUMN w INT"], "m.u was changed: ALTER"),
    (["ALTER TABLE u CHANGE w x INT", "ALTER TABLE u ADD COLUMN w INT"], "m.u was changed: ALTER"),
    (["ALTER TABLE u ADD COLUMN x INT", "ALTER TABLE u COMMENT = 'x'", "CREATE INDEX i ON u (w)"], ""),
    (["RENAME TABLE u TO o", "RENAME TABLE o TO u"], "m.u was changed: RENAME"),
]


@pytest.mark.parametrize(("statements", "why"), SINCE, ids=[" and ".join(case[0])[:60] for case in SINCE])
def test_a_schema_change_since(target: str, session: Session, statements: list[str], why: str) -> None:
    """What it has made of the row, or of its values, is not guessed; a change that alters none of it is no hindrance,
    and neither is one from before the row."""
    session.execute("CREATE TABLE m.u (id INT PRIMARY KEY, e ENUM('a','b'), v VARCHAR(3), w INT)")
    columns = ["id", "e", "v", "w"]
    early = row_change(10, "u", columns, ["id"], after=[1, Literal("1"), "long", 5])
    late = row_change(18, "u", columns, ["id"], after=[2, "a", "long", 5])
    ran = [schema_change(11 + ts, text, table="u") for ts, text in enumerate(statements)]
    run_all(target, in_one_partition([early, *ran, late, boundary(20)]), quarantine=True)
    session.execute("ALTER TABLE m.u MODIFY v VARCHAR(9)")
    found = retried(target, "--all")
    assert [done for done, _ in found] == [not why, True]
    assert why in found[0][1]
    assert session.rows("SELECT id FROM m.u ORDER BY id") == ([(2,)] if why else [(1,), (2,)])


CUT = [
    ("v DECIMAL(5,2)", Literal("1.005"), "1265", "v DECIMAL(5,3)"),
    ("v VARCHAR(3)", "abc ", "1265", "v VARCHAR(4)"),
    ("v CHAR(3)", "a ", "cannot store 'a ' unchanged", "v VARCHAR(3)"),
    ("v DATETIME", "2024-01-01 00:00:00.5", "cannot store", "v DATETIME(1)"),
]


@pytest.mark.parametrize(("column", "value", "why", "wide"), CUT, ids=[f"{case[0]} {case[1]}" for case in CUT])
def test_a_value_that_the_target_would_cut_stays_held(
    target: str, session: Session, column: str, value: object, why: str, wide: str
) -> None:
    """A retry writes as the pipeline does: what a strict server takes with a note, or in silence, but not as it is, is
    not applied; when the column holds it, the row is there as the message has it."""
    session.execute(f"CREATE TABLE m.u (id INT PRIMARY KEY, {column})")
    change = row_change(10, "u", ["id", "v"], ["id"], after=[1, value])
    run_all(target, in_one_partition([change, boundary(20)]), quarantine=True)
    [(done, said)] = retried(target, "--all")
    assert (done, states(session), session.rows("SELECT * FROM m.u")) == (False, ["held"], [])
    assert why in said
    session.execute(f"ALTER TABLE m.u MODIFY {wide}")
    assert [done for done, _ in retried(target, "--all")] == [True]
    assert session.rows(f"SELECT v = {literal(value)} FROM m.u") == [(1,)]


PARTS = [
    ("a narrow value", ["id", "n"], [1, 1], [1, 999], (1, 999, "precious")),
    ("its key moves", ["id", "n"], [1, 1], [2, 999], (2, 999, "precious")),
    ("another unique value changes", ["id", "u", "n"], [1, 7, 1], [1, 8, 999], (1, 999, "precious")),
]


@pytest.mark.parametrize(
    ("columns", "before", "after", "wanted"), [case[1:] for case in PARTS], ids=[case[0] for case in PARTS]
)
def test_columns_that_a_message_lacks_stay(
    target: str, session: Session, columns: list[str], before: list[int], after: list[int], wanted: tuple[Any, ...]
) -> None:
    """An absent column means "as it was", and so do the target's own; also where the row would change by itself."""
    session.execute(
        "CREATE TABLE m.u (id INT PRIMARY KEY, u INT UNIQUE, n TINYINT, doc TEXT,"
        " at TIMESTAMP NOT NULL DEFAULT '2001-01-01' ON UPDATE CURRENT_TIMESTAMP)"
    )
    session.execute("INSERT INTO m.u (id, u, n, doc) VALUES (1, 7, 1, 'precious')")
    change = row_change(10, "u", columns, ["id"], before=before, after=after)
    run_all(target, in_one_partition([change, boundary(20)]), quarantine=True)
    session.execute("ALTER TABLE m.u MODIFY n INT")
    assert session.rows("SELECT id, n, doc, YEAR(at) FROM m.u") == [(1, 1, "precious", 2001)]
    assert [done for done, _ in retried(target, "--all")] == [True]
    assert session.rows("SELECT id, n, doc, YEAR(at) FROM m.u") == [(*wanted, 2001)]


def test_columns_that_only_the_target_has_stay_where_connections_share_the_work(target: str, session: Session) -> None:
    """A row whose new key the target refuses is not deleted before, by another connection: it alone has them."""
    session.execute("CREATE TABLE m.u (id INT PRIMARY KEY, n TINYINT, doc TEXT)")
    session.execute("INSERT INTO m.u VALUES (1, 1, 'precious')")
    changes = [row_change(10, "u", ["id", "n"], ["id"], after=[key, 1]) for key in range(1000, 3000)]
    changes.append(row_change(10, "u", ["id", "n"], ["id"], before=[1, 1], after=[9999, 999]))
    run_all(target, in_one_partition([*changes, boundary(20)]), quarantine=True, writers=2)
    precious = "SELECT * FROM m.u WHERE doc IS NOT NULL"
    assert session.rows(precious) == [(1, 1, "precious")]
    session.execute("ALTER TABLE m.u MODIFY n INT")
    assert [done for done, _ in retried(target, "--all")] == [True]
    assert session.rows(precious) == [(9999, 999, "precious")]


def test_a_key_in_another_spelling(target: str, session: Session, tmp_path: Path) -> None:
    """The row that an update found may have the new key already, to the target; another row may not."""
    session.execute("ALTER TABLE m.t ADD k VARCHAR(9) COLLATE utf8mb4_general_ci NOT NULL, DROP PRIMARY KEY")
    session.execute("ALTER TABLE m.t ADD PRIMARY KEY (k)")
    session.execute("INSERT INTO m.t (id, k) VALUES (1, 'Alice'), (1, 'bob')")
    moves = [(10, "Alice", "ALICE"), (11, "bob", "aLICE")]
    messages = [
        {
            **row(ts, 1, at=AT, k=("varchar(9)", new)),
            "type": "UPDATE",
            "old": [{"k": old, "at": None}],
            "pkNames": ["k"],
        }
        for ts, old, new in moves
    ]
    fill(target, tmp_path, *messages)
    assert [done for done, _ in retried(target, "--all")] == [True, False]
    assert session.rows("SELECT k FROM m.t") == [("ALICE",), ("bob",)]


def test_a_trigger_on_the_target(target: str, session: Session, tmp_path: Path) -> None:
    """A row whose table would change others by itself is left, as the pipeline itself would stop there."""
    fill(target, tmp_path, row(10, 1, at=AT))
    session.execute("CREATE TABLE m.seen (id INT)")
    session.execute("CREATE TRIGGER m.tell AFTER INSERT ON m.t FOR EACH ROW INSERT INTO m.seen VALUES (new.id)")
    [(done, said)] = retried(target, "--all")
    assert (done, rows(session), session.rows("SELECT * FROM m.seen")) == (False, [], [])
    assert "trigger tell on m.t" in said


@pytest.mark.parametrize("referring", [True, False])
@pytest.mark.parametrize(("sender", "done"), [({"id": 7}, False), ({}, True)], ids=["MySQL", "TiCDC"])
def test_a_foreign_key_that_should_cascade(
    target: str, session: Session, tmp_path: Path, sender: dict[str, Any], referring: bool, done: bool
) -> None:
    """MySQL's log lacks the rows that a cascade changed, so that the row is left, as the pipeline would stop; TiCDC
    sends them."""

    def by_time(message: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in (message | sender).items() if name != "_tidb"}

    messages = [by_time(row(10, 5)), by_time({**row(11, 1, at=AT), "type": "DELETE"})]
    run_all(target, capture(tmp_path, messages, timezone=None), quarantine=True, boundary_seconds=0.0)
    session.execute("INSERT INTO m.t VALUES (1, '2024-01-01 00:00:00')")
    parent, child = ("m.t", "m.other") if referring else ("m.other", "m.t")
    session.execute("CREATE TABLE m.other (id INT PRIMARY KEY)")
    session.execute("SET foreign_key_checks = 0")
    session.execute(
        f"ALTER TABLE {child} ADD CONSTRAINT fk FOREIGN KEY (id) REFERENCES {parent} (id) ON DELETE CASCADE"
    )
    [(is_done, said)] = retried(target, "--all")
    assert is_done is done
    assert states(session) == ["applied" if done else "held"]
    assert [id_ for id_, _ in rows(session)] == ([5] if done else [1, 5])
    assert done or f"foreign key fk of {child}" in said
    assert done or retried(target, "--all", "--filter", "m.t")[0][0] is referring


def test_drop(target: str, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is dropped stays known, so that a message read again is not quarantined a second time."""
    fill(target, tmp_path, b"{", b"[", b"]")
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    refused = quarantine(target, "drop", "2")
    assert (refused.code, states(session)) == (2, ["held"] * 3)
    assert quarantine(target, "drop", "2", "--yes").out.splitlines()[-1] == "1 done, 0 left as they are"
    assert states(session) == ["held", "dropped", "held"]
    assert quarantine(target, "drop", "--all", "--yes").code == 0
    assert states(session) == ["dropped"] * 3
    fill(target, tmp_path, b"{", b"[", b"]")
    assert states(session) == ["dropped"] * 3
    assert "nothing is quarantined" in quarantine(target, "list").out
    assert len(json.loads(quarantine(target, "list", "--settled", "--json").out)) == 3


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("list", "--name", "other"), 1, "no pipeline 'other'"),
        (("retry", "--all", "--name", "other"), 1, "no pipeline 'other'"),
        (("drop", "--all", "--yes", "--name", "other"), 1, "no pipeline 'other'"),
        (("show", "7"), 2, "no entry 7"),
        (("retry",), 2, "either ids of entries or --all"),
        (("drop", "1", "--all"), 2, "either ids of entries or --all"),
        (("retry", "7"), 0, "there is no such entry"),
    ],
)
@pytest.mark.usefixtures("session")
def test_wrong_use(target: str, tmp_path: Path, arguments: tuple[str, ...], code: int, says: str) -> None:
    """One line that says what and what to do; no traceback."""
    fill(target, tmp_path, b"{")
    ended = quarantine(target, *arguments)
    assert ended.code == code
    assert says in ended.err + ended.out
    assert "Traceback" not in ended.err


def test_a_running_bridge_is_waited_for(target: str, session: Session, tmp_path: Path) -> None:
    """A retry and a transaction of the bridge come one after the other: it waits for the progress row."""
    fill(target, tmp_path, row(10, 1, at=AT))
    bridges = Target(target).connect()
    bridges.begin()
    bridges.execute("UPDATE _bridge.progress SET applied_ts = applied_ts + 1")
    done: list[Any] = []
    settings = Settings.model_validate({"timezone": "+08:00"})
    retry = Quarantine(Target(target), settings).retry
    waiting = "SELECT trx_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    with at_work(lambda: done.append(retry(None))):
        wait_for(lambda: session.rows(waiting), "the retry does not wait for the row")
        assert (done, rows(session)) == ([], [])
        bridges.execute("INSERT INTO m.t VALUES (1, NULL)")
        bridges.commit()
    bridges.close()
    [[outcome]] = done
    assert not outcome.done
    assert "Duplicate entry '1'" in outcome.why
