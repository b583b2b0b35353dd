"""A real TiDB as target and as source: what is said of it, shown on its own SQL layer.

All tests with a TiDB are in this file, so that a run starts one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bridge.config import Settings
from bridge.errors import ApplyError, OwnedError, StoppedError
from bridge.model import Advance, TableName
from bridge.mysql import tidb as tidb_sessions
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.parallel import ExecutorWriter, Fence
from bridge.mysql.schema_changes.ddl_runner import pipeline_tag, wait_while_running
from bridge.mysql.state.progress import ProgressTable
from bridge.protocols import PROTOCOLS as REGISTERED
from bridge.rows.sql.statement import Stage, Statement
from bridge.verify.source.historical_rows import UpstreamRows
from tests.generated.conftest import bench_on
from tests.generated.test_generated import run_some
from tests.generated.verifying import verify, verify_events
from tests.mysql.apply import test_ways_of_values as ways_of_values
from tests.mysql.schema_changes import test_golden_schema_changes as golden_schema_changes
from tests.mysql.schema_changes import test_values_of_schema_changes as values_of_schema_changes
from tests.mysql.state import test_ownership as ownership
from tests.pipeline import test_lost_target as lost_target
from tests.pipeline import test_parallel as parallel
from tests.rows.keys import test_partial_rows as partial_rows
from tests.support.command import bridge
from tests.support.dying import Died, dying_at
from tests.support.golden import PROTOCOLS, ZONES, capture, differences, replay_arguments
from tests.support.pipelines import admin, decoded, drop_all, opened, run_all, sql
from tests.support.tidb import TiDB
from tests.support.upstreams import Literal, boundary, in_one_partition, row_change, schema_change
from tests.support.verify_servers import Pair, said
from tests.support.wire import TSO, canal, compact, decoded_lot, lot
from tests.system import test_take_over as take_over

SCRIPTS = ("all_types", "all_types_tz8", "keys", "keys_raw", "keys_tabledisp", "bank", "ddl")
IN_THE_SUITE = [("debezium-ext", "all_types"), ("canal-ext", "ddl"), ("open", "keys")]
NEVER_EQUAL = {("canal", "keys_raw"), *(("canal-delete-handle", script) for script in SCRIPTS)}
"""What these hold less is told in tests/system/test_golden_replay.py."""
FAR_SECONDS = 60.0
COMMIT_TS = "SELECT JSON_EXTRACT(@@tidb_last_txn_info, '$.commit_ts')"
T = TableName("m", "t")
NEEDED = {
    "tidb_txn_mode": "pessimistic",
    "tidb_constraint_check_in_place_pessimistic": 1,
    "allow_auto_random_explicit_insert": 1,
    "tidb_allow_remove_auto_inc": 1,
    "tidb_tmp_table_max_size": 137438953472,
    "tidb_enable_external_ts_read": 0,
}


@pytest.fixture
def session(tidb_target: str) -> Iterator[Session]:
    """A session of the test's own, on a server with a table."""
    with admin(tidb_target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, v INT)")
        yield session


def replay(url: str, golden: Path, variant: str, script: str, **options: int) -> None:
    """Replays a capture, and does as an operator what Debezium leaves out."""
    protocol = PROTOCOLS[variant]
    events = decoded(capture(golden, variant, script), protocol, ZONES.get(script, "UTC"))
    boundary_seconds = 0.0 if REGISTERED[protocol].may_lack_boundaries else None
    while True:
        try:
            run_all(url, events, boundary_seconds=boundary_seconds, **options)
        except ApplyError as stopped:
            sql(url, "USE app", golden_schema_changes.what_made(stopped))
        else:
            return


@pytest.mark.parametrize(("variant", "script"), IN_THE_SUITE)
def test_a_replay_ends_at_the_upstreams_state(tidb_target: str, golden: Path, variant: str, script: str) -> None:
    """Tables and rows are the upstream's at its end; statements ran as they came, those that only TiDB has too."""
    replay(tidb_target, golden, variant, script)
    assert differences(tidb_target, golden, script, variant) == []


@pytest.mark.soak
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("variant", PROTOCOLS)
def test_every_capture_ends_at_the_upstreams_state(tidb_target: str, golden: Path, variant: str, script: str) -> None:
    """So does every script of every variant that holds whole rows, also when connections commit parts by themselves."""
    if (variant, script) in NEVER_EQUAL or not capture(golden, variant, script).exists():
        pytest.skip("it does not hold what would be equal, or was not captured")
    for writers in (0, 3):
        replay(tidb_target, golden, variant, script, writers=writers)
        assert differences(tidb_target, golden, script, variant) == []
        with admin(tidb_target) as session:
            drop_all(session)


