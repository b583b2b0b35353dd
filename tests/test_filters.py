"""Table filters in TiCDC's rule syntax."""

from __future__ import annotations

import pytest

from bridge.errors import UsageError
from bridge.filters import TableFilter

WANTED = [
    ([], "any.thing"),
    (["db.t"], "db.t"),
    (["db.t"], "DB.T"),
    (["db.*"], "db.t"),
    (["*.*"], "db.t"),
    (["d?.t[0-9]"], "db.t7"),
    (["db.t[!0-9]"], "db.tx"),
    (["db?.t"], "db1.t"),
    (["*.log_*"], "db.log_1"),
    (["`a.b`.`c*`"], "a.b|c*"),
    (["表.*"], "表.值"),
    (["db.a", "db.b"], "db.b"),
    (["db.*", "!db.t", "db.t"], "db.t"),
    (["!db.t"], "db.other"),
    (["!db.t"], "other.t"),
    (["*.*", "!db.*"], "db2.t"),
    (["db.a+b"], "db.a+b"),
]

LEFT_OUT = [
    (["db.t"], "db.t2"),
    (["db.t"], "xdb.t"),
    (["db.t?"], "db.t"),
    (["db.t[0-9]"], "db.tx"),
    (["db.t[!0-9]"], "db.t5"),
    (["db.*", "!db.t"], "db.t"),
    (["!db.t"], "db.t"),
    (["!db.t"], "DB.T"),
    (["*.*", "!*.log_*"], "db.log_1"),
    (["!db.*", "db.t"], "db.u"),
    (["`c*`.*"], "cx.t"),
    (["db.a+b"], "db.aab"),
]

UNREADABLE = ["db", "", ".", "db.", ".t", "a.b.c", "`db.t"]


def named(name: str) -> tuple[str, str]:
    schema, _, table = name.partition("|") if "|" in name else name.partition(".")
    return schema, table


@pytest.mark.parametrize(("rules", "name"), WANTED)
def test_wanted(rules: list[str], name: str) -> None:
    """The last rule that matches decides, without regard to case; when the first leaves out, the rest stays in."""
    assert TableFilter(tuple(rules))(*named(name))


@pytest.mark.parametrize(("rules", "name"), LEFT_OUT)
def test_left_out(rules: list[str], name: str) -> None:
    """What no rule takes in, or a later one leaves out, is not replicated."""
    assert not TableFilter(tuple(rules))(*named(name))


@pytest.mark.parametrize("rule", UNREADABLE)
def test_unreadable(rule: str) -> None:
    """A rule that cannot be read is named at once, with how to write it."""
    with pytest.raises(UsageError) as raised:
        TableFilter(("db.t", rule))
    assert repr(rule) in str(raised.value)
    assert "db.table" in raised.value.mend


@pytest.mark.parametrize(
    ("rules", "schema", "accepted"),
    [
        ([], "db", True),
        (["db.t"], "db", True),
        (["db.t"], "other", False),
        (["*.*", "!db.*"], "db", False),
        (["*.*", "!db.t"], "db", True),
        (["!db.t"], "db", True),
        (["!db.*"], "db", False),
        (["!db.*", "db.t"], "db", True),
    ],
)
def test_database_level_changes(rules: list[str], schema: str, accepted: bool) -> None:
    """A change of a database is wanted when any of its tables may be."""
    assert TableFilter(tuple(rules)).accepts_schema(schema) == accepted
