"""Rules that say a schema change in the target's words, each a function from a statement's parts to edits.

A rule changes a span of the text or leaves an item out; everything else stays as it came.  It says why in words for
the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from bridge.target.capabilities import Capabilities, Feature
from bridge.target.catalog import TableName
from bridge.target.collations import CollationRules
from bridge.target.ddl_classes import ChangeClass as C
from bridge.target.ddl_classes import StatementKind
from bridge.target.ddl_lexer import Token
from bridge.target.ddl_shape import ADDS_COLUMN, Item, Shape, at, closing, span_of, with_depth


class LeftOut(NamedTuple):
    """Something that the target does not get; a later statement that names it leaves that out too.

    kind: "index", "constraint" or "table"; name: "" when the upstream's server chose it.
    """

    kind: str
    name: str


class Edit(NamedTuple):
    """Replaces a span of the statement."""

    start: int
    end: int
    text: str
    why: str


class Omission(NamedTuple):
    """Leaves an item out, with its comma; `thing` is what the target then lacks."""

    item: Item
    why: str
    thing: LeftOut | None = None


class UnsupportedError(Exception):
    """The target has nothing like it; the message says what, for the operator who decides."""


class Surroundings(Protocol):
    """What is on the target already, as far as rules ask."""

    def lacks(self, table: TableName, thing: LeftOut) -> bool:
        """The table is there without it, and this pipeline has left such a thing out."""

    def stored_name(self, table: TableName) -> TableName | None:
        """The one table that has this name but for the case of letters, when the name itself is free."""

    def default_is_nobodys(self, schema: str) -> bool:
        """Neither the upstream nor the operator has chosen the default collation of this database."""

    def next_number(self, table: TableName, prefix: str) -> int:
        """One more than the highest constraint named prefix + number."""


class Nowhere:
    """Surroundings of a statement without a target."""

    def lacks(self, table: TableName, thing: LeftOut) -> bool:
        """Unknown."""
        del table, thing
        return False

    def stored_name(self, table: TableName) -> TableName | None:
        """Unknown."""
        del table
        return None

    def default_is_nobodys(self, schema: str) -> bool:
        """Unknown."""
        del schema
        return False

    def next_number(self, table: TableName, prefix: str) -> int:
        """As of a new table."""
        del table, prefix
        return 1


@dataclass(frozen=True)
class Site:
    """Where a statement is to run, and whose it is.  source: a name of `collations.SOURCES`."""

    target: Capabilities
    collations: CollationRules = field(default_factory=CollationRules)
    source: str = "tidb"
    around: Surroundings = field(default_factory=Nowhere)


Rule = Callable[[Shape, Site], Iterator[Edit | Omission]]


def remove(found: Sequence[Token], why: str) -> Edit:
    """Takes tokens out."""
    return Edit(*span_of(found), "", why)


def recover(statement: Shape, site: Site) -> Iterator[Edit | Omission]:
    """Only TiDB brings a dropped table back."""
    if statement.classified.kind is StatementKind.RECOVER_TABLE and not site.target.has(Feature.RECOVER):
        raise UnsupportedError(
            "the target cannot bring a dropped table back; make the table by hand with the rows that the upstream has"
            " at this commit ts, then skip the statement"
        )
    yield from ()


def global_temporary(statement: Shape, site: Site) -> Iterator[Edit | Omission]:
    """A global temporary table holds rows of its own session only: none is ever replicated."""
    words = [token.word for token in statement.tokens[:3]]
    if words[1:3] == ["GLOBAL", "TEMPORARY"] and not site.target.has(Feature.TIDB_SYNTAX):
        name = str(statement.classified.tables[0])
        whole = Item(C.CREATE_TABLE, statement.tokens)
        yield Omission(
            whole, "the target has no global temporary tables; none of its rows is replicated", LeftOut("table", name)
        )


def dropped_unmade(statement: Shape, site: Site) -> Iterator[Edit | Omission]:
    """What was left out needs no dropping."""
    tables = statement.classified.tables
    if statement.classified.kind is StatementKind.DROP_TABLE and all(
        site.around.lacks(table, LeftOut("table", str(table))) for table in tables
    ):
        yield Omission(Item(C.DROP_TABLE, statement.tokens), "the target was never given it")


def names_case(statement: Shape, site: Site) -> Iterator[Edit | Omission]:
    """TiDB and MySQL on some systems find a table whatever the case of the letters; a target that does not is given
    the name as it is stored."""
    created = {StatementKind.CREATE_TABLE, StatementKind.CREATE_VIEW}
    known = statement.classified
    if site.target.lower_case_table_names != 0 or known.kind is StatementKind.RENAME_TABLE:
        return
    touched = known.touched[1:] if known.kind in created else known.touched[:1]
    for named in (*touched, *([known.like] if known.like else []), *known.referenced):
        stored = site.around.stored_name(named.table)
        if stored is not None:
            name = f"`{stored.schema}`.`{stored.table.replace('`', '``')}`"
            yield Edit(*named.span, name, "the target tells names apart by the case of their letters")


def invisible_indexes(statement: Shape, site: Site) -> Iterator[Edit | Omission]:
    """INVISIBLE is MariaDB's IGNORED; where there is neither, the index stays in use, which changes no row."""
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


