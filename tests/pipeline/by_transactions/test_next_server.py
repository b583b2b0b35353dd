"""Which transactions a server has, as real servers tell; where they have them is tried with a failover (soak)."""

from __future__ import annotations

import pytest

from bridge.errors import UnansweredError
from bridge.local.server import free_port
from bridge.mysql.connection.target import Target
from bridge.pipeline.by_transactions.reached import _missing, lacks
from tests.support.pipelines import sql

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(
    ("server", "gtid", "why"),
    [
        ("target", "0-77-5", "does not have all of 0-77-5"),
        ("mysql_target", f"{UUID}:5", f"does not have all of {UUID}:1-5"),
    ],
)
def test_a_server_that_lacks_a_transaction(server: str, gtid: str, why: str, request: pytest.FixtureRequest) -> None:
    """Another server than that of the messages is not asked for it."""
    url = request.getfixturevalue(server)
    ((id_,),) = sql(url, "SELECT @@GLOBAL.server_id")
    assert lacks(Target(url), str(id_), [gtid]).endswith(why)
    assert "is not the one that the messages come from" in lacks(Target(url), f"{id_}1", [gtid])


def test_a_server_of_another_kind(target: str) -> None:
    """It does not know the question."""
    ((id_,),) = sql(target, "SELECT @@GLOBAL.server_id")
    assert "does not tell: 1193" in lacks(Target(target), str(id_), [f"{UUID}:5"])


def test_a_server_that_does_not_answer() -> None:
    """It is asked again, as a source that is away is read again."""
    with pytest.raises(UnansweredError, match="the upstream does not answer, which is asked after a failover"):
        lacks(Target(f"mysql://u@127.0.0.1:{free_port()}/"), "1", ["0-1-5"])


@pytest.mark.parametrize(
    ("state", "missing"),
    [
        ("0-1-5", []),
        ("0-1-9,0-2-30", []),
        ("0-1-4,0-2-30", ["0-1-5"]),
        ("1-1-9,0-2-30", ["0-1-5"]),
        (",", ["0-1-5"]),
        (",0-1-5", []),
    ],
)
def test_a_state_of_mariadb(state: str, missing: list[str]) -> None:
    """It has the last number of each domain and server."""
    assert _missing(["0-1-5"], state.split(",")) == missing