@pytest.mark.usefixtures("spark")
def test_the_whole_command(tidb_target: str, golden: Path) -> None:
    """A replay ends at the upstream's state, and a verify of it finds nothing."""
    arguments = replay_arguments(golden, "canal-ext", "keys", tidb_target)
    for command in ("replay", "verify"):
        ended = bridge(command, *arguments[1:])
        assert ended.code == 0, ended.err
    assert differences(tidb_target, golden, "keys", "canal-ext") == []


def test_a_transaction_beyond_the_memory_quota(tidb_target: str, session: Session) -> None:
    """It is named by its size, with the settings that would let it in, and not tried again."""
    rows = [row_change(10, "t", ["id", "v"], ["id"], after=[n, n]) for n in range(20_000)]
    session.execute("SET GLOBAL tidb_mem_quota_query = 1048576")
    try:
        with opened(tidb_target, [("cdc", 0)]) as pipeline, pytest.raises(ApplyError) as raised:
            pipeline.take(in_one_partition([*rows, boundary(20)]))
    finally:
        session.execute("SET GLOBAL tidb_mem_quota_query = 1073741824")
    assert pipeline.writer.end.retries == 0
    assert "is too large for the target: 8175" in raised.value.what
    assert "commit ts 0 to 20" in raised.value.where
    assert "tidb_mem_quota_query" in raised.value.fix


def test_an_interrupted_step_that_is_too_large_for_one_transaction(tidb_target: str, session: Session) -> None:
    """It is finished in parts, as it was begun, of the size that the settings give now."""
    session.execute("CREATE TABLE m.w (id INT PRIMARY KEY, v VARCHAR(300))")
    rows = [row_change(10, "w", ["id", "v"], ["id"], after=[n, "x" * 200]) for n in range(20_000)]
    events = in_one_partition([*rows, boundary(20)])
    steps: list[str] = []

    dying = dying_at("before commit")
    with pytest.raises(Died), opened(tidb_target, [("cdc", 0)], writers=2, trace=dying) as pipeline:
        pipeline.take(events)
    session.execute("SET GLOBAL tidb_mem_quota_query = 1048576")
    try:
        run_all(tidb_target, events, writers=1, rows_per_transaction=2000, batch=len(rows) + 1, trace=steps.append)
    finally:
        session.execute("SET GLOBAL tidb_mem_quota_query = 1073741824")
    assert session.rows("SELECT applied_ts, applying_ts FROM _bridge.progress") == [(20, 20)]
    assert session.rows("SELECT COUNT(*) FROM m.w") == [(20_000,)]
    assert steps[: steps.index("committed")].count("part committed") >= 4


@pytest.mark.parametrize("writers", [0, 2], ids=["atomic", "parallel"])
@pytest.mark.parametrize("bits", [1, 56, 57, 63, 64])
def test_bits_of_rows_that_are_there(tidb_target: str, session: Session, bits: int, writers: int) -> None:
    """VALUES() of eight bytes gives them turned round in ON DUPLICATE KEY UPDATE, or is too long; what only the target
    has of the row stays."""
    session.execute(f"CREATE TABLE m.b (id INT PRIMARY KEY, v BIT({bits}), mine INT)")
    session.execute("INSERT INTO m.b VALUES (1, NULL, 7), (2, 1, 8)")
    highest = 1 << bits - 1
    values = {1: highest, 2: None, 3: highest | 1}
    rows = [row_change(10, "b", ["id", "v"], ["id"], after=[n, value]) for n, value in values.items()]
    rows += [row_change(20, "b", ["id", "v"], ["id"], before=[2, None], after=[2, highest])]
    run_all(tidb_target, in_one_partition([*rows, boundary(30)]), batch=3, writers=writers)
    found = session.rows("SELECT id, v + 0, mine FROM m.b ORDER BY id")
    assert found == [(1, highest, 7), (2, highest, 8), (3, highest | 1, None)]


