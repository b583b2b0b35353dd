"""The block of real output in the manual's page on verify."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.support.command import bridge
from tests.support.shown_output import assert_shown, blocks
from tests.support.verify_servers import Pair


def test_a_damaged_target_is_shown_as_it_is(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that is missing, rows that differ, one that is missing: what verify prints of them."""
    pair.both(
        "CREATE DATABASE shop; USE shop;"
        "CREATE TABLE orders (id INT PRIMARY KEY, customer INT, total DECIMAL(10,2), note VARCHAR(20),"
        " KEY by_customer (customer));"
        "INSERT INTO orders SELECT seq, seq MOD 1000, seq / 7, CONCAT('note ', seq) FROM seq_1_to_20000;"
        "CREATE TABLE stock (sku VARCHAR(20) PRIMARY KEY, n INT);"
        "INSERT INTO stock SELECT CONCAT('sku', seq), seq FROM seq_1_to_2000; ANALYZE TABLE orders, stock"
    )
    pair.damage(
        "ALTER TABLE shop.orders DROP KEY by_customer; UPDATE shop.orders SET note = 'note 4711 ' WHERE id = 4711;"
        "DELETE FROM shop.orders WHERE id = 19600; UPDATE shop.stock SET n = NULL WHERE sku = 'sku9'"
    )
    monkeypatch.chdir(tmp_path)
    command = blocks()["verify"].command
    for name, url in (("mysql://reader@up:3306/", pair.source), ("mysql://bridge@db:3306/", pair.target)):
        command = command.replace(name, url)
    assert_shown("verify", bridge(*shlex.split(command)[1:]).out)
