"""Set-ups in which locks and KILL do not reach every bridge are named."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mysql.probe import find_limits
from tests.support.pipelines import admin


@pytest.mark.parametrize("fixture", ["target", "old_target", "mysql_target", "old_mysql_target"])
@pytest.mark.server
def test_one_server_has_no_limits(fixture: str, request: pytest.FixtureRequest) -> None:
    """Whatever it is."""
    url = request.getfixturevalue(fixture)
    with admin(url) as first, admin(url) as second:
        assert list(find_limits(first, second)) == []


def test_a_balancer_is_found(target: str, old_target: str) -> None:
    """Two connections that lead to two servers."""
    with admin(target) as first, admin(old_target) as second:
        (limit,) = find_limits(first, second)
    assert limit.is_fatal
    assert "two connections lead to two servers" in limit.what


def test_a_proxy_with_ids_of_its_own_is_found(target: str) -> None:
    """The id in the handshake is not that of the server."""
    with admin(target) as first, admin(target) as second:
        first.connection_id += 1_000_000
        (limit,) = find_limits(first, second)
    assert not limit.is_fatal
    assert "ProxySQL" in limit.what


@pytest.mark.parametrize(
    ("variable", "words"),
    [(("wsrep_on", "ON"), "a node of Galera"), (("group_replication_single_primary_mode", "OFF"), "several primaries")],
)
def test_a_cluster_is_named(variable: tuple[str, str], words: str) -> None:
    """By its variables.  test_galera.py shows a real node of Galera."""

    class Member:
        connection_id = 7

        def value(self, *_: Any) -> int:
            return 7

        def rows(self, *_: Any) -> list[tuple[str, str]]:
            return [variable]

    member: Any = Member()
    assert [limit.is_fatal for limit in find_limits(member, member) if words in limit.what] == [False]
