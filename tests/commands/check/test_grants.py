"""Grants as servers print them, against what is needed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import bridge
from bridge.commands.check.finding import Level
from bridge.commands.check.grants import OWN, REPLICATED, SERVER, GrantFacts, judge, read_grants
from bridge.ddl.server_features import Flavour

NEEDED = ", ".join(need.privilege for need in REPLICATED)
OWNED = ", ".join(need.privilege for need in OWN)
EXACTLY = (
    "GRANT PROCESS ON *.* TO `bridge`@`%` IDENTIFIED BY PASSWORD '*E56A114692FE0DE073F9A1DD68A00EEB9703F3F1'",
    f"GRANT {NEEDED} ON `shop`.* TO `bridge`@`%`",
    rf"GRANT {OWNED} ON `\_bridge`.* TO `bridge`@`%`",
)


def test_the_manual_lists_exactly_these() -> None:
    """No right more, and none less, in any of the three places."""
    page = (Path(bridge.__file__).parent / "manual" / "deployment.md").read_text(encoding="utf-8")
    listed: dict[str, set[str]] = {}
    for where, rights in re.findall(r"^\| target, (.+?) \| (.+?) \|", page, re.MULTILINE):
        listed.setdefault(where, set()).update(re.split("[,;] ", rights))
    needed = {"each replicated database": REPLICATED, "`_bridge`": OWN, "`*.*` (not TiDB)": SERVER}
    assert listed == {where: {need.privilege for need in needs} for where, needs in needed.items()}


@pytest.mark.parametrize(
    ("line", "database", "has"),
    [
        ("GRANT ALL PRIVILEGES ON *.* TO 'root'@'localhost' WITH GRANT OPTION", "shop", True),
        ("GRANT SELECT, INSERT ON *.* TO `a`@`%`", "shop", True),
        ("GRANT SELECT, INSERT ON *.* TO `a`@`%`", None, True),
        ("GRANT INSERT ON `shop`.* TO `a`@`%`", "shop", True),
        ("GRANT INSERT ON `shop`.* TO `a`@`%`", "shops", False),
        ("GRANT INSERT ON `shop`.* TO `a`@`%`", None, False),
        ('GRANT INSERT ON "shop".* TO "a"@"%"', "shop", True),
        ("GRANT INSERT ON `shop%`.* TO `a`@`%`", "shop_1", True),
        (r"GRANT INSERT ON `shop\_1`.* TO `a`@`%`", "shop_1", True),
        (r"GRANT INSERT ON `shop\_1`.* TO `a`@`%`", "shop11", False),
        ("GRANT INSERT ON `shop_1`.* TO `a`@`%`", "shop_1", True),
        ("GRANT INSERT ON `a``b`.* TO `a`@`%`", "a`b", True),
        ("GRANT INSERT ON `shop`.`orders` TO `a`@`%`", "shop", False),
        ("GRANT SELECT (id), INSERT (id, v) ON `shop`.* TO `a`@`%`", "shop", False),
        ("GRANT SELECT, EXECUTE ON `shop`.* TO `a`@`%`", "shop", False),
        ("GRANT `writers`@`%` TO `a`@`%`", "shop", False),
        ("GRANT PROXY ON ''@'%' TO 'root'@'localhost' WITH GRANT OPTION", "shop", False),
        ("GRANT USAGE ON *.* TO `a`@`%`", "shop", False),
    ],
)
def test_a_line_of_show_grants(line: str, database: str | None, has: bool) -> None:
    """What counts is on all of a database, by its name or a pattern."""
    assert read_grants([line]).allows("INSERT", database) == has


def test_a_name_hides_a_pattern() -> None:
    """The server takes the closest of the grants on databases, and no other."""
    held = read_grants(["GRANT INSERT ON `shop%`.* TO `a`@`%`", "GRANT SELECT ON `shop`.* TO `a`@`%`"])
    assert (held.allows("INSERT", "shop"), held.allows("INSERT", "shops")) == (False, True)


def test_a_partial_revoke() -> None:
    """MySQL 8 can take away for one database what an account has on all."""
    held = read_grants(["GRANT INSERT ON *.* TO `a`@`%`", "REVOKE INSERT ON `shop`.* FROM `a`@`%`"])
    assert (held.allows("INSERT", "shop"), held.allows("INSERT", "other")) == (False, True)


def test_exactly_what_is_needed_is_enough() -> None:
    """Three lines, all well."""
    found = list(judge(GrantFacts("'bridge'@'%'", EXACTLY), Flavour.MYSQL, "_bridge", ["shop"]))
    assert [finding.level for finding in found] == [Level.OK] * 3


@pytest.mark.parametrize(
    "need", [(n, "_bridge") for n in OWN] + [(n, "shop") for n in REPLICATED], ids=lambda n: f"{n[1]} {n[0][0]}"
)
def test_each_missing_one_is_named(need: tuple[tuple[str, str, str], str]) -> None:
    """With the GRANT that gives it; what a pipeline can do without is a warning."""
    (privilege, purpose, without), database = need
    lines = [line.replace(rf"{privilege}, ", "", 1).replace(f", {privilege} ON", " ON") if database in line else line
             for line in EXACTLY]  # fmt: skip
    found = list(judge(GrantFacts("'bridge'@'%'", tuple(lines)), Flavour.MYSQL, "_bridge", ["shop"]))
    [said] = [finding for finding in found if finding.level is not Level.OK]
    assert said.level is (Level.WARN if without else Level.FAIL)
    assert (without or purpose) in said.what
    assert said.fix == f"GRANT {privilege} ON `{database}`.* TO 'bridge'@'%'"
