"""A night of faults: at random, those of one part one after the other, those of different parts at the same time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock

from tests.support.fault_lists import faults_of, left_out
from tests.support.faults import Fault
from tests.support.grounds import FAILURES, Ground

EVERY_SECONDS = 10.0
SHARE_OF_NIGHT = 0.25
"""A fault that lasts for a larger share of the night does not come."""
PATIENCE_SECONDS = 900.0
"""For a recovery, beside other faults that may last for minutes."""
START_SECONDS = 120.0
"""For a bridge that was killed: on a busy machine it needs a minute to start, and would otherwise be killed again and
again before it has applied anything."""
NO_RECOVERY = "no recovery from "


@dataclass
class Report:
    """What a series of faults did."""

    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def note(self, fault: str, seconds: float) -> None:
        """How long it took from the beginning of a fault until what was committed upstream then was in the target."""
        self.seconds[fault].append(seconds)

    @property
    def lost(self) -> list[str]:
        """The faults that the bridge did not get over."""
        return [name for name in self.seconds if name.startswith(NO_RECOVERY)]

    def table(self, ground: Ground, **totals: object) -> str:
        """All of it, and how the bridge fared."""
        rows: list[tuple[str, object, str]] = [("fault", "times", "longest stall")]
        rows += [(fault, len(took), f"{max(took):.1f} s") for fault, took in sorted(self.seconds.items())]
        every = [took for of_fault in self.seconds.values() for took in of_fault]
        rows += [("all", len(every), f"{max(every, default=0):.1f} s")]
        rows += [(f"bridge ended with {code}", times, "") for code, times in sorted(ground.ends.items())]
        rows += [(reason, times, "") for reason, times in ground.reasons.most_common()]
        rows += [("starts of the bridge", ground.starts, ""), ("left out", left_out(ground), "")]
        rows += [("peak memory, MiB", f"{ground.peak_bytes / 2**20:,.0f}", "")]
        rows += [(name.replace("_", " "), value, "") for name, value in totals.items()]
        return "\n".join(f"{name:36} {value!s:>12} {longest:>13}".rstrip() for name, value, longest in rows)


class Night:
    """Faults on a ground, until the night is over."""

    def __init__(self, ground: Ground, report: Report, seconds: float) -> None:
        self._ground, self._report, self._seconds = ground, report, seconds
        found = faults_of(ground)
        self._often = [fault for fault in found if fault.seconds is None]
        self._once = sorted((self._time_of(fault), fault.name, fault) for fault in found if self._comes(fault))
        self._busy = {fault.part: Lock() for fault in found}

    def _comes(self, fault: Fault) -> bool:
        return fault.seconds is not None and fault.seconds <= SHARE_OF_NIGHT * self._seconds

    def _time_of(self, fault: Fault) -> float:
        return self._ground.dice.uniform(0, self._seconds - (fault.seconds or 0))

    def pass_by(self) -> None:
        """Returns when the bridge has got over everything; raises what went wrong in a fault."""
        began, happening = time.monotonic(), list[Future[None]]()
        with ThreadPoolExecutor(256, "fault") as pool:
            while (now := time.monotonic() - began) < self._seconds:
                fault = self._next(now)
                if fault is not None:
                    happening.append(pool.submit(self._happen, fault))
                time.sleep(EVERY_SECONDS)
                self._look(happening)
            while not all(one.done() for one in happening):
                time.sleep(1)
                self._look(happening)
        for one in happening:
            one.result()

    def _look(self, happening: Iterable[Future[None]]) -> None:
        self._ground.feed.check()
        for one in happening:
            if one.done():
                one.result()
        if self._busy["target"].acquire(blocking=False):
            try:
                self._ground.revive()
            finally:
                self._busy["target"].release()

    def _next(self, now: float) -> Fault | None:
        """A fault of a part to which nothing happens at the moment, which is locked; one whose time has come first."""
        due = [fault for at, _, fault in self._once if at <= now]
        often = self._ground.dice.sample(self._often, len(self._often))
        for fault in [*due, *often]:
            if self._busy[fault.part].acquire(blocking=False):
                self._once = [entry for entry in self._once if entry[2] is not fault]
                return fault
        return None

    def _happen(self, fault: Fault) -> None:
        began, boundary = time.monotonic(), self._ground.feed.bank.boundary()
        try:
            with suppress(ProcessLookupError, *FAILURES):
                fault.act(self._ground)
            if fault.part == "bridge":
                self._ground.recovered(boundary, START_SECONDS)
        finally:
            self._busy[fault.part].release()
        is_over = self._ground.recovered(boundary, PATIENCE_SECONDS)
        self._report.note(fault.name if is_over else f"{NO_RECOVERY}{fault.name}", time.monotonic() - began)
