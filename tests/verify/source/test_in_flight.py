"""How long verify waits for changes that are on their way."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import orjson
import pytest

from bridge.config import VerifySection
from bridge.model import Advance, PartitionStart
from bridge.mysql.connection.target import Target
from bridge.mysql.state.progress import ProgressTable
from bridge.verify.compare.checksums import KeyValues
from bridge.verify.compare.row_diff import ComparedColumns, Difference, DifferenceKind, by_key
from bridge.verify.source.recheck import InFlight, Motion, SecondsLeft, settle
from tests.support.models import Clock
from tests.support.verify_servers import Pair, Quiet, execute, said
from tests.support.watched import status, tso
from tests.verify.compare.test_row_diff import SHAPE, rows

HOUR = 3600.0
GRACE = 10.0


@dataclass
class Waiting:
    """Verify waits; a bridge tells what `motion` says of it, and moves with each look if it is moving."""

    clock: Clock = field(default_factory=Clock)
    lag: float = 0.0
    silent: float = 0.0
    is_moving: bool = True
    is_running: bool = True
    words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock.now, self._looks = 1000.0, 0
        self.in_flight = InFlight(self._look, GRACE, self.words.append, self.clock)

    def _look(self) -> Motion | None:
        self._looks += self.is_moving
        motion = Motion(self.clock.now - self.silent, self.lag, (self._looks,), "a schema change is held")
        return motion if self.is_running else None

    def lasts(self, seconds: float) -> bool:
        """Whether the wait goes on for so many seconds, and no longer than two more."""
        for _ in range(round(seconds)):
            if self.in_flight.seconds_left(3) <= 0:
                return False
            self.clock.now += 1.0
        self.clock.now += 2.0
        return self.in_flight.seconds_left(3) <= 0


def test_with_everything_in_the_target_only_the_grace_is_waited_for() -> None:
    """However long ago the source last changed."""
    waiting = Waiting(silent=4.0)
    assert waiting.lasts(GRACE)
    assert waiting.words[0] == "reading 3 rows again for 10 s at most: their changes may be on their way"
    assert waiting.in_flight.stuck == ""


def test_a_target_that_is_behind_is_waited_for_as_long_as_it_is_behind() -> None:
    """A heartbeat from before the wait does not tell that it has come as far; the words tell how far it is."""
    waiting = Waiting(lag=20.0, silent=4.0)
    assert waiting.lasts(20.0 + GRACE)
    assert waiting.words[0] == "reading 3 rows again for 30 s at most: the target is 20 s behind"


def test_the_grace_begins_when_the_target_has_caught_up() -> None:
    """An old log is behind by years, until it was read."""
    waiting = Waiting(lag=1e8)
    assert not waiting.lasts(300)
    waiting.lag = 0.0
    assert waiting.lasts(GRACE)


def test_a_target_that_is_behind_and_does_not_move_is_not_waited_for() -> None:
    """A pipeline may be paused for days; the report says that rows may be on their way."""
    waiting = Waiting(lag=HOUR, is_moving=False)
    assert waiting.lasts(30)
    assert "3,600 s behind and has not moved for 3" in waiting.in_flight.stuck
    assert waiting.in_flight.stuck.endswith("(a schema change is held)")


def test_a_bridge_that_ends_meanwhile_is_not_waited_for() -> None:
    """Nothing is on its way any more."""
    waiting = Waiting(lag=HOUR)
    assert not waiting.lasts(5)
    waiting.is_running = False
    assert waiting.lasts(0)


def idle_pipeline(pair: Pair, hours: float, **lags: Any) -> None:
    """A bridge runs a pipeline without boundaries whose last change is so many hours old."""
    table, began, ended = ProgressTable("bridge"), tso(time.time() - 2 * hours * HOUR), tso(time.time() - hours * HOUR)
    session = Target(pair.target).connect()
    table.create(session)
    table.begin(session, began)
    assert table.advance(session, 0, Advance(began, ended, {("cdc", 0): PartitionStart(5, 0, 5, began)}))
    told = replace(status(time.time(), 5), applied_ts=ended, resolved_ts=ended, **lags).document()
    session.execute(
        "INSERT INTO _bridge.owner VALUES ('bridge', 0, 'h', 1, '', NOW(3), NOW(3) + INTERVAL 1 HOUR, %s)",
        (orjson.dumps(told).decode(),),
    )
    session.commit()
    session.close()


class Hearing(Quiet):
    """Keeps what verify says."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def stage(self, words: str) -> None:
        """What verify does, or waits for."""
        self.words.append(words)


