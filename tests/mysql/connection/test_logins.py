"""Logging in to MySQL 8, whose accounts are identified by caching_sha2_password unless told otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import make_url

from bridge.errors import TargetError
from bridge.mysql.connection.target import Target
from tests.support.pipelines import admin

PASSWORD = "pä 'ß 密"


@pytest.fixture
def account(mysql: Any) -> Iterator[str]:
    """The URL of an account with a password, on a server without TLS that has seen no login of it."""
    with admin(mysql.url) as session:
        session.execute("CREATE USER guest@'%%' IDENTIFIED WITH caching_sha2_password BY %s", [PASSWORD])
        yield str(make_url(mysql.url).set(username="guest"))
        session.execute("DROP USER guest@'%'")


def test_a_password_is_sent_encrypted(account: str) -> None:
    """Without TLS the password goes by the server's public key, as long as the server has not cached it."""
    for _ in ("not cached", "cached"):
        session = Target(account, password=PASSWORD).connect()
        assert session.value("SELECT CURRENT_USER()") == "guest@%"
        session.close()


def test_a_wrong_password(account: str) -> None:
    """It is told as what it is."""
    with pytest.raises(TargetError, match="the target refused the login: 1045"):
        Target(account, password="other").connect()
