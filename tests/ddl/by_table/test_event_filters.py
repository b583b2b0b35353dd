"""Event filters: what they leave out, by TiCDC's settings and names."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from bridge.config import Settings
from bridge.ddl.by_table.event_filters import event_filter
from bridge.ddl.parser import Classified, classify
from bridge.ddl.policy import Verdict, ddl_rules
from bridge.events import Kind
from bridge.settings.load import load_settings

A, H, I = Verdict.ALLOW, Verdict.HOLD, Verdict.IGNORE  # noqa: E741
LOG = ("shop.log",)

SAID: list[tuple[tuple[str, ...], str, Verdict]] = [
    (("drop table",), "DROP TABLE log", I),
    (("drop table",), "DROP TABLE orders", A),
    (("drop table",), "DROP TABLE log, orders", H),
    *((("drop table",), "DROP TABLE other.log", A), (("DROP  Table",), "drop table SHOP.LOG", I)),
    *((("drop table",), "TRUNCATE log", A), (("truncate table",), "TRUNCATE log", I)),
    (("rename table",), "RENAME TABLE log TO old_log", I),
    (("rename table",), "RENAME TABLE new_log TO log", A),
    (("rename table",), "RENAME TABLE log TO old_log, new_log TO log", H),
    (("rename table",), "ALTER TABLE log RENAME old_log", I),
    (("add column",), "ALTER TABLE log ADD COLUMN a INT, ADD COLUMN b INT", I),
    (("add column",), "ALTER TABLE log ADD COLUMN a INT, ADD INDEX (a)", H),
    (("add column", "add index"), "ALTER TABLE log ADD COLUMN a INT, ADD INDEX (a)", I),
    (("alter table",), "ALTER TABLE log ADD COLUMN a INT, DROP INDEX b", I),
    (("alter table",), "CREATE INDEX a ON log (a)", I),
    *((("alter table",), "TRUNCATE log", A), (("all ddl",), "TRUNCATE log", I)),
    *((("all ddl",), "DROP DATABASE shop", I), (("drop schema",), "DROP DATABASE shop", I)),
    (("drop database",), "DROP DATABASE shop", I),
    (("drop database",), "DROP DATABASE other", A),
    (("drop table",), "DROP DATABASE shop", A),
    (("set default value",), "ALTER TABLE log ALTER a SET DEFAULT 1", I),
    (("exchange table partition",), "ALTER TABLE log EXCHANGE PARTITION p WITH TABLE orders", H),
    (("all dml", "insert", "update", "delete"), "TRUNCATE log", A),
]


@pytest.mark.parametrize(("events", "statement", "verdict"), SAID)
def test_schema_changes(events: tuple[str, ...], statement: str, verdict: Verdict) -> None:
    """A statement is left out when all that it does to all of its tables is; when only a part is, it is held."""
    change = classify(statement, "shop")
    assert isinstance(change, Classified)
    decision = ddl_rules(event_filters=(event_filter(LOG, events, ()),)).decide(change, statement)
    assert decision.verdict is verdict
    assert bool(decision.reason) is (verdict is not A)


@pytest.mark.parametrize(
    ("pattern", "statement", "verdict"),
    [
        ("^drop", "DROP TABLE log", I),
        ("^drop", "DROP DATABASE shop", I),
        ("^drop", "ALTER TABLE log DROP COLUMN a", A),
        ("add column", "ALTER TABLE log ADD COLUMN a INT, ADD INDEX (a)", I),
        ("add column", "ALTER TABLE orders ADD COLUMN a INT", A),
    ],
)
def test_statements(pattern: str, statement: str, verdict: Verdict) -> None:
    """A regular expression leaves out the whole statement, whatever the case of its letters."""
    change = classify(statement, "shop")
    assert isinstance(change, Classified)
    assert ddl_rules(event_filters=(event_filter(LOG, (), (pattern,)),)).decide(change, statement).verdict is verdict


def test_filters_add_up() -> None:
    """What several filters leave out together is left out; what a policy refuses otherwise is refused."""
    one, other = event_filter(LOG, ("add column",), ()), event_filter(("shop.*",), ("add index",), ())
    rules = ddl_rules(refuse=("add index",), event_filters=(one, other))
    for statement, verdict in (
        ("ALTER TABLE log ADD COLUMN a INT, ADD INDEX (a)", I),
        ("ALTER TABLE orders ADD INDEX (a)", I),
        ("ALTER TABLE other.log ADD INDEX (a)", Verdict.REFUSE),
    ):
        change = classify(statement, "shop")
        assert isinstance(change, Classified)
        assert rules.decide(change, statement).verdict is verdict


def test_ticdcs_settings_can_be_pasted(tmp_path: Path) -> None:
    """The keys are those of TiCDC."""
    file = tmp_path / "bridge.toml"
    file.write_text(
        '[[event_filters]]\nmatcher = ["shop.log", "!shop.log_1"]\nignore-event = ["delete", "drop table"]\n'
        'ignore-sql = ["^truncate"]\n[[event_filters]]\nmatcher = ["*.audit"]\nignore-event = ["all dml"]\n'
    )
    settings = load_settings(file, {}, {}, [])
    assert settings.row_rules.ignored_kinds("shop", "log") == {Kind.DELETE}
    assert settings.row_rules.ignored_kinds("SHOP", "Audit") == {Kind.INSERT, Kind.UPDATE, Kind.DELETE}
    assert not settings.row_rules.ignored_kinds("shop", "orders")
    assert len(settings.ddl_rules().event_filters) == 2
    assert not Settings().row_rules


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ignore-event": ["delete"]}, "no matcher"),
        ({"matcher": ["a.b"]}, "leaves nothing out"),
        ({"matcher": ["a"], "ignore-event": ["delete"]}, "cannot be read"),
        ({"matcher": ["a.b"], "ignore-event": ["delet"]}, "did you mean delete?"),
        ({"matcher": ["a.b"], "ignore-event": ["multi schema change"]}, "classes of its actions"),
        ({"matcher": ["a.b"], "ignore-event": ["remove table partitioning"]}, "alter table partitioning"),
        ({"matcher": ["a.b"], "ignore-sql": ["(?=a)"]}, "cannot be read"),
        ({"matcher": ["a.b"], "ignore-insert-value-expr": "id > 1"}, "ignore-insert-value-expr"),
        ({"matcher": ["a.b"], "ignore-update-old-value-expr": "id > 1"}, "ignore-update-old-value-expr"),
        ({"matcher": ["a.b"], "ignore-update-new-value-expr": "id > 1"}, "ignore-update-new-value-expr"),
        ({"matcher": ["a.b"], "ignore-delete-value-expr": "id > 1"}, "ignore-delete-value-expr"),
    ],
)
def test_what_cannot_be_done_is_named(given: dict[str, object], words: str) -> None:
    """A filter that would do something else than TiCDC's is a usage error."""
    with pytest.raises(ValidationError) as raised:
        Settings.model_validate({"event_filters": [given]})
    assert words in str(raised.value)
