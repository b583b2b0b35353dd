"""Rewrites checks that are not enforced, the names of constraints, and indexes: hidden ones, kinds that a target lacks,
and later statements about those."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.classes import StatementKind
from bridge.ddl.clauses import ADDS_COLUMN, Item, StatementParts, at, closing, span_of, with_depth
from bridge.ddl.lexer import Token
from bridge.ddl.rule import Edit, Omission, OmittedObject, Site, UnsupportedError, remove
from bridge.ddl.server_features import Feature, Flavour
from bridge.model import TableName
from bridge.quoting import quote_name


def checks(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Leaves out or drops a check that is not enforced, where the target enforces all checks.  It leaves out every
    check where the target keeps none, since such a server reads only some forms (MySQL 8.0 manual, CHECK Constraints:
    before 8.0.16 CHECK without a name)."""
    yield from _void_checks(statement, site)
    if site.target.has(Feature.NOT_ENFORCED):
        return
    for item in statement.items:
        if _is_void(item, statement, site):
            continue
        if item.change is C.ADD_CHECK and not site.target.has(Feature.CHECKS):
            yield Omission(item, "the target keeps no checks")
        elif item.change is C.ALTER_CHECK:
            yield from _altered_check(item, site)
        elif item.change in {C.ADD_CHECK, *ADDS_COLUMN}:
            yield from _check_options(item)