def test_a_verify_that_the_memory_quota_has_no_room_for(tidb_target: str, session: Session) -> None:
    """It says so, and does not call the table different; temporary tables are in the memory of the transaction."""
    session.execute("CREATE TABLE m.j (id INT PRIMARY KEY, v JSON)")
    text = f'"{"x" * 3000}"'
    values = [
        canal("INSERT", {"id": ("int", str(n)), "v": ("json", text)}, database="m", table="j") for n in range(3000)
    ]
    values.append(compact({"type": "TIDB_WATERMARK", "database": "", "table": "", "_tidb": {"watermarkTs": TSO + 1}}))
    run_all(tidb_target, decoded_lot("canal-json", values))
    messages, count = lot(values), len(values)
    settings = Settings.model_validate({"name": "bridge", "timezone": "UTC"})
    assert verify(tidb_target, settings, "canal-json", [messages], {("cdc", 0): count}).is_equal
    session.execute("SET GLOBAL tidb_mem_quota_query = 6291456")
    try:
        with pytest.raises(StoppedError, match="has no room for the rows") as raised:
            verify(tidb_target, settings, "canal-json", [messages], {("cdc", 0): count})
    finally:
        session.execute("SET GLOBAL tidb_mem_quota_query = 1073741824")
    assert "tidb_mem_quota_query" in raised.value.fix


def test_sessions_are_set_up(tidb_target: str, session: Session) -> None:
    """Whatever the cluster's defaults are, as of one that began before transactions were pessimistic."""
    session.execute("SET GLOBAL tidb_txn_mode = 'optimistic'")
    try:
        with admin(tidb_target) as other:
            found = {name: other.value(f"SELECT @@SESSION.{name}") for name in NEEDED}
            assert other.connection_id == other.value("SELECT CONNECTION_ID()")
    finally:
        session.execute("SET GLOBAL tidb_txn_mode = 'pessimistic'")
    assert found == NEEDED
    assert [setting.partition(" = ")[0] for setting in tidb_sessions.SETTINGS] == list(NEEDED)


@pytest.mark.parametrize(
    "same",
    [
        ownership.test_a_live_owner_keeps_others_out,
        take_over.test_an_open_transaction_does_not_hold_up_a_take_over,
        take_over.test_who_was_taken_over_commits_and_runs_nothing,
        lost_target.test_commit_in_flight_is_waited_for,
        parallel.test_a_step_is_written_in_parts,
        parallel.test_what_a_part_cannot_write_is_left_to_one_transaction,
    ],
)
def test_what_holds_elsewhere_holds_on_tidb(tidb_target: str, same: Callable[[str], None]) -> None:
    """One owner; the outcome of a lost COMMIT; parts that commit by themselves."""
    same(tidb_target)


@pytest.mark.parametrize("takes_place", [True, False])
def test_a_cut_commit(tidb_target: str, monkeypatch: pytest.MonkeyPatch, takes_place: bool) -> None:
    """Rows of a table without a key are neither lost nor doubled."""
    lost_target.test_cut_commit_is_neither_lost_nor_repeated(tidb_target, monkeypatch, takes_place)


def test_a_part_that_was_overtaken_cannot_commit(tidb_target: str, session: Session) -> None:
    """There is no shared lock: whoever raises the epoch does not wait for a part, and the part sees it at its end."""
    heirs = 0

    def trace(step: str) -> None:
        nonlocal heirs
        if step == "part begun" and not heirs:
            heirs += 1
            with admin(tidb_target) as heir:
                ProgressTable("bridge").raise_epoch(heir)

    row = row_change(10, "t", ["id", "v"], ["id"], after=[1, 1])
    with opened(tidb_target, [("cdc", 0)], writers=1, trace=trace) as pipeline, pytest.raises(OwnedError):
        pipeline.take(in_one_partition([row, boundary(11)]))
    assert heirs == 1
    assert session.rows("SELECT * FROM m.t") == []


def test_a_task_that_comes_late_commits_nothing(tidb_target: str, session: Session) -> None:
    """What an executor writes is fenced by its step, too, at the end."""
    insert = Statement(Stage.WRITE, TableName("m", "t"), b"INSERT INTO m.t VALUES (1, 1)", None, False)
    with opened(tidb_target, [("cdc", 0)], writers=1) as pipeline:
        fence = Fence(pipeline.table, pipeline.ownership.epoch, 0, 20)
        assert pipeline.table.mark(session, fence.epoch, Advance(0, 20, {}))
        session.commit()
        write = ExecutorWriter(Target(tidb_target), fence, pipeline.ownership.lock, "")
        assert write([insert]) is None
        pipeline.take(in_one_partition([boundary(20)]))
        late = write([insert._replace(sql=b"INSERT INTO m.t VALUES (2, 2)")])
        assert late is not None
        assert "progress is not where the step begins" in late.why
    assert session.rows("SELECT * FROM m.t") == [(1, 1)]