@pytest.mark.parametrize("key", [" PRIMARY KEY", ""])
def test_a_damaged_row_of_an_idle_source_is_told_within_the_grace(pair: Pair, key: str) -> None:
    """Without boundaries nothing but the bridge's own word tells that everything is in the target."""
    pair.both(f"CREATE DATABASE app; CREATE TABLE app.t (id INT{key}, v INT); INSERT INTO app.t VALUES (1, 1), (2, 2)")
    idle_pipeline(pair, 2, source_lag=0.0, apply_lag=0.0)
    execute(pair.target, "DELETE FROM app.t WHERE id = 2")
    began = time.monotonic()
    report = pair.verify("app.*", grace_seconds=1.0)
    assert said(report) == {"t 2 missing" if key else "t 2 2 missing"}
    assert time.monotonic() - began < 20


def test_verify_says_what_it_waits_for(pair: Pair) -> None:
    """Which table, how many rows, and how long at most."""
    pair.both("CREATE DATABASE app; CREATE TABLE app.t (id INT PRIMARY KEY); INSERT INTO app.t VALUES (1)")
    idle_pipeline(pair, 2, source_lag=0.0, apply_lag=0.0)
    execute(pair.target, "DELETE FROM app.t")
    hearing = Hearing()
    pair.verify("app.*", grace_seconds=1.0, listener=hearing)
    assert "app.t: reading 1 row again for 1 s at most: their changes may be on their way" in hearing.words
    assert VerifySection().grace_seconds == GRACE


def differing(source: str, target: str) -> list[Difference]:
    """Row 1 as both have it; `-` is none."""
    left, right = ([] if value == "-" else rows(f"1,{value}") for value in (source, target))
    return by_key(SHAPE, left, right)


def within(seconds: float) -> SecondsLeft:
    """So many seconds from now."""
    end = time.monotonic() + seconds
    return lambda _: end - time.monotonic()


def test_a_row_that_comes_to_agree_was_on_its_way() -> None:
    """However late within the time."""
    looks = count()

    def look(keys: Sequence[KeyValues]) -> list[Difference]:
        assert keys == [(b"1",)]
        return differing("5", "5" if next(looks) == 3 else "4")

    assert settle(SHAPE, differing("5", "4"), look, within(5.0)) == []


def test_a_row_that_never_stands_still_agrees_when_the_target_follows() -> None:
    """The target shows what the source had some looks before; also when the row comes and goes."""
    looks = count(10)
    assert settle(SHAPE, differing("9", "6"), lambda _: differing(str(n := next(looks)), str(n - 3)), within(5.0)) == []
    states = iter(["5", "-", "6", "7"])
    targets = iter(["1", "1", "1", "-"])
    assert settle(SHAPE, differing("5", "1"), lambda _: differing(next(states), next(targets)), within(5.0)) == []


def test_a_row_that_stays_wrong_is_wrong() -> None:
    """Whatever the source does meanwhile; the last look is what is reported."""
    looks = count(10)
    [left] = settle(SHAPE, differing("9", "4"), lambda _: differing(str(next(looks)), "4"), within(0.1))
    assert left.actual == rows("1,4")[0]
    [extra] = settle(SHAPE, differing("-", "4"), lambda _: differing("-", "4"), within(0.1))
    assert extra.expected is None


def test_rows_without_a_key_must_be_wrong_at_every_look() -> None:
    """A row is its own key."""
    shape = ComparedColumns(SHAPE.expected, SHAPE.actual, ())
    extra = Difference(DifferenceKind.EXTRA, rows("1,4")[0], None, rows("1,4")[0])
    answers = iter([[extra], []])
    assert settle(shape, [extra], lambda _: next(answers), within(5.0)) == []
    assert settle(shape, [extra], lambda _: [extra], within(0.2)) == [extra]
