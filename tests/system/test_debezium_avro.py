"""Genuine messages of Debezium's connector in Avro, with a schema registry, through the whole bridge."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import bridge
from tests.support.golden import differences_from, tables_of
from tests.support.registry import schemas_of, serving

pytestmark = pytest.mark.usefixtures("spark")

SCRIPTS: dict[str, tuple[str, ...]] = {
    "bank": (),
    "keys": ("--filter", "!ks.child"),  # whose rows a foreign key cascades to
    # VARCHAR of the character set binary comes as text, and a comma in an ENUM with a backslash, as in JSON
    "all_types": ("--filter", "!types.cs", "--filter", "!types.enums"),
}
"""The captures, and what they need."""


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("server", ["target", "mysql_target"])
def test_a_replay_ends_at_the_upstreams_state(
    avro_captures: Path, server: str, script: str, request: pytest.FixtureRequest
) -> None:
    """Tables and rows are the upstream's at its end, and each schema was asked for once."""
    url, folder = request.getfixturevalue(server), avro_captures / "debezium-avro"
    with serving(schemas_of(folder / f"{script}.schemas.json")) as registry:
        ended = bridge(
            *("replay", "--input", str(folder / f"{script}.jsonl"), "--target", url, "--registry", registry.url),
            *("--set", "ddl.source=mysql-8", *SCRIPTS[script]),
        )
    assert ended.code == 0, ended.err
    assert "in Avro" in ended.err + ended.out
    held = tables_of(folder / f"{script}.expected.json")
    tables = [one for one in held if f"!{one.schema}.{one.table}" not in SCRIPTS[script]]
    assert differences_from(tables, url) == []
    assert len(registry.asked) == len(set(registry.asked))