def test_a_lock_that_has_lapsed_is_no_free_pipeline(tidb_target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """TiDB takes locks from sessions that have held them for an hour: a second bridge sees the first one's connection
    and its heartbeat, and takes the pipeline only when it is told to; then the first one's connections are ended."""
    monkeypatch.setattr("bridge.mysql.state.ownership._PATIENCE_SECONDS", 1)
    with opened(tidb_target, [("cdc", 0)]) as first:
        first.writer.session()
        first.ownership.control.value("SELECT RELEASE_ALL_LOCKS()")
        first.writer.session().value("SELECT RELEASE_ALL_LOCKS()")
        with pytest.raises(OwnedError), opened(tidb_target, [("cdc", 0)]):
            pass
        earlier = first.writer.connections
        with opened(tidb_target, [("cdc", 0)], take_over=True) as second:
            assert second.ownership.epoch == first.ownership.epoch + 1
            known = second.ownership.control.rows("SELECT id FROM information_schema.processlist")
            assert not {(number,) for number in earlier} & set(known)
            with pytest.raises(OwnedError):
                first.writer.apply(Advance(0, 5, {}))


def test_a_schema_change_that_outlives_its_connection_is_waited_for(tidb_target: str, session: Session) -> None:
    """Its job is found by the bridge's comment in front of it, also when nobody waits for it any more."""
    tag = pipeline_tag("bridge")
    session.execute("INSERT INTO m.t VALUES (1, 1)")
    with admin(tidb_target) as reader, admin(tidb_target) as sender:
        reader.begin()
        reader.rows("SELECT * FROM m.t")  # the job ends when no transaction knows the table as it was
        thread = threading.Thread(target=sender.execute, args=(f"{tag}1 x */ ALTER TABLE m.t ADD COLUMN c INT",))
        thread.start()
        _becomes(lambda: bool(tidb_sessions.running(session, tag)), "the job")
        assert not wait_while_running(session, tag, stop=lambda: True)
        reader.rollback()
        assert wait_while_running(session, tag)
        thread.join(FAR_SECONDS)
    assert session.rows("SELECT c FROM m.t") == [(None,)]


def test_parts_of_rows(tidb_target: str) -> None:
    """Temporary tables keep what messages hold a part of; they are made in the transaction, and do not end it."""
    partial_rows.test_every_server_takes_parts(tidb_target)


def test_generated_runs(tidb_target: str, tmp_path: Path) -> None:
    """They end as their upstream did."""
    with bench_on(tidb_target, tmp_path) as bench:
        run_some(bench)


@pytest.mark.parametrize(
    "way",
    [
        lambda session, url: ways_of_values.ways_of_rows_with_a_key(session, url, 0),
        pytest.param(
            lambda session, url: ways_of_values.ways_of_rows_with_a_key(session, url, 2), marks=pytest.mark.soak
        ),
        ways_of_values.ways_of_rows_without_a_key,
        ways_of_values.ways_of_parts,
        ways_of_values.ways_of_keys_of_many_members,
    ],
    ids=["with a key", "with a key, in parallel", "without a key", "in parts", "keys of many members"],
)
def test_values_of_every_type(tidb_target: str, way: Callable[[Session, str], None]) -> None:
    """They are the same whatever way they come; VALUES() of TiDB turns the bytes of a BIT(64) around."""
    with admin(tidb_target) as session:
        ways_of_values.make_right(session)
        way(session, tidb_target)


def test_values_that_tidb_converts_otherwise(tidb_target: str) -> None:
    """They are held: it rounds fractions in each mode, those of a TIME in its own way, and reads a document as what it
    is."""
    values_of_schema_changes.convert_shortened(tidb_target)
    for before, value, after in (
        *(("TIME(6)", "'23:59:59.6'", "BIGINT"), ("TIME(6)", "'-00:00:00.5'", "TIME"), ("JSON", "'true'", "INT")),
        *(("DATE", "'2024-02-29'", "YEAR"), ("INT", "3", "ENUM('a', '3', 'c')")),
    ):
        values_of_schema_changes.convert(
            tidb_target, values_of_schema_changes.MYSQL, before, value, after, is_held=True
        )


def test_bits_are_verified(tidb_target: str, session: Session) -> None:
    """Also where a row comes over another one in what verify expects, as its key got another spelling."""
    session.execute("CREATE TABLE m.b (k VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v BIT(64))")
    values = []
    for ts, (k, v) in enumerate([("a", "39"), ("A", "40"), ("b", "41")], TSO):
        row, watermark = {"k": ("varchar", k), "v": ("bit", v)}, {"watermarkTs": ts + 1}
        if k == "A":
            gone = {"k": ("varchar", "a"), "v": ("bit", "39")}
            values.append(canal("DELETE", gone, database="m", table="b", pkNames=["k"], _tidb={"commitTs": ts}))
        values.append(canal("INSERT", row, database="m", table="b", pkNames=["k"], _tidb={"commitTs": ts}))
        values.append(compact({"type": "TIDB_WATERMARK", "database": "", "table": "", "_tidb": watermark}))
        run_all(tidb_target, decoded_lot("canal-json", values))
    messages, count = lot(values), len(values)
    settings = Settings.model_validate({"name": "bridge", "timezone": "UTC"})
    assert session.rows("SELECT k, v + 0 FROM m.b ORDER BY k") == [("A", 40), ("b", 41)]
    assert verify(tidb_target, settings, "canal-json", [messages], {("cdc", 0): count}).is_equal


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("DECIMAL(5,2)", "1.239"), ("DECIMAL(5,2) UNSIGNED", "-1.00"), ("VARCHAR(3)", "'abc '")),
        *(("VARCHAR(3)", "'abcd'"), ("TINYINT", "300"), ("BINARY(2)", "x'010203'"), ("ENUM('a')", "'b'")),
        ("BIT(2)", "7"),
    ],
)
def test_nothing_is_shortened(tidb_target: str, session: Session, column: str, value: str) -> None:
    """A value that does not fit stops the bridge, and is not there."""
    session.execute(f"CREATE TABLE m.n (id INT PRIMARY KEY, v {column})")
    row = row_change(10, "n", ["id", "v"], ["id"], after=[1, Literal(value)])
    with pytest.raises(ApplyError):
        run_all(tidb_target, in_one_partition([row, boundary(11)]))
    assert session.rows("SELECT * FROM m.n") == []


