"""Tables whose key became another one in the middle of the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import pytest

from bridge.events import Event
from bridge.verify.log import recompute
from bridge.verify.report import TableResult
from tests.generated.verifying import verify_events
from tests.support.pipelines import run_all
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change
from tests.support.verify_servers import execute

Row = tuple[int, ...]
Change = tuple[Row | None, Row | None]
Step = str | Change

FIRST, SECOND, GONE = (None, (1, 7)), (None, (2, 7)), ((1, 7), None)
UNTOLD = (None, (1, 8))
"""An update of which the message does not hold the row before."""

HISTORIES: dict[str, tuple[str, list[Step]]] = {
    "one of two equal ones went": ("a", [FIRST, SECOND, GONE, "b"]),
    "one of two equal ones moved": ("a", [FIRST, SECOND, ((1, 7), (1, 9)), "b"]),
    "a part of the key": ("a,b", [FIRST, (None, (1, 8)), ((1, 8), None), "a"]),
    "the row before was not told": ("a", [FIRST, UNTOLD, "b"]),
    "a longer key": ("a", [FIRST, UNTOLD, "a,b"]),
    "no key before": ("", [FIRST, (None, (1, 8)), ((1, 8), None), "a"]),
    "a copy went before": ("", [FIRST, FIRST, GONE, "a"]),
    "no key since": ("a", [FIRST, UNTOLD, ""]),
    "no key in between": ("a", [FIRST, SECOND, "", FIRST, GONE, GONE, "b"]),
    "there and back": ("a", [FIRST, (None, (2, 8)), "b", ((1, 7), (2, 7)), ((2, 7), None), "a"]),
    "changes since": ("a", [FIRST, SECOND, GONE, "b", ((2, 7), (3, 8)), (None, (2, 7))]),
}


def events(key: str, steps: Sequence[Step], columns: Sequence[str] = ("a", "b")) -> Iterator[Event]:
    """The events of a table with this key, and of steps: row changes, and the keys that it gets."""
    lines = [*(f"{column} INT NOT NULL" for column in columns), *([f"PRIMARY KEY ({key})"] if key else [])]
    yield schema_change(5, f"CREATE TABLE t ({', '.join(lines)})")
    for ts, step in enumerate(steps, 10):
        if isinstance(step, str):
            changes = ["DROP PRIMARY KEY"] * bool(key) + [f"ADD PRIMARY KEY ({step})"] * bool(step)
            yield schema_change(ts, f"ALTER TABLE t {', '.join(changes)}")
            key = step
        else:
            yield row_change(ts, "t", columns, key.split(","), before=step[0], after=step[1])
    yield boundary(900)


def verified(target: str, log: Sequence[Event]) -> TableResult:
    """What verify finds of what the bridge wrote."""
    [table] = verify_events(target, in_one_partition(log)).tables
    return table


@pytest.mark.parametrize("case", HISTORIES)
def test_rows_keep_their_identity(target: str, case: str) -> None:
    """Rows that share a value of the present key were several under the key before: what became of one of them says
    nothing of the others."""
    log = list(events(*HISTORIES[case]))
    execute(target, "CREATE DATABASE m")
    run_all(target, in_one_partition(log))
    assert verified(target, log).is_equal


def random_steps(random: Random, key: str) -> Iterator[Step]:
    """A history in which every key is unique, and which tells the row before where there is no key."""
    rows: list[Row] = []
    for _ in range(random.randrange(5, 40)):
        new, old = tuple(random.randrange(3) for _ in "abc"), random.choice([None, *rows])
        chance = random.random()
        if chance < 0.12:
            wanted = random.choice(["a", "b", "c", "a,b", "b,c", "a,c", ""])
            if wanted != key and unique(wanted, rows):
                key = wanted
                yield key
        elif old and chance < 0.4:
            rows.remove(old)
            yield old, None
        else:
            left = list(rows)
            if old:
                left.remove(old)
            if unique(key, [*left, new]):
                rows = [*left, new]
                is_same = (
                    old and key and all(old["abc".index(part)] == new["abc".index(part)] for part in key.split(","))
                )
                yield (None if is_same and random.random() < 0.5 else old), new


def unique(key: str, rows: Sequence[Row]) -> bool:
    """Whether rows may have this key."""
    values = [tuple(row["abc".index(part)] for part in key.split(",")) for row in rows] if key else []
    return len(set(values)) == len(values)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.soak if seed > 5 else ()) for seed in range(300)]
)
def test_random_histories(target: str, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Whatever keys a table had: what the bridge wrote is equal, and a row that is lost or too much is found."""
    monkeypatch.setattr(recompute, "_EVENTS_PER_BUCKET", 4)
    random = Random(seed)
    key = random.choice(["a", "b", "a,b", ""])
    log = list(events(key, list(random_steps(random, key)), "abc"))
    execute(target, "CREATE DATABASE m")
    run_all(target, in_one_partition(log))
    assert verified(target, log).is_equal
    [[count]] = execute(target, "SELECT COUNT(*) FROM m.t")
    execute(target, "INSERT INTO m.t VALUES (9, 9, 9)")
    assert verified(target, log).extra == 1
    execute(target, f"DELETE FROM m.t WHERE a {'<' if count else '='} 9 LIMIT 1")
    assert verified(target, log).missing == min(1, count)