def _option_words(item: Item, words: set[str]) -> Iterator[Token]:
    """Options of an index, or of ALTER INDEX; not those of a column."""
    if item.change in {C.ADD_INDEX, C.ADD_PRIMARY_KEY, C.INDEX_VISIBILITY}:
        yield from (token for _, token, depth in with_depth(item.tokens) if depth == 0 and token.word in words)


def foreign_indexes(statement: Shape, site: Site) -> Iterator[Edit | Omission]:
    """Indexes that the target has no kind of are left out: they change no row, and the upstream checks uniqueness."""
    for item in statement.items:
        if item.change is not C.ADD_INDEX:
            continue
        words = {token.word for token in item.definition[:2]}
        if words & {"VECTOR", "COLUMNAR", "HYBRID"} and not site.target.has(Feature.TIDB_SYNTAX):
            yield Omission(item, "the target has no such index", LeftOut("index", item.name or ""))
        elif _has_expression(item) and not site.target.has(Feature.EXPRESSION_INDEX):
            yield Omission(item, "the target has no index on an expression", LeftOut("index", item.name or ""))


def _has_expression(item: Item) -> bool:
    """A key part in parentheses of its own."""
    opening = next((i for i, token, depth in with_depth(item.definition) if token.text == "(" and depth == 0), None)
    if opening is None:
        return False
    inner = item.definition[opening + 1 : closing(item.definition, opening)]
    return any(
        token.text == "(" and depth == 0 and at(inner, i - 1).text in {"", ","} for i, token, depth in with_depth(inner)
    )


def index_parsers(statement: Shape, site: Site) -> Iterator[Edit | Omission]:
    """A full-text parser that the target lacks: the index is made with its own."""
    for item in statement.items:
        for i, token in enumerate(item.definition):
            named = at(item.definition, i + 2).word
            if token.word != "WITH" or at(item.definition, i + 1).word != "PARSER":
                continue
            known = site.target.has(Feature.NGRAM_PARSER) and named == "NGRAM"
            if not known and not site.target.has(Feature.TIDB_SYNTAX):
                yield remove(item.definition[i : i + 3], "the target has no such full-text parser")


def unmade_indexes(statement: Shape, site: Site) -> Iterator[Edit | Omission]:
    """Actions on an index that was left out."""
    for item in statement.items:
        if item.change in {C.DROP_INDEX, C.RENAME_INDEX, C.INDEX_VISIBILITY} and item.name:
            thing = LeftOut("index", item.name)
            if site.around.lacks(statement.classified.tables[0], thing):
                renamed = at(item.tokens, 4).name if item.change is C.RENAME_INDEX else None
                yield Omission(
                    item, "the target was never given this index", LeftOut("index", renamed) if renamed else None
                )


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


