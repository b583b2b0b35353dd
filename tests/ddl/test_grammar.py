"""Statements at random in three grammars: what a server is sent is settled, and is SQL."""

from __future__ import annotations

from functools import cache

import pytest
from pymysql.err import MySQLError

from bridge.ddl.rewrite import Rewritten, rewrite
from bridge.ddl.rule import Site, UnsupportedError
from bridge.mysql.connection.session import Session
from bridge.mysql.probe import probe
from bridge.mysql.server_errors import error_code
from tests.support.ddl_grammar import Grammar
from tests.support.ddl_words import ALL, on
from tests.support.pipelines import admin

SEEDS = [pytest.param(range(100), id="some"), pytest.param(range(1000, 8000), id="many", marks=pytest.mark.soak)]
SYNTAX_ERRORS = {1064, 1149, 1911, 1912, 3776}
"""No SQL; an option or its value that nobody knows."""


@cache
def statements(seeds: range) -> list[str]:
    return sorted({Grammar(seed).statement() for seed in seeds})


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("flavour", ALL)
def test_a_second_pass_changes_nothing(flavour: str, seeds: range) -> None:
    """What a flavour is sent, it would be sent again as it is; nothing is refused."""
    held, said_again = set(), []
    for statement in statements(seeds):
        try:
            found = on(flavour, statement)
        except UnsupportedError as error:
            held.add(str(error)[:40])
            continue
        assert isinstance(found, Rewritten), (statement, found)
        again = found if found.text is None else on(flavour, found.text)
        if not isinstance(again, Rewritten) or again.text != found.text:
            said_again.append((statement, found.text, again))
    assert said_again == []
    assert len(held) <= 7


@pytest.mark.parametrize("seeds", SEEDS)
def test_servers_can_read_it(url: str, seeds: range) -> None:
    """No server is sent what it cannot read."""
    with admin(url) as session:
        session.execute("CREATE DATABASE app")
        session.execute("USE app")
        site = Site(probe(session))
        unread = [statement for statement in statements(seeds) if not _is_read(session, site, statement)]
        assert unread == []


def _is_read(session: Session, site: Site, statement: str) -> bool:
    """Whether the server understands what it is sent; one that is held is sent nothing."""
    try:
        found = rewrite(statement, "app", site)
    except UnsupportedError:
        return True
    assert isinstance(found, Rewritten), statement
    try:
        session.execute("SET @text = %s", (found.text or "DO 0",))
        session.execute("PREPARE p FROM @text")
    except MySQLError as error:
        return error_code(error) not in SYNTAX_ERRORS
    return True