def _void_checks(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Leaves out the checks that the source reads and does not keep: TiDB's, unless tidb_enable_check_constraint is ON,
    and even then those of a column that ALTER TABLE adds (TiDB manual, "Constraints").  NOT ENFORCED is no substitute:
    their names may be taken, and their conditions be none to the target."""
    for item in statement.items:
        if not _is_void(item, statement, site):
            continue
        if item.change not in ADDS_COLUMN:
            name = (item.name or "") if item.change is C.ADD_CHECK else None
            yield Omission(item, _VOID, None if name is None else OmittedObject("constraint", name))
            continue
        column = item.definition
        for start, _, end in _checks_in(column):
            words = [at(column, end + n).word for n in (1, 2)]
            end += 2 if words == ["NOT", "ENFORCED"] else words[0] == "ENFORCED"
            yield remove(column[start : end + 1], _VOID)


_VOID: Final = "TiDB does not enforce this check (ddl.tidb_checks)"


def _is_void(item: Item, statement: StatementParts, site: Site) -> bool:
    """Tells whether the source keeps none of the checks of an item."""
    is_added = item.change in ADDS_COLUMN and statement.classified.kind is StatementKind.ALTER_TABLE
    if not site.is_from_tidb or (site.enforces_checks and not is_added):
        return False
    is_drop = item.change is C.DROP_CONSTRAINT and item.tokens[1].word in {"CHECK", "CONSTRAINT"}
    return is_drop or item.change in {C.ADD_CHECK, C.ALTER_CHECK, *ADDS_COLUMN}


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
            yield Omission(item, "the target would enforce this check", OmittedObject("constraint", item.name or ""))
        else:
            start = max(j for j, before in enumerate(item.definition[:i]) if before.word == "CHECK")
            start -= 2 if at(item.definition, start - 2).word == "CONSTRAINT" else 0
            name = item.definition[start + 1].name if item.definition[start].word == "CONSTRAINT" else ""
            yield remove(item.definition[start : i + 1], f"the target would enforce this check {name}".rstrip())


def dropped_checks(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Replaces DROP CHECK by DROP CONSTRAINT where the target needs that.  A check that was left out is not dropped."""
    for item in statement.items:
        if item.change is not C.DROP_CONSTRAINT or not item.name or _is_void(item, statement, site):
            continue
        if item.tokens[1].word == "CHECK" and not site.target.has(Feature.CHECKS):
            yield Omission(item, "the target keeps no checks")
        elif site.around.lacks(statement.classified.tables[0], OmittedObject("constraint", item.name)):
            yield Omission(item, "the target never got this check")
        elif item.tokens[1].word == "CHECK" and not site.target.has(Feature.DROP_CHECK):
            yield Edit(*item.tokens[1].span, "CONSTRAINT", "the target drops a check by DROP CONSTRAINT")
        elif item.tokens[1].word == "CONSTRAINT" and not site.target.has(Feature.DROP_CONSTRAINT):
            yield _dropped_by_kind(item, site.around.constraint_kind(statement.classified.tables[0], item.name))


def _dropped_by_kind(item: Item, kind: str) -> Edit | Omission:
    """Replaces DROP CONSTRAINT where the target lacks it by the DROP of the constraint's kind."""
    what = {"FOREIGN KEY": "FOREIGN KEY", "UNIQUE": "INDEX", "CHECK": "CHECK"}.get(kind)
    if what is None:
        return Omission(item, "the target keeps no checks, and has no other constraint of that name")
    return Edit(*item.tokens[1].span, what, "the target has no DROP CONSTRAINT")


def inline_references(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Handles REFERENCES of a column: TiDB and MySQL before 9 read it but make no foreign key of it; MariaDB makes
    one."""
    source_makes_keys = site.source == "mariadb"
    if source_makes_keys and site.target.has(Feature.INLINE_REFERENCES):
        return
    for item in statement.items:
        for i, token, depth in with_depth(item.definition):
            if item.change not in ADDS_COLUMN or depth != 0 or i < 2 or token.word != "REFERENCES":
                continue
            end = _end_of_references(item.definition, i)
            if source_makes_keys:
                raise UnsupportedError(
                    "the target makes no foreign key of REFERENCES behind a column, as the source does; replace the"
                    f" statement by one with FOREIGN KEY ({item.definition[0].text}) REFERENCES ..."
                )
            yield remove(item.definition[i:end], f"the source ({site.source}) makes no foreign key of it")


def _end_of_references(column: Sequence[Token], i: int) -> int:
    """Gives the place behind REFERENCES table [(columns)] [MATCH x] [ON DELETE x] [ON UPDATE x]."""
    i += 4 if at(column, i + 2).text == "." else 2
    if at(column, i).text == "(":
        i = closing(column, i) + 1
    i += 2 * (at(column, i).word == "MATCH")
    while at(column, i).word == "ON" and at(column, i + 2).word in _REACTIONS:
        i += 3 + (at(column, i + 2).word in {"SET", "NO"})
    return i


_REACTIONS: Final = frozenset({"RESTRICT", "CASCADE", "SET", "NO"})


def constraint_names(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Gives constraints without a name the one that the upstream's server has chosen, since later statements use it to
    drop them.  MySQL: table_ibfk_1, table_chk_1 (manual, CREATE TABLE); TiDB: fk_1, table_chk_1.  A column check whose
    name the target cannot keep becomes a table check.  Checks of MariaDB stay with their columns, or go: they have no
    name there, and MODIFY ends them (mariadb.com/kb/en/constraint)."""
    if statement.classified.kind not in {StatementKind.CREATE_TABLE, StatementKind.ALTER_TABLE}:
        return
    names = _Names(statement.classified.tables[0], site)
    for item in statement.items:
        if _is_void(item, statement, site):
            continue
        if item.change is C.ADD_CHECK and site.source == site.target.flavour == Flavour.MARIADB:
            continue
        if item.change in names.prefixes and item.name is None:
            first = item.definition[1 if item.definition[0].word == "CONSTRAINT" else 0]
            yield Edit(item.definition[0].span[0], first.span[0], f"CONSTRAINT {names.next(item.change)} ", _NAMED)
        elif item.change in ADDS_COLUMN:
            yield from _column_checks(statement.text, item, names, site)


_NAMED: Final = "named as upstream, where a later statement may drop it by its name"


class _Names:
    """Gives the names that the upstream has given, in the order of the text."""

    def __init__(self, table: TableName, site: Site) -> None:
        self._table, self._around = table, site.around
        self.prefixes = {
            C.ADD_FOREIGN_KEY: "fk_" if site.is_from_tidb else f"{table.table}_ibfk_",
            C.ADD_CHECK: f"{table.table}_chk_",
        }
        self._used: dict[str, int] = {}

    def next(self, change: C) -> str:
        """Gives the next name, in backticks."""
        prefix = self.prefixes[change]
        self._used[prefix] = self._used.get(prefix, self._around.next_number(self._table, prefix) - 1) + 1
        return quote_name(prefix + str(self._used[prefix]))


def _column_checks(text: str, item: Item, names: _Names, site: Site) -> Iterator[Edit | Omission]:
    """Gives each check of a column its name, where it stands.  For MariaDB, whose column checks have no name, it moves
    behind the column."""
    column, add = item.definition, "" if item.tokens == item.definition else "ADD "
    for start, check, end in _checks_in(column):
        if site.source == Flavour.MARIADB:
            if site.target.flavour != Flavour.MARIADB:
                yield remove(column[start : end + 1], "MODIFY ends a column's check upstream, and would not here")
            continue
        name = column[check - 1].text if start == check - 2 else names.next(C.ADD_CHECK)
        if _is_off(column, end) and not site.target.has(Feature.NOT_ENFORCED):
            continue
        before = Edit(column[start].span[0], column[check].span[0], f"CONSTRAINT {name} ", _NAMED)
        if site.target.has(Feature.NAMED_COLUMN_CHECK):
            if start != check - 2:
                yield before
        elif not site.target.has(Feature.CHECKS):
            yield remove(column[start : end + 1], "the target keeps no checks")
        elif _is_last(column, end):
            yield before._replace(start=column[start - 1].span[1], text=f", {add}CONSTRAINT {name} ", why=_UNNAMED)
        else:
            yield remove(column[start : end + 1], _UNNAMED)
            condition = text[column[check].span[0] : column[end].span[1]]
            yield Edit(item.span[1], item.span[1], f", {add}CONSTRAINT {name} {condition}", _UNNAMED)


_UNNAMED: Final = "the target's checks of a column have no name, by which a later statement may drop it"


def _checks_in(column: Sequence[Token]) -> Iterator[tuple[int, int, int]]:
    """Gives for each check of a column where it begins, where CHECK stands, and where its last parenthesis is."""
    for i, token, depth in with_depth(column):
        if token.word == "CHECK" and depth == 0 and at(column, i + 1).text == "(":
            start = next((j for j in (i - 1, i - 2) if at(column, j).word == "CONSTRAINT"), i)
            yield start, i, closing(column, i + 1)


def _is_off(column: Sequence[Token], end: int) -> bool:
    return [at(column, end + n).word for n in (1, 2)] == ["NOT", "ENFORCED"]


def _is_last(column: Sequence[Token], end: int) -> bool:
    """Tells whether only more checks follow a check that ends there."""
    rest = end + 1 + (at(column, end + 1).word == "ENFORCED")
    return rest == len(column) or any(start == rest and _is_last(column, last) for start, _, last in _checks_in(column))


def invisible_indexes(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Replaces INVISIBLE by MariaDB's IGNORED.  Where the target has neither, the index stays in use, which changes no
    row."""
    if site.target.has(Feature.INVISIBLE_INDEX):
        return
    ignored = site.target.has(Feature.IGNORED_INDEX)
    why = "the target calls an invisible index IGNORED" if ignored else "the target cannot hide an index"
    for item in statement.items:
        if item.change is C.INDEX_VISIBILITY and not ignored:
            yield Omission(item, why)
            continue
        for token in _option_words(item, {"INVISIBLE", "VISIBLE"}):
            words = {"INVISIBLE": "IGNORED", "VISIBLE": "NOT IGNORED"}
            yield Edit(*token.span, words[token.word] if ignored else "", why)


def ignored_indexes(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Replaces MariaDB's IGNORED by INVISIBLE."""
    for item in statement.items:
        if item.change is C.INDEX_VISIBILITY and at(item.tokens, 1).word == "KEY":
            yield Edit(*item.tokens[1].span, "INDEX", "as all servers write it")
    if site.target.has(Feature.IGNORED_INDEX):
        return
    hides = site.target.has(Feature.INVISIBLE_INDEX)
    why = "the target calls an ignored index INVISIBLE" if hides else "the target cannot hide an index"
    for item in statement.items:
        for token in _option_words(item, {"IGNORED"}):
            i = item.tokens.index(token)
            is_not = at(item.tokens, i - 1).word == "NOT"
            if item.change is C.INDEX_VISIBILITY and not hides:
                yield Omission(item, why)
                continue
            start = item.tokens[i - is_not].span[0]
            yield Edit(start, token.span[1], ("VISIBLE" if is_not else "INVISIBLE") if hides else "", why)


def _option_words(item: Item, words: set[str]) -> Iterator[Token]:
    """Gives the options of an index, or of ALTER INDEX; not those of a column."""
    if item.change in {C.ADD_INDEX, C.ADD_PRIMARY_KEY, C.INDEX_VISIBILITY}:
        yield from (token for _, token, depth in with_depth(item.tokens) if depth == 0 and token.word in words)


def foreign_indexes(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Leaves out indexes of a kind that the target lacks: they change no row, and the upstream checks uniqueness."""
    for item in statement.items:
        if item.change is not C.ADD_INDEX:
            continue
        words = {token.word for token in item.definition[:2]}
        if words & {"VECTOR", "COLUMNAR", "HYBRID"} and not site.target.has(Feature.TIDB_SYNTAX):
            yield Omission(item, "the target has no such index", OmittedObject("index", item.name or ""))
        elif _has_expression(item) and not site.target.has(Feature.EXPRESSION_INDEX):
            yield Omission(item, "the target has no index on an expression", OmittedObject("index", item.name or ""))


def _has_expression(item: Item) -> bool:
    """Tells whether a key part is an expression, in parentheses of its own."""
    opening = next((i for i, token, depth in with_depth(item.definition) if token.text == "(" and depth == 0), None)
    if opening is None:
        return False
    inner = item.definition[opening + 1 : closing(item.definition, opening)]
    return any(
        token.text == "("
        and depth == 0
        and at(inner, i - 1).text in {"", ","}
        and at(inner, i + 1).word != "TIDB_SHARD"
        for i, token, depth in with_depth(inner)
    )


def index_parsers(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Removes a full-text parser that the target lacks; the target uses its own."""
    for item in statement.items:
        for i, token in enumerate(item.definition):
            named = at(item.definition, i + 2).word
            if token.word != "WITH" or at(item.definition, i + 1).word != "PARSER":
                continue
            known = site.target.has(Feature.NGRAM_PARSER) and named == "NGRAM"
            if not known and not site.target.has(Feature.TIDB_SYNTAX):
                yield remove(item.definition[i : i + 3], "the target has no such full-text parser")


def unmade_indexes(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Leaves out actions on an index that was left out."""
    for item in statement.items:
        if item.change in {C.DROP_INDEX, C.RENAME_INDEX, C.INDEX_VISIBILITY} and item.name:
            thing = OmittedObject("index", item.name)
            if site.around.lacks(statement.classified.tables[0], thing):
                renamed = at(item.tokens, 4).name if item.change is C.RENAME_INDEX else None
                yield Omission(
                    item, "the target never got this index", OmittedObject("index", renamed) if renamed else None
                )