ONE, OTHER = ["a", "b"], ["b"]
MADE = "CREATE TABLE t (a INT NOT NULL, b INT NOT NULL"


def rows_of_a(ts: int, handle: Sequence[str], *changes: Change) -> list[Event]:
    """Row changes of a table (a, b)."""
    return [row_change(ts + n, "t", ONE, handle, before=old, after=new) for n, (old, new) in enumerate(changes)]


@pytest.mark.parametrize(
    ("made", "handle", "change"),
    [
        (f"{MADE}, UNIQUE ka (a))", ["a"], "DROP INDEX ka ON t"),
        (f"{MADE}, UNIQUE ka (a))", ["a"], "ALTER TABLE t DROP KEY ka, ADD UNIQUE (b)"),
        (f"{MADE})", [], "CREATE UNIQUE INDEX ub ON t (b)"),
        (f"{MADE}, PRIMARY KEY (a))", ["a"], "ALTER TABLE t DROP COLUMN a, ADD PRIMARY KEY (b)"),
        (f"{MADE}, PRIMARY KEY (a))", ["a"], "ALTER TABLE t DROP PRIMARY KEY, RENAME COLUMN a TO x, ADD UNIQUE (b)"),
        (f"{MADE}, PRIMARY KEY (a))", ["a"], "ALTER TABLE t DROP PRIMARY KEY, MODIFY a BIGINT, ADD UNIQUE (b)"),
    ],
)
def test_changes_of_keys(target: str, made: str, handle: list[str], change: str) -> None:
    """Any statement that makes or drops a unique key counts, also one that takes the key's column away."""
    log = [schema_change(5, made), *rows_of_a(10, handle, FIRST, SECOND, GONE), schema_change(20, change), boundary(90)]
    execute(target, "CREATE DATABASE m")
    run_all(target, in_one_partition(log))
    assert verified(target, log).is_equal
    execute(target, "DELETE FROM m.t")
    assert verified(target, log).missing == 1


def test_keys_that_are_not_told(target: str) -> None:
    """Where messages name two keys of one time, verify gives no verdict on rows, and writes no statement.  (The bridge
    refuses the second one: it is given the log without that.)"""
    made, rows = schema_change(5, f"{MADE}, PRIMARY KEY (a))"), rows_of_a(10, ["a"], FIRST)
    end = [schema_change(20, "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (a, b)"), boundary(90)]
    execute(target, "CREATE DATABASE m")
    run_all(target, in_one_partition([made, *rows, *end]))
    found = verified(target, [made, *rows, *rows_of_a(11, ["b"], SECOND), *end])
    assert (found.missing, found.extra, found.different) == (0, 0, 0)
    assert "its key was changed" in found.schema[0]