@pytest.mark.usefixtures("session")
def test_a_server_that_is_killed_in_mid_run(tidb: TiDB) -> None:
    """Started again it has what was committed, and the pipeline goes on there by itself."""
    with opened(tidb.url, [("cdc", 0)], retry_seconds=120) as pipeline:
        pipeline.take(in_one_partition([row_change(10, "t", ["id"], ["id"], after=[1]), boundary(11)]))
        tidb.kill()
        tidb.restart()
        pipeline.take(in_one_partition([row_change(12, "t", ["id"], ["id"], after=[2]), boundary(13)], 2))
    assert sql(tidb.url, "SELECT id FROM m.t ORDER BY id") == [(1,), (2,)]


# As a source


def test_from_a_tso_and_verified_at_one(tidb_target: str, target: str, tmp_path: Path) -> None:
    """A copy is followed from the TSO at which it was made.  Verify reads the source at the target's moment: what TiDB
    committed then or later is not looked at; damage of the target is found."""
    pair = Pair(tidb_target, target, tmp_path)
    pair.both("CREATE DATABASE m; CREATE TABLE m.t (id INT PRIMARY KEY, v INT)")
    copied, followed, later = (
        int(sql(tidb_target, statement, COMMIT_TS)[0][0])
        for statement in ("INSERT INTO m.t VALUES (1, 1)", "INSERT INTO m.t VALUES (2, 2)", "UPDATE m.t SET v = 7")
    )
    pair.damage("INSERT INTO m.t VALUES (1, 1)")
    rows = [
        row_change(copied, "t", ["id", "v"], ["id"], after=[1, 100]),  # it is in the copy, whatever it says
        row_change(followed, "t", ["id", "v"], ["id"], after=[2, 2]),
        boundary(later),
    ]
    run_all(target, in_one_partition(rows), start_ts=copied + 1)
    report = pair.verify("m.*")
    assert (said(report), report.moment) == (set(), later)
    pair.damage("UPDATE m.t SET v = 9 WHERE id = 2")
    assert said(pair.verify("m.*")) == {"t 2 different v"}


