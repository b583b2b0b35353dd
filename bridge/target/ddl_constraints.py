"""Checks that are not enforced, and the names of constraints."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.target.capabilities import Feature
from bridge.target.ddl_classes import ChangeClass as C
from bridge.target.ddl_classes import StatementKind
from bridge.target.ddl_rules import Edit, LeftOut, Omission, Site, remove
from bridge.target.ddl_shape import ADDS_COLUMN, Item, Shape, at, span_of, with_depth


def checks(statement: Shape, site: Site) -> Iterator[Edit | Omission]:
    """A check that is not enforced cannot be had where all are: it is left out, or dropped."""
    if site.target.has(Feature.NOT_ENFORCED):
        return
    for item in statement.items:
        if item.change is C.ALTER_CHECK:
            yield from _altered_check(item, site)
        elif item.change in {C.ADD_CHECK, *ADDS_COLUMN}:
            yield from _check_options(item)


def _altered_check(item: Item, site: Site) -> Iterator[Edit | Omission]:
    words = [token.word for token in item.tokens]
    if not site.target.has(Feature.CHECKS):
        yield Omission(item, "the target keeps no checks")
    elif words[-2:] == ["NOT", "ENFORCED"]:
        yield Edit(*span_of(item.tokens), f"DROP CONSTRAINT {item.tokens[2].text}", "the target enforces every check")
    else:
        yield Omission(item, "the target enforces every check that it has")


def _check_options(item: Item) -> Iterator[Edit | Omission]:
    for i, token, depth in with_depth(item.definition):
        if token.word != "ENFORCED" or depth != 0:
            continue
        if at(item.definition, i - 1).word != "NOT":
            yield remove([token], "the target enforces every check")
        elif item.change is C.ADD_CHECK:
            yield Omission(item, "the target would enforce this check", LeftOut("constraint", item.name or ""))
        else:
            start = max(j for j, before in enumerate(item.definition[:i]) if before.word == "CHECK")
            start -= 2 if at(item.definition, start - 2).word == "CONSTRAINT" else 0
            name = item.definition[start + 1].name if item.definition[start].word == "CONSTRAINT" else ""
            yield remove(item.definition[start : i + 1], f"the target would enforce this check {name}".rstrip())


def dropped_checks(statement: Shape, site: Site) -> Iterator[Edit | Omission]:
    """DROP CHECK is DROP CONSTRAINT elsewhere; what was left out is not dropped."""
    for item in statement.items:
        if item.change is not C.DROP_CONSTRAINT or not item.name:
            continue
        if item.tokens[1].word == "CHECK" and not site.target.has(Feature.CHECKS):
            yield Omission(item, "the target keeps no checks")
        elif site.around.lacks(statement.classified.tables[0], LeftOut("constraint", item.name)):
            yield Omission(item, "the target was never given this check")
        elif item.tokens[1].word == "CHECK" and not site.target.has(Feature.DROP_CHECK):
            yield Edit(*item.tokens[1].span, "CONSTRAINT", "the target drops a check by DROP CONSTRAINT")


def constraint_names(statement: Shape, site: Site) -> Iterator[Edit | Omission]:
    """Constraints without a name get the one that the upstream's server has chosen, by which later statements drop
    them.  MySQL: table_ibfk_1, table_chk_1 (manual, CREATE TABLE); TiDB: fk_1, table_chk_1."""
    if statement.classified.kind not in {StatementKind.CREATE_TABLE, StatementKind.ALTER_TABLE}:
        return
    table = statement.classified.tables[0]
    prefixes = {
        C.ADD_FOREIGN_KEY: "fk_" if site.source == "tidb" else f"{table.table}_ibfk_",
        C.ADD_CHECK: f"{table.table}_chk_",
    }
    used: dict[str, int] = {}
    for item in statement.items:
        prefix = prefixes.get(item.change)
        if prefix is None or item.name is not None:
            continue
        used[prefix] = used.get(prefix, site.around.next_number(table, prefix) - 1) + 1
        name = f"CONSTRAINT `{(prefix + str(used[prefix])).replace('`', '``')}` "
        first = item.definition[1 if item.definition[0].word == "CONSTRAINT" else 0]
        start = item.definition[0].span[0]
        yield Edit(start, first.span[0], name, "named as upstream, where a later statement may drop it by its name")
