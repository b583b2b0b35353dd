"""`bridge verify` against the log: genuine captures, whole targets and damaged ones."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.filters.routes import Routes
from bridge.local import Kafka
from bridge.verify.source import historical_rows
from tests.support.bridges import applied_ts, kafka_arguments, running
from tests.support.captures import line, row, watermark, write_lines
from tests.support.command import bridge
from tests.support.feeds import Feed
from tests.support.golden import CUT_ROWS, PROTOCOLS, capture, replay_arguments
from tests.support.pipelines import admin, contents, ran_with, sql
from tests.support.selection import some_of
from tests.support.verify_servers import execute
from tests.system.test_ckafka_replay import SCRIPTS as CKAFKA_SCRIPTS
from tests.system.test_ckafka_replay import as_ckafka_capture
from tests.system.test_cut_rows import StandIn
from tests.system.test_golden_replay import SCRIPTS, assert_verified, found

pytestmark = pytest.mark.usefixtures("spark")


def test_other_routes_than_those_of_the_pipeline_are_refused(target: str, tmp_path: Path) -> None:
    """They would have it compare tables that the pipeline does not write; exit 2, which is not "different"."""
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (id INT PRIMARY KEY)")
        ran_with(session, Routes())
    (tmp_path / "one.jsonl").write_text('{"partition":0,"offset":0,"timestamp":0,"key":null,"value":null}\n')
    flags = ("--input", str(tmp_path), "--protocol", "canal-json", "--target", target, "--route", "m.t -> r.t")
    ended = bridge("verify", *flags)
    assert (ended.code, "m.t went to m.t, and would go to r.t" in ended.last_line) == (2, True), ended.err


@pytest.mark.soak
@pytest.mark.parametrize("script", [*SCRIPTS, "ddl"])
@pytest.mark.parametrize("variant", [*PROTOCOLS, *CUT_ROWS, "ckafka"])
def test_no_false_alarm_on_any_capture(
    target: str, old_target: str, golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str,
    script: str,
) -> None:  # fmt: skip
    """Whatever the format, its options and what it leaves out: however far the bridge came, what it wrote is equal."""
    is_there = script in CKAFKA_SCRIPTS if variant == "ckafka" else capture(golden, variant, script).exists()
    if not is_there:
        pytest.skip("there is no such capture")
    arguments = _arguments(golden, variant, script, target, tmp_path)
    more = ["--on-bad-message", "quarantine"]
    if variant in CUT_ROWS:
        monkeypatch.setattr(historical_rows, "enter_moment", StandIn(golden, script, old_target).enter)
        more += ["--source", old_target]
    assert bridge("replay", *arguments, *more).code in (0, 3, 4)  # some schema changes MariaDB refuses, some it lacks
    ended = bridge("verify", *arguments, "--json")
    assert (ended.code, found(ended)) == (0, set()), ended.err


HOLD_LESS = ["ckafka", "open-updated-only", *CUT_ROWS]


@pytest.mark.parametrize("variant", some_of(HOLD_LESS, "ckafka"))
def test_captures_that_hold_less(
    target: str, old_target: str, golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    variant: str,
) -> None:  # fmt: skip
    """Rows cut to their key, updates of the changed columns only, values that the target's types make exact: no false
    alarm, and in each table a row that is changed, lost or there too much is found and fixed."""
    arguments = _arguments(golden, variant, "all_types", target, tmp_path)
    arguments += ["--set", "ddl.source=mysql-8"] if variant == "ckafka" else []
    monkeypatch.setattr(historical_rows, "enter_moment", StandIn(golden, "all_types", old_target).enter)
    ended = bridge("replay", *arguments, *(("--source", old_target) if variant in CUT_ROWS else ()))
    assert ended.code == 0, ended.err
    ended = bridge("verify", *arguments, "--json")
    assert (ended.code, found(ended)) == (0, set()), ended.err
    assert sum(table["rows"] for table in json.loads(ended.out)["tables"]) > 70
    execute(target, CHANGED)
    ended = bridge("verify", *arguments, "--json", "--fix-sql", str(tmp_path / "fix.sql"))
    damaged = {(row[0], row[1]) for row in found(ended)}
    assert damaged == {
        ("types.ints", "different"), ("types.strs", "different"), ("types.floats", "different"),
        ("types.binpk", "missing"), ("types.binpk", "extra"), ("types.enums", "missing"), ("types.bits", "extra"),
    }  # fmt: skip
    execute(target, (tmp_path / "fix.sql").read_text(encoding="utf-8"))
    assert bridge("verify", *arguments).code == 0


CHANGED = """
SET SESSION sql_mode = ''; USE types;
UPDATE ints SET ti = IF(ti = 7, 8, 7); UPDATE strs SET vc = IFNULL(vc, '') WHERE id = 2;
UPDATE floats SET d = 12345.678; UPDATE binpk SET k = 0x00FE WHERE k = 0x00FF;
DELETE FROM enums WHERE id = 1; INSERT INTO bits (id) VALUES (99);
"""


def _arguments(golden: Path, variant: str, script: str, target: str, folder: Path) -> list[str]:
    if variant != "ckafka":
        return replay_arguments(golden, variant, script, target)[1:]
    capture = as_ckafka_capture(golden, script, folder)
    return ["--protocol", "ckafka", "--input", str(capture), "--target", target, "--timezone", "UTC",
            "--set", "ckafka.binary=latin1", "--set", "stream.idle_seconds=1"]  # fmt: skip


DAMAGE = """
SET foreign_key_checks = 0; USE ks;
UPDATE churn SET v = v + 1 WHERE id = 1;
DELETE FROM churn WHERE id = 3;
INSERT INTO pk_c VALUES (999, 5);
UPDATE ci SET k = 'D' WHERE k = 'd';
UPDATE pk_str SET id = CONCAT(id, 'x') WHERE id = "b'q";
UPDATE tspk SET k = k + INTERVAL 8 HOUR;
DROP TABLE two_uk;
"""


def test_tables_with_other_names_on_the_target(target: str, golden: Path) -> None:
    """With routes the target holds the same under the other names, and nothing else; verify finds it equal, as it does
    without."""
    arguments = replay_arguments(golden, "canal-ext", "ddl", target)
    assert bridge(*arguments).code == 4  # MariaDB cannot bring a dropped table back
    assert_verified(arguments, target, set())
    with admin(target) as session:
        plain = contents(session)
        for schema in ("app", "app2", "_bridge"):
            session.execute(f"DROP DATABASE {schema}")
    routes = ("--route", "app.* -> there.*")
    assert bridge(*arguments, *routes).code == 4
    with admin(target) as session:
        routed = {name.replace("there.", "app."): shown for name, shown in contents(session).items()}
        assert session.rows("SHOW DATABASES LIKE 'app'") == []
    assert {name: rows for name, (_, rows) in routed.items()} == {name: rows for name, (_, rows) in plain.items()}
    assert {name: made.replace("there", "app") for name, (made, _) in routed.items()} == {
        name: made for name, (made, _) in plain.items()
    }
    ended = bridge("verify", *arguments[1:], *routes, "--json")
    assert (ended.code, found(ended)) == (0, set()), ended.err


def test_damage_is_found_and_fixed(target: str, golden: Path, tmp_path: Path) -> None:
    """Rows are named, with the position of their last message; after the fix SQL all is equal but what only a person
    can bring back."""
    arguments = replay_arguments(golden, "canal-ext", "keys", target)
    assert bridge(*arguments).code == 0
    verify = ["verify", *arguments[1:]]
    execute(target, DAMAGE)
    fix = tmp_path / "fix.sql"
    ended = bridge(*verify, "--json", "--fix-sql", str(fix))
    assert ended.code == 1, ended.err
    named = found(ended)
    assert named == {
        *(("ks.churn", "different", "1", "v"), ("ks.churn", "missing", "3"), ("ks.pk_c", "extra", "999")),
        *(("ks.ci", "different", "'d'", "k"), ("ks.pk_str", "missing", '"b\'q"'), ("ks.pk_str", "extra", '"b\'qx"')),
        ("ks.tspk", "missing", "2024-01-01 00:00:00.123456"),
        ("ks.tspk", "extra", "2024-01-01 08:00:00.123456"),
        ("ks.two_uk", "the table is missing"),
    }
    [churn] = [t for t in json.loads(ended.out)["tables"] if t["table"] == "ks.churn"]
    assert all(row["commit_ts"] and row["position"].startswith("capture/") for row in churn["first_rows"])
    execute(target, fix.read_text(encoding="utf-8"))
    again = bridge(*verify, "--json")
    assert found(again) == {("ks.two_uk", "the table is missing")}


def test_a_log_that_has_lost_its_beginning_says_so(target: str, tmp_path: Path) -> None:
    """Of one partition: a table may hold rows that the log no longer mentions."""
    execute(target, "CREATE DATABASE m; CREATE TABLE m.t (id INT PRIMARY KEY)")
    log = [line(0, row(10, 1)), line(1, watermark(20)), line(7, watermark(20), partition=1)]
    capture = write_lines(tmp_path / "log.jsonl", log)
    arguments = ["--protocol", "canal-json", "--input", str(capture), "--target", target]
    assert bridge("replay", *arguments).code == 0
    ended = bridge("verify", *arguments, "--json")
    assert json.loads(ended.out)["notes"][0].startswith("capture/1 begins at offset 7: of tables made before")


def test_a_pipeline_that_is_unknown_is_wrong_usage(target: str, golden: Path) -> None:
    """Exit 2, and the way out."""
    ended = bridge("verify", *replay_arguments(golden, "canal-ext", "keys", target)[1:])
    assert (ended.code, "--against upstream" in ended.last_line) == (2, True)


def test_a_server_that_does_not_answer_is_a_failure(golden: Path) -> None:
    """Exit 3, in one line."""
    ended = bridge("verify", *replay_arguments(golden, "canal-ext", "keys", "mysql://root@127.0.0.1:1/")[1:])
    assert ended.code == 3
    assert "Traceback" not in ended.err


def transfers(target: str) -> int:
    """Rows of the bank's ledger; 0 while there is none."""
    is_there = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'bank' AND table_name = 'ledger'"
    return int(sql(target, "SELECT COUNT(*) FROM bank.ledger")[0][0]) if sql(target, is_there)[0][0] else 0


