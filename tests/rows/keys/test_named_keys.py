"""The keys that messages name, and those of the target."""

from __future__ import annotations

import pytest

from bridge.events import NO_KEY, NO_PRIMARY_KEY, SEP
from bridge.model import Column, Table, TableName
from bridge.rows.key_steps import key_conflict


def table(*keys: str, primary: str = "") -> Table:
    """A table of a, b, c and hidden, of which messages hold all but hidden; its keys in letters."""
    columns = {name: Column(name, "int", None, False, False, None) for name in ("a", "b", "c", "hidden")}
    named = tuple(tuple(key.split(",")) for key in ((primary,) if primary else ()) + keys)
    return Table(TableName("d", "t"), columns, named, named, primary=tuple(primary.split(",")) if primary else ())


@pytest.mark.parametrize(
    ("target", "said", "why"),
    [
        (table(primary="a"), "a", ""),
        (table(primary="a"), "A", ""),
        (table(primary="a"), "", ""),
        (table(primary="a,b"), "a", ""),  # rows of other a differ there too
        (table(primary="a"), "a b", "has the key (a, b), but the target's has the primary key (a)"),
        (table(primary="a"), "b", "has the key (b), but the target's has the primary key (a)"),
        (table("b", primary="a"), "b", "has the key (b), but the target's has the primary key (a)"),
        (table(primary="a"), NO_PRIMARY_KEY, "has no primary key, but the target's has the primary key (a)"),
        (table(primary="a"), NO_KEY, "has no key, but the target's has the primary key (a)"),
        (table("a"), NO_PRIMARY_KEY, ""),  # TiCDC names no unique key
        (table("a"), NO_KEY, "has no key, but the target's has the unique key (a)"),
        (table("a", "b"), "b", ""),
        (table("a"), "b", "has the key (b), but the target's has the unique key (a)"),
        (table(primary="hidden"), NO_KEY, ""),  # the target's own, which messages do not hold
        (table("a", primary="hidden"), "a", ""),
        (table(), NO_KEY, ""),
        (table(), "a", ""),
        (table(primary="a"), "a __dbz__physicalTableIdentifier", ""),
    ],
)
def test_which_keys_go_together(target: Table, said: str, why: str) -> None:
    """A key of the target is right where each of its values has one row upstream: it holds a key of the upstream."""
    said = said.replace(" ", SEP)
    assert (
        key_conflict(target, SEP.join(["a", "b", "c"]), said).removeprefix("by its message, the upstream's table ")
        == why
    )