def test_verify_of_a_target_and_its_fixes(tidb_target: str, target: str, tmp_path: Path) -> None:
    """A damaged TiDB is found out, and the file of fixes makes it equal."""
    pair = Pair(target, tidb_target, tmp_path)
    pair.both(
        "CREATE DATABASE m; CREATE TABLE m.t (id INT PRIMARY KEY, v VARCHAR(9), d DECIMAL(9,3), z INT(6) ZEROFILL,"
        r" e ENUM('a\\b', '😀')) COLLATE utf8mb4_bin;"
        r"INSERT INTO m.t VALUES (1, 'a', 1.5, 7, 'a\\b'), (2, 'é', -0.001, 0, '😀'), (3, NULL, NULL, NULL, NULL)"
    )
    assert said(pair.verify("m.*")) == set()
    pair.damage("USE m; UPDATE t SET v = 'A' WHERE id = 1; DELETE FROM t WHERE id = 2; INSERT INTO t (id) VALUES (4)")
    assert said(pair.verify("m.*")) == {"t 1 different v", "t 2 missing", "t 4 extra"}
    pair.run_fix()
    assert said(pair.verify("m.*")) == set()


def test_rows_are_read_back_at_their_commit_ts(tidb_target: str, session: Session) -> None:
    """Each as it was then, and none where there was none, whatever has become of it."""
    commits = []
    for statement in ("INSERT INTO m.t VALUES (1, 1)", "UPDATE m.t SET v = 2", "DELETE FROM m.t"):
        session.execute(statement)
        commits.append(int(session.value(COMMIT_TS)))
    session.execute("ALTER TABLE m.t DROP COLUMN v")
    upstream = UpstreamRows(Target(tidb_target, role="upstream"), retry_seconds=5)
    try:
        found = [upstream.rows_at(ts, T, [{"id": "1"}])[0] for ts in (commits[0] - 1, *commits)]
    finally:
        upstream.close()
    assert found == [None, {"id": "1", "v": "1"}, {"id": "1", "v": "2"}, None]


def _becomes(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + FAR_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what


@pytest.mark.parametrize("key", ["PRIMARY KEY", ""])
def test_the_last_member_of_a_long_set(tidb_target: str, session: Session, key: str) -> None:
    """Its number is beyond a BIGINT, and TiDB computes with none of those (error 1690): verify takes the names."""
    columns, handle, members = ["id", "s"], ["id"] * bool(key), ",".join(f"'m{n}'" for n in range(1, 65))
    log = [schema_change(5, f"CREATE TABLE t (id INT {key}, s SET({members}))")]
    log += [
        row_change(10 + n, "t", columns, handle, after=[n, Literal(str(value))])
        for n, value in enumerate([0, 1 << 63, (1 << 63) + 1, (1 << 64) - 1, 64])
    ]
    log.append(row_change(30, "t", columns, handle, before=[1, Literal(str(1 << 63))], after=[1, 0]))
    events = in_one_partition([*log, boundary(40)])
    session.execute("DROP TABLE m.t")
    run_all(tidb_target, events)
    assert verify_events(tidb_target, events).is_equal
    session.execute("UPDATE m.t SET s = 'm64' WHERE id IN (0, 2)")
    [table] = verify_events(tidb_target, events).tables
    assert table.different == 2 if key else table.result == "not covered"


@pytest.mark.parametrize("at", [0, 63])
def test_a_long_set_with_a_member_without_letters(tidb_target: str, session: Session, at: int) -> None:
    """Its number is asked for only where there are no letters, so that it is small enough."""
    names = [f"m{n}" for n in range(63)]
    names.insert(at, "")
    members = ",".join(f"'{name}'" for name in names)
    log = [schema_change(5, f"CREATE TABLE t (id INT PRIMARY KEY, s SET({members}))")]
    values = [0, 1 << at, 1 << 63, (1 << 64) - 1, 3, None] * 500
    log += [
        row_change(10, "t", ["id", "s"], ["id"], after=[n, value if value is None else Literal(str(value))])
        for n, value in enumerate(values)
    ]
    events = in_one_partition([*log, boundary(40)])
    session.execute("DROP TABLE m.t")
    run_all(tidb_target, events)
    assert verify_events(tidb_target, events).is_equal
    session.execute("DELETE FROM m.t WHERE id = 6")
    session.execute(f"INSERT INTO m.t VALUES (6, {1 << at})")
    assert verify_events(tidb_target, events).tables[0].different == 1