def test_verify_while_transactions_flow(target: str, kafka: Kafka, topic: Callable[..., str], tmp_path: Path) -> None:
    """200 transactions a second, with every message sent twice: equal at the moment that verify took, for which the
    bridge was held a fraction of a second; the bridge goes on.  A signal to its group ends it with 0 in mid-stream,
    although the JVM may be gone first."""
    name = topic(4)
    with (
        Feed(kafka.bootstrap_servers, name, per_beat=20) as feed,
        running(tmp_path / "run", kafka.bootstrap_servers, name, target) as process,
    ):
        feed.open_bank()
        feed.start()
        process.wait_for(lambda: transfers(target) > 100, "transactions on the target")
        ended = bridge(*kafka_arguments("verify", kafka.bootstrap_servers, name, target), "--json")
        moment = applied_ts(target)
        assert (ended.code, found(ended)) == (0, set()), ended.err
        report = json.loads(ended.out)
        assert sum(table["rows"] for table in report["tables"]) > 100
        assert report["held_seconds"] < 0.5
        process.wait_for(lambda: applied_ts(target) > moment, "transactions after verify")
        process.signal_group(signal.SIGTERM)
        assert process.wait(60) == 0, process.end_of_log
        assert "Traceback" not in process.log, process.log
        feed.check()