def generated_null(statement: Shape, site: Site) -> Iterator[Edit | Omission]:
    """MariaDB takes no NULL or NOT NULL behind the expression of a generated column."""
    if site.target.has(Feature.GENERATED_NULL):
        return
    for item in statement.items:
        if item.change not in ADDS_COLUMN:
            continue
        column = item.definition
        generated = next((i for i, t, d in with_depth(column) if t.word == "AS" and d == 0), None)
        if generated is None:
            continue
        for i in range(closing(column, generated + 1) + 1, len(column)):
            if column[i].word == "NULL":
                is_not = column[i - 1].word == "NOT"
                yield remove(column[i - is_not : i + 1], "the target takes no NULL or NOT NULL for a generated column")


def persistent(statement: Shape, site: Site) -> Iterator[Edit | Omission]:
    """PERSISTENT is MariaDB's older word for STORED."""
    del site
    for item in statement.items:
        for i, token, depth in with_depth(item.definition):
            if item.change in ADDS_COLUMN and depth == 0 and token.word == "PERSISTENT" and i > 1:
                yield Edit(*token.span, "STORED", "the word that all servers know")


def json_arrows(statement: Shape, site: Site) -> Iterator[Edit | Omission]:
    """column->path and column->>path as functions."""
    if site.target.has(Feature.JSON_ARROW):
        return
    found = statement.tokens
    for i, token in enumerate(found):
        if token.kind == "arrow" and at(found, i - 1).name is not None and at(found, i + 1).kind == "string":
            start = i - 1
            while at(found, start - 1).text == "." and at(found, start - 2).name is not None:
                start -= 2
            column = statement.text[found[start].span[0] : found[i - 1].span[1]]
            call = f"JSON_EXTRACT({column}, {found[i + 1].text})"
            text = call if token.text == "->" else f"JSON_UNQUOTE({call})"
            yield Edit(found[start].span[0], found[i + 1].span[1], text, f"the target has no operator {token.text}")


def vectors(statement: Shape, site: Site) -> Iterator[Edit | Omission]:
    """A vector comes as text, and is kept as text where the target takes none for it."""
    if site.target.has(Feature.VECTOR_TEXT):
        return
    for item in statement.items:
        if item.change in ADDS_COLUMN and at(item.definition, 1).word == "VECTOR":
            end = 1
            if at(item.definition, 2).text == "<":
                end = 4
            if at(item.definition, end + 1).text == "(":
                end = closing(item.definition, end + 1)
            yield Edit(
                *span_of(item.definition[1 : end + 1]), "LONGTEXT", "the target keeps a vector as the text it comes as"
            )


def definers(statement: Shape, site: Site) -> Iterator[Edit | Omission]:
    """The account may not exist on the target, and then nobody could read the view."""
    del site
    found = statement.tokens
    if statement.classified.kind is not StatementKind.CREATE_VIEW:
        return
    start = next((i for i, t in enumerate(found[:12]) if t.word == "DEFINER"), None)
    if start is None or at(found, start + 2).word == "CURRENT_USER":
        return
    end = start + 2
    if at(found, end + 1).text == "@":
        end += 2
    if at(found, start + 1).text == "=":
        yield Edit(*span_of(found[start : end + 1]), "DEFINER = CURRENT_USER", "the account is the upstream's")


_ALTERS: Final = frozenset(
    {StatementKind.ALTER_TABLE, StatementKind.CREATE_INDEX, StatementKind.DROP_INDEX, StatementKind.EXCHANGE_PARTITION}
)