def test_parts_of_rows_below_another_key(target: str) -> None:
    """The same where rows came in parts: that an image does not fit the present key, which its row never had, is not
    said of the table."""
    log = [
        schema_change(5, "CREATE TABLE t (a INT PRIMARY KEY, b INT NOT NULL, big TEXT)"),
        row_change(10, "t", ("a", "b", "big"), ["a"], after=(1, 7, "x"))._replace(by_time=True),
        row_change(11, "t", ("a", "b", "big"), ["a"], after=(2, 8, "x"))._replace(by_time=True),
        row_change(12, "t", ("a", "b", "big"), ["a"], before=(1, 7, "x"), after=(1, 7, None))._replace(by_time=True),
        row_change(13, "t", ("a", "b"), ["a"], before=(1, 7))._replace(by_time=True),
        schema_change(14, "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (b, big(3))"),
        row_change(15, "t", ("a", "b", "big"), ["b", "big"], before=(2, 8, "x"), after=(3, 8, "x"))._replace(
            by_time=True
        ),
    ]
    execute(target, "CREATE DATABASE m")
    run_all(target, in_one_partition(log), boundary_seconds=None)
    assert execute(target, "SELECT a, b, big FROM m.t") == [(3, 8, "x")]
    [said] = verified(target, log).schema
    assert said.startswith("its key was changed, and the messages do not tell")


def test_deletes_by_a_key_that_is_not_named(target: str) -> None:
    """Messages that name no key, as of a table without a primary one, and whose deletes hold the present key alone,
    were by that key: a column that is dropped behind the last of them has not changed it."""
    log = [
        schema_change(5, "CREATE TABLE t (a INT NOT NULL, b INT, c INT, UNIQUE KEY (a))"),
        row_change(10, "t", ("a", "b", "c"), (), after=(1, 7, 7)),
        row_change(11, "t", ("a", "b", "c"), (), after=(2, 7, 7)),
        row_change(12, "t", ("a",), (), before=(1,)),
        schema_change(13, "ALTER TABLE t DROP COLUMN c"),
        boundary(900),
    ]
    execute(target, "CREATE DATABASE m")
    run_all(target, in_one_partition(log))
    assert verified(target, log).is_equal
    execute(target, "DELETE FROM m.t")
    assert verified(target, log).missing == 1


ALTERED = {
    "the handle went": (["DROP INDEX kk"], "b", ()),
    "another one went": (["DROP INDEX uw"], "a", ()),
    "both for a third": (["DROP INDEX kk, DROP INDEX uw, ADD UNIQUE z (c)"], "c", ()),
    "a primary key": (["ADD PRIMARY KEY (b)"], "b", ("b",)),
    "twice": (["DROP INDEX kk", "DROP INDEX uw, ADD UNIQUE z (c)"], "c", ()),
}


@pytest.mark.parametrize("since", ["nothing", "insert", "delete"])
@pytest.mark.parametrize("altered", ALTERED)
def test_deletes_tell_the_key_of_their_time(target: str, altered: str, since: str) -> None:
    """Canal-JSON names no key but a primary one; with delete-only-output-handle-key-columns its deletes hold the handle
    alone, which was another unique key before.  Verify refused the table, or missed a row that was deleted."""
    execute(target, "CREATE DATABASE m")
    columns = ("a", "b", "c")
    actions, handle, key = ALTERED[altered]
    log = [
        schema_change(5, "CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, c INT NOT NULL, UNIQUE kk(a), UNIQUE uw(b))")
    ]
    log += [row_change(10, "t", columns, [], after=[n, n + 10, n + 20]) for n in range(4)]
    log += [row_change(11, "t", ["a"], [], before=[1])]
    log += [row_change(12, "t", columns, [], before=[2, 12, 22], after=[2, 12, 99])]
    log += [schema_change(13 + n, f"ALTER TABLE t {action}") for n, action in enumerate(actions)]
    if since != "nothing":
        log += [row_change(20, "t", columns, key, after=[1, 11, 21])]
    if since == "delete":
        log += [row_change(21, "t", [handle], key, before=[3 + 10 * columns.index(handle)])]
    log += [boundary(900)]
    run_all(target, in_one_partition(log))
    table = verified(target, log)
    assert table.is_equal, table
    assert table.rows == 3 + (since == "insert")
