"""Which transactions are in the target, or were due, as their ids tell.

A GTID is the same on every server that has the transaction, so it tells a copy behind a failover too, where files and
positions are others.  GTIDs need not come in their order (a replica with parallel workers), and some never come (a
GRANT), so what was due is kept as runs of numbers.  A file and position tells of one server only: the last one is kept.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import orjson

from bridge.protocols.debezium.transactions import IN_FILE, told_id
from bridge.protocols.values.event_time import NUMBER_DIGITS, text_before_number

MOST_RUNS: Final = 64
_OF_MARIADB: Final = re.compile(r"([0-9]+-)[0-9]+-")


@lru_cache(maxsize=1 << 16)  # the rows, BEGIN and END of a transaction, in several micro-batches
def numbered(id_: str) -> tuple[str, int, bool] | None:
    """Gives whose number an id ends with (a server's uuid; MariaDB: a domain), that number, and whether it is a GTID;
    None for an id without one."""
    head = id_[:-NUMBER_DIGITS]
    if head.endswith(IN_FILE):
        return head, int(id_[-NUMBER_DIGITS:]), False
    if not head or not id_[-NUMBER_DIGITS:].isdigit():
        return None
    of_mariadb = _OF_MARIADB.fullmatch(head)
    is_gtid = of_mariadb is not None or text_before_number(told_id(id_)) is not None
    return of_mariadb[1] if of_mariadb else head, int(id_[-NUMBER_DIGITS:]), is_gtid


def is_gtid(id_: str) -> bool:
    """Tells whether the id of a transaction is a GTID."""
    told = numbered(id_)
    return told is not None and told[2]


def domain_of(id_: str) -> str | None:
    """Gives the domain of a GTID of MariaDB; None for another id."""
    told = numbered(id_)
    return told[0][:-1] if told and told[0][:-1].isdigit() else None


def is_before(id_: str, other: str) -> bool:
    """Tells whether two GTIDs are of one server (MariaDB: one domain), and the first has the lower number."""
    one, two = numbered(id_), numbered(other)
    return one is not None and two is not None and one[2] and one[0] == two[0] and one[1] < two[1]


def is_same_place(one: str | None, other: str | None) -> bool:
    """Tells whether two schema changes have one place in the binlog, or one GTID."""
    if one is None or other is None:
        return False
    return one == other or (one.split("\n")[-1] == other.split("\n")[-1] and is_gtid(one.split("\n")[-1]))


@dataclass
class Past:
    """The transactions that are in the target or were due.

    runs: of each server (MariaDB: domain) the numbers, as the first and the one behind the last of each run, ascending;
        of the oldest runs at most MOST_RUNS are kept.
    """

    runs: dict[str, list[int]] = field(default_factory=dict)

    def text(self) -> str:
        """Writes it as progress keeps it."""
        return orjson.dumps(self.runs).decode()

    @classmethod
    def read(cls, text: str) -> Past:
        """Reads what `text` wrote; "" is nothing."""
        return cls(orjson.loads(text) if text else {})

    def add(self, id_: str) -> None:
        """Notes a transaction, if its id tells a number."""
        if (told := numbered(id_)) is None:
            return
        key, number, of_gtid = told
        runs = self.runs.setdefault(key, [])
        if not of_gtid:
            runs[:] = [max([number, *runs[:1]]), max([number + 1, *runs[1:]])]
        elif runs and runs[-1] == number:
            runs[-1] = number + 1
        elif (at := bisect_right(runs, number)) % 2 == 0:  # it is in none
            runs[at:at] = [number, number + 1]
            for edge in (at + 1, at - 1):
                if 0 <= edge < len(runs) - 1 and runs[edge] == runs[edge + 1]:
                    del runs[edge : edge + 2]
            del runs[: -2 * MOST_RUNS]

    def has(self, id_: str) -> bool | None:
        """Tells whether it has a GTID; None for another id, and for one below all runs that are kept."""
        if (told := numbered(id_)) is None or not told[2]:
            return None
        runs = self.runs.get(told[0], [])
        at = bisect_right(runs, told[1])
        return None if runs and at == 0 else at % 2 == 1

    def is_behind(self, id_: str) -> bool:
        """Tells whether it has a transaction, as far as its id tells; those below all runs that are kept are."""
        told = numbered(id_)
        runs = self.runs.get(told[0], []) if told else []
        return bool(told and runs and (told[1] < runs[0] or bisect_right(runs, told[1]) % 2 == 1))

    def is_forgotten(self, id_: str) -> bool:
        """Tells whether a GTID is below the runs that are kept of as many as can be."""
        told = numbered(id_)
        runs = self.runs.get(told[0], []) if told else []
        return len(runs) == 2 * MOST_RUNS and self.has(id_) is None

    @property
    def domains(self) -> list[str]:
        """MariaDB's domains."""
        return [key[:-1] for key in self.runs if key[:-1].isdigit()]