def hints(statement: Shape, site: Site) -> Iterator[Edit | Omission]:
    """ALGORITHM and LOCK say how, not what; a target that cannot do it that way would refuse."""
    del site
    if statement.classified.kind not in _ALTERS:
        return
    why = "how it is done is the target's own affair"
    for item in statement.items:
        if item.tokens[0].word in {"ALGORITHM", "LOCK"}:
            yield Omission(item, why)
            continue
        for i, token, depth in with_depth(item.tokens):
            if item.change in {C.ADD_INDEX, C.DROP_INDEX} and depth == 0 and token.word in {"ALGORITHM", "LOCK"}:
                equals = at(item.tokens, i + 1).text == "="
                yield remove(item.tokens[i : i + 2 + equals], why)


def engines(statement: Shape, site: Site) -> Iterator[Edit | Omission]:
    """Only InnoDB tables can be written exactly once."""
    if site.target.has(Feature.TIDB_SYNTAX):
        return
    for scope in option_scopes(statement):
        for i, token, depth in with_depth(scope):
            if token.word == "ENGINE" and depth == 0:
                named = at(scope, i + 1 + (at(scope, i + 1).text == "="))
                if named.text.strip("'\"`").upper() != "INNODB" and named.kind != "end":
                    yield Edit(*named.span, "InnoDB", "only InnoDB tables can be written exactly once")


def encryption(statement: Shape, site: Site) -> Iterator[Edit | Omission]:
    """How the target keeps its files is its own affair."""
    is_table = statement.classified.kind in {StatementKind.CREATE_TABLE, StatementKind.ALTER_TABLE}
    if site.target.has(Feature.TABLE_ENCRYPTION if is_table else Feature.DATABASE_ENCRYPTION):
        return
    yield from without_options(statement, {"ENCRYPTION"}, "how the target keeps its files is its own affair")


def sequences(statement: Shape, site: Site) -> Iterator[Edit | Omission]:
    """A sequence is never sent; the values that it gave come with the rows."""
    if site.target.has(Feature.TIDB_SYNTAX):
        return
    for item in statement.items:
        column = item.definition
        for i, token, depth in with_depth(column):
            if item.change not in ADDS_COLUMN or token.word != "DEFAULT" or depth != 0:
                continue
            inside = at(column, i + 1).text == "("
            words = [at(column, i + 1 + inside + n).word for n in range(3)]
            if words[0] in {"NEXTVAL", "LASTVAL"} or words == ["NEXT", "VALUE", "FOR"]:
                end = closing(column, i + 1) if inside else i + 4 if words[0] == "NEXT" else closing(column, i + 2)
                yield remove(column[i : end + 1], "a sequence is not replicated; its values come with the rows")


def option_scopes(statement: Shape) -> Iterator[tuple[Token, ...]]:
    """Where table or database options stand: behind the definitions, or as actions of ALTER TABLE."""
    if statement.options:
        yield statement.options
    options = {C.TABLE_OPTION, C.TABLE_CHARSET, C.TABLE_COMMENT, C.AUTO_ID, C.TTL}
    for item in statement.items:
        if item.change in options:
            yield item.tokens


def without_options(statement: Shape, names: set[str], why: str) -> Iterator[Edit | Omission]:
    """Takes options of the form NAME [=] value out."""
    for scope in option_scopes(statement):
        for i, token, depth in with_depth(scope):
            if token.word in names and depth == 0:
                equals = at(scope, i + 1).text == "="
                yield from take_out(statement, scope, i, i + 2 + equals, why)


def take_out(statement: Shape, scope: Sequence[Token], start: int, end: int, why: str) -> Iterator[Edit | Omission]:
    """Takes tokens out of an option scope, the whole action where nothing else is in it."""
    if start == 0 and end >= len(scope):
        item = next((item for item in statement.items if item.tokens == tuple(scope)), None)
        if item is not None:
            yield Omission(item, why)
            return
    yield remove(scope[start:end], why)
