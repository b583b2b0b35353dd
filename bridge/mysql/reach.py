"""Tells whether GET_LOCK and KILL, by which a pipeline has one owner, reach every connection of the target.

A proxy may give connections ids of its own, by which nothing can be killed; behind a balancer two connections may lead
to two servers, which know nothing of each other's locks.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import NamedTuple

from bridge.mysql.connection.session import Session

_ONE_NODE = "a lock and a KILL reach one node only"


class Reach(NamedTuple):
    """Something about the target that ownership depends on.  is_fatal: a pipeline must not run so."""

    is_fatal: bool
    what: str
    fix: str


def find_limits(first: Session, second: Session) -> Iterator[Reach]:
    """Gives what limits locks and KILL, of two sessions that were opened one after the other."""
    yield from _behind_proxy(first, second)
    yield from _of_cluster(first)


def _behind_proxy(first: Session, second: Session) -> Iterator[Reach]:
    lock = f"bridge:check:{uuid.uuid4().hex}"
    first.value("SELECT GET_LOCK(%s, 0)", (lock,))
    holder, seen = (session.value("SELECT IS_USED_LOCK(%s)", (lock,)) for session in (first, second))
    if holder is not None and seen is None:
        yield Reach(
            True,
            "two connections lead to two servers that do not share locks: a second bridge would not be kept out, and"
            " --take-over could not end the first; only the epoch in the progress row would keep it from writing",
            "give --target an address that leads to one server at a time: the writer, not a balancer",
        )
    elif holder != first.connection_id:
        yield Reach(
            False,
            f"the server knows this connection by another id ({holder}) than the client ({first.connection_id}), as"
            " behind ProxySQL: --take-over ends no connection of another bridge, and waits for the server to do so",
            "give --target the address of the server itself",
        )


def _of_cluster(session: Session) -> Iterator[Reach]:
    rows = session.rows(
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'group_replication_single_primary_mode')"
    )
    variables = {str(name).lower(): str(value).upper() for name, value in rows}
    fix = "give --target an address that leads to one node at a time, for all bridges of this name"
    if variables.get("wsrep_on", "OFF") == "ON":
        yield Reach(False, f"the target is a node of Galera: {_ONE_NODE}", fix)
    if variables.get("group_replication_single_primary_mode", "ON") == "OFF":
        yield Reach(False, f"the target is a member of Group Replication with several primaries: {_ONE_NODE}", fix)
