"""The fixtures of conftest.py that other tests rely on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pymysql
import pytest
from confluent_kafka.admin import AdminClient


@pytest.mark.parametrize("turn", [1, 2])
def test_target_is_empty_for_every_test(target: str, turn: int) -> None:
    """What one test makes, whatever its name, the next does not find."""
    parts = urlsplit(target)
    password = parts.password or ""
    with pymysql.connect(host=parts.hostname, port=parts.port or 0, user=parts.username, password=password) as one:
        cursor = one.cursor()
        cursor.execute("SHOW DATABASES")
        assert len(cursor.fetchall()) == 4, f"turn {turn}"
        cursor.execute("CREATE DATABASE `odd``name`")
        cursor.execute("CREATE TABLE `odd``name`.parent (a INT PRIMARY KEY)")
        cursor.execute("CREATE DATABASE child")
        cursor.execute("CREATE TABLE child.t (a INT REFERENCES `odd``name`.parent (a))")


def test_topics_are_a_tests_own(kafka: Any, topic: Callable[..., str]) -> None:
    """Every topic has a name of its own and as many partitions as asked for."""
    one, three = topic(), topic(3)
    assert one != three
    found = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=10).topics
    assert [len(found[name].partitions) for name in (one, three)] == [1, 3]
