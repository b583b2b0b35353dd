"""Reads a schema change just far enough to tell what it is, what it does and which tables it touches.

It works on the tokens of the statement as it came, and never prints a statement from a parsed form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Final

from bridge.ddl.classes import ChangeClass, StatementKind, action_class, additions, alter_actions, swaps_columns
from bridge.ddl.lexer import END, Mention, NotUnderstoodError, Token, TokenReader, UnreadableError, read_tokens
from bridge.ddl.other_statements import changes_no_table
from bridge.filters.table_filter import SYSTEM_SCHEMAS, plain_name
from bridge.model import TableName

DATABASE_KINDS: Final = frozenset(
    {StatementKind.CREATE_DATABASE, StatementKind.ALTER_DATABASE, StatementKind.DROP_DATABASE}
)

_MAKES_ONE: Final = frozenset({StatementKind.CREATE_TABLE, StatementKind.CREATE_VIEW})
_FILES: Final = frozenset(
    {
        *(("DATA", "DIRECTORY"), ("INDEX", "DIRECTORY")),
        *((verb, what) for verb in ("IMPORT", "DISCARD") for what in ("TABLESPACE", "PARTITION")),
    }
)
_ENGINES_ELSEWHERE: Final = frozenset(
    {
        *("CONNECT", "FEDERATED", "FEDERATEDX", "S3", "SPHINX", "SPIDER"),
        *("MERGE", "MRG_MYISAM", "BLACKHOLE", "OQGRAPH", "SEQUENCE"),
    }
)
"""Storage engines whose tables are files, other servers or other tables, or hold nothing of what is written to them."""
_QUERY_WORDS: Final = frozenset({"AS", "IGNORE", "REPLACE", "SELECT", "TABLE", "VALUES"})
"""Words that begin a query which fills the table, when they come after the table's definition."""
_QUERY_IN_PARENTHESES: Final = frozenset({"SELECT", "TABLE", "VALUES", "WITH"})
"""Words that begin such a query after an opening parenthesis."""


class Swap(StrEnum):
    """What a statement may swap.  Run twice it undoes itself, and definitions alone do not show whether it ran."""

    TABLES = "contents of tables"
    COLUMNS = "names of columns"


@dataclass(frozen=True)
class Classified:
    """A schema change that the bridge understands.

    kind: what the statement is as a whole.  classes: what it does, each class once, in order.
    touched: every table it changes, old and new names of a rename, in order.
    like: the table that it copies.  referenced: tables that its foreign keys name.
    database: the database of a database-level change, "" otherwise.
    swaps: what it may swap.  reads_bare: the tables that a view reads and names without a database.
    never_run: the spans of words that the bridge takes out: how long to wait for a lock, and where files are.
    """

    kind: StatementKind
    classes: tuple[ChangeClass, ...]
    touched: tuple[Mention, ...] = ()
    like: Mention | None = None
    referenced: tuple[Mention, ...] = ()
    database: str = ""
    swaps: Swap | None = None
    reads_bare: tuple[str, ...] = ()
    never_run: tuple[tuple[int, int], ...] = ()

    @property
    def tables(self) -> tuple[TableName, ...]:
        """The tables it changes."""
        return tuple(mention.table for mention in self.touched)

    @property
    def mentions(self) -> tuple[Mention, ...]:
        """All names of tables in it."""
        return (*self.touched, *([self.like] if self.like else []), *self.referenced)

    @property
    def begins_from(self) -> tuple[Mention, ...]:
        """The tables that it begins from: of a rename the old names, of ALTER TABLE not the new one."""
        if self.kind is StatementKind.RENAME_TABLE:
            return self.touched[::2]
        return self.touched[:1] if self.kind is StatementKind.ALTER_TABLE else self.touched


@dataclass(frozen=True)
class Refused:
    """A statement that is not a schema change the bridge runs; `reason` is for the operator.

    classified: what it does as far as it is understood, None where it is not understood at all.
    """

    reason: str
    classified: Classified | None = None


class PassedOver(Refused):
    """A statement that changes no table and no row.  It is never run; to whoever would run it, it is refused."""


_CHANGES_NOTHING: Final = PassedOver("it changes no table")


@dataclass(frozen=True)
class Unclear(Refused):
    """A statement that the bridge understands, but for the databases of some names: the message does not tell the
    database of the upstream's session.  In `classified` these names have no database ("").  The operator decides."""

    classified: Classified


def classify(statement: str, schema: str, *, tidb: bool = False, is_certain: bool = False) -> Classified | Refused:
    """Tells what `statement` does.  This is where the names of a statement get their databases.

    schema: the database that the message names.  A name without a database gets it where it is certain that this was
    the database of the upstream's session (`_unclear`); otherwise the statement is Unclear.
    tidb: on a server that reads `/*T! ... */`.
    is_certain: `schema` is the database of the session, as for what the bridge itself runs.
    """
    try:
        readings = {reads: read_tokens(statement, tidb=reads) for reads in (True, False)}
        as_mariadb = read_tokens(statement, mariadb=True) if "/*M!" in statement else None
    except UnreadableError as error:
        return Refused(str(error))
    result = _of_readings(readings, schema, tidb=tidb, is_certain=is_certain)
    if as_mariadb is None or isinstance(result, Refused):
        return result
    mariadb_result = _of_readings({True: as_mariadb, False: as_mariadb}, schema, tidb=tidb, is_certain=is_certain)
    if isinstance(mariadb_result, Refused):
        return mariadb_result
    if _effects(mariadb_result) != _effects(result):
        return Refused("a comment that only MariaDB runs changes what it does")
    return result


def _effects(change: Classified) -> tuple[object, ...]:
    """Tells what a statement does, wherever its words stand."""
    names = (change.tables, change.like and change.like.table, *(mention.table for mention in change.referenced))
    return change.kind, change.classes, names, change.database, change.swaps, change.reads_bare


def _of_readings(
    readings: Mapping[bool, list[Token]], schema: str, *, tidb: bool, is_certain: bool
) -> Classified | Refused:
    """Tells what a statement does.  readings: its tokens for TiDB and for other servers."""
    if all(changes_no_table(tokens) for tokens in readings.values()):
        return _CHANGES_NOTHING
    for tokens in readings.values():
        if any(token.kind == "mark" and token.text == ";" for token in tokens[:-1]):
            return Refused("it holds several statements")
    directories = list(_directories(readings[tidb]))
    tokens = outside(readings[tidb], directories)
    reader = TokenReader(tokens, schema)
    try:
        result = _classify(reader)
    except NotUnderstoodError as error:
        return Refused(str(error) or "it is not a schema change that the bridge knows")
    never_run = (*directories, *reader.passed_spans)
    result = replace(result, never_run=never_run)
    dangers = (_danger(outside(reading, list(_directories(reading))), result) for reading in readings.values())
    if reason := next(filter(None, dangers), None):
        return Refused(reason, result)
    if reason := "" if is_certain and schema else _unclear(result, schema):
        return Unclear(reason, replace(_classify(TokenReader(tokens, "")), never_run=never_run))
    return result


def outside(tokens: Iterable[Token], spans: Sequence[tuple[int, int]]) -> list[Token]:
    """Gives the tokens outside of spans."""
    return [token for token in tokens if not any(start <= token.span[0] < end for start, end in spans)]


def _directories(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Finds DATA DIRECTORY = 'x' and INDEX DIRECTORY = 'x'."""
    for i, token in enumerate(tokens[:-2]):
        if token.word in {"DATA", "INDEX"} and tokens[i + 1].word == "DIRECTORY":
            value = i + 2 + (tokens[i + 2].text == "=")
            if value < len(tokens) and tokens[value].kind == "string":
                yield token.span[0], tokens[value].span[1]


def has_if_not_exists(statement: str, classified: Classified) -> bool:
    """Tells whether a CREATE that was classified holds IF NOT EXISTS before its name."""
    end = classified.touched[0].span[0] if classified.touched else len(statement)
    words = [token.word for token in read_tokens(statement) if token.span[0] < end]
    return ("IF", "NOT", "EXISTS") in zip(words, words[1:], words[2:], strict=False)


def _danger(tokens: list[Token], result: Classified) -> str | None:
    schemas = {mention.table.schema for mention in result.mentions} | {result.database}
    if result.kind is not StatementKind.CREATE_VIEW:  # whoever reads a view needs the rights to what it reads
        own = {name.table.lower() for name in result.tables}  # tables may stand before their columns
        schemas |= {t.name for t, dot in pairwise(tokens) if dot.text == "." and t.name and t.name.lower() not in own}
    if SYSTEM_SCHEMAS & set(map(plain_name, schemas)):
        return "it touches a system schema"
    words = [token.word for token in tokens]
    # A query in parentheses fills a table too: `CREATE TABLE t (a INT) ((TABLE u))`.  The VALUES of partitions stand
    # behind their names, not behind a parenthesis.
    has_query = any(
        token.text == "(" and following.word in _QUERY_IN_PARENTHESES for token, following in pairwise(tokens)
    )
    if result.kind is StatementKind.CREATE_TABLE and ("SELECT" in words or has_query):
        return "it fills a table from a query"
    functions = {token.name.upper() for token, following in pairwise(tokens) if token.name and following.text == "("}
    if {"OUTFILE", "DUMPFILE"} & set(words) or "LOAD_FILE" in functions or _FILES & set(pairwise(words)):
        return "it reads or writes files of the server"
    is_merge = result.kind is StatementKind.CREATE_TABLE and "UNION" in words
    pairs = ((b, c) for a, b, c in zip(tokens, tokens[1:], [*tokens[2:], END], strict=False) if a.word == "ENGINE")
    engines = {(value if mark.text == "=" else mark).text.strip("'\"`").upper() for mark, value in pairs}
    if is_merge or engines & _ENGINES_ELSEWHERE:
        return (
            "it makes a table whose rows would be elsewhere: in files, in other tables, on another server, or nowhere"
        )
    if result.kind is StatementKind.ALTER_DATABASE and ("READ", "ONLY") in pairwise(words):
        return "it forbids writing to the database"
    return None


def _unclear(result: Classified, schema: str) -> str:
    """Tells which name may be in another database than the message names; "" when none may.

    A server looks for a name without a database in the database of its session, which no sender sends.  The database of
    a message is that of a table which the statement changes: of the last one, or of one message for each table; of a
    rename, the new name's (Canal 1.1.8, DruidDdlParser; Debezium 3.6; TiCDC, "DDL statement considerations").  It is
    the session's unless a name that the statement changes says that database itself; and unless the statement makes
    one table whose name has a database.
    """
    mentions = [*result.touched, *([result.like] if result.like else [])]
    bare = [*(mention.table.table for mention in mentions if not mention.is_qualified), *result.reads_bare]
    if result.kind is StatementKind.ALTER_DATABASE and not result.database:
        return "it names no database, and the message names none"
    if not bare:
        return ""
    if not schema:
        return (
            f"it names {bare[0]} without a database, and the message names none, as of what official Canal cannot read:"
            " have it read its tables anew, since it may give later rows of the table the values of other columns"
        )
    makes_one = result.kind in _MAKES_ONE
    qualified = (mention.table for mention in result.touched if mention.is_qualified)
    same_database = next((table for table in qualified if makes_one or table.schema.lower() == schema.lower()), None)
    if same_database is None:
        return ""
    return (
        f"it names {bare[0]} without a database, and the database of the upstream's session is not known:"
        f" the message names {schema}, and the statement {same_database}"
    )


def _classify(reader: TokenReader) -> Classified:
    if reader.accept("CREATE"):
        return _create(reader)
    if reader.accept("DROP"):
        return _drop(reader)
    if reader.accept("ALTER"):
        return _alter(reader)
    if reader.accept("RENAME", "TABLE") or reader.accept("RENAME", "TABLES"):
        return _rename(reader)
    if reader.accept("TRUNCATE"):
        reader.accept("TABLE")
        table = reader.table()
        reader.pass_wait()
        return _plain(StatementKind.TRUNCATE_TABLE, table)
    if reader.accept("RECOVER", "TABLE") or reader.accept("FLASHBACK", "TABLE"):
        table = reader.table()
        return _plain(StatementKind.RECOVER_TABLE, table, *([reader.table()] if reader.accept("TO") else []))
    if "ROLLBACK" in {reader.peek().word, reader.peek(1).word}:
        raise NotUnderstoodError(_ROLLED_BACK)
    raise NotUnderstoodError


_ROLLED_BACK: Final = (
    "it rolls back rows that were sent already (the upstream logs it only for those), and nothing undoes them: make"
    " these rows what they are upstream, then skip it"
)


def _plain(kind: StatementKind, *touched: Mention, database: str = "") -> Classified:
    """Makes the result for a statement whose class has the same name as its kind."""
    is_index = kind is StatementKind.CREATE_INDEX
    return Classified(
        kind, (ChangeClass.ADD_INDEX if is_index else ChangeClass(kind.value),), touched, database=database
    )


def _create(reader: TokenReader) -> Classified:
    replaces = reader.accept("OR", "REPLACE")
    if reader.accept("DATABASE") or reader.accept("SCHEMA"):
        reader.accept("IF", "NOT", "EXISTS")
        created = _plain(StatementKind.CREATE_DATABASE, database=reader.identifier())
        return _also(created, ChangeClass.DROP_DATABASE) if replaces else created
    reader.accept("GLOBAL", "TEMPORARY")  # a local one would hide a table from the bridge
    if reader.accept("TABLE"):
        reader.accept("IF", "NOT", "EXISTS")
        created = _create_table(reader)
        return _also(created, ChangeClass.DROP_TABLE) if replaces else created
    while any(map(reader.accept, _INDEX_KINDS)):
        pass
    if reader.accept("INDEX"):
        reader.accept("IF", "NOT", "EXISTS")
        table = _behind_index(reader)
        reader.skip_parentheses()
        reader.pass_wait()
        return _plain(StatementKind.CREATE_INDEX, table)
    return _create_view(reader)


def _behind_index(reader: TokenReader) -> Mention:
    """Reads the name of an index, and gives the table behind ON."""
    reader.identifier()
    reader.skip_to("ON")
    table = reader.table()
    reader.pass_wait()
    return table


def _also(classified: Classified, first: ChangeClass) -> Classified:
    """Adds a class for what the statement does first."""
    return replace(classified, classes=(first, *classified.classes))


_INDEX_KINDS: Final = ("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR", "HYBRID")


def _create_table(reader: TokenReader) -> Classified:
    table = reader.table()
    parenthesis = reader.peek().text == "("
    if reader.peek(int(parenthesis)).word == "LIKE":
        reader.at += 1 + parenthesis
        return replace(_plain(StatementKind.CREATE_TABLE, table), like=reader.table())
    depth = 0
    for token, following in pairwise([*reader.tokens[reader.at :], END]):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        is_query = token.word in _QUERY_WORDS or (token.word == "WITH" and following.word != "SYSTEM")
        if depth == 0 and is_query:
            raise NotUnderstoodError("it fills a table from a query")
    return replace(_plain(StatementKind.CREATE_TABLE, table), referenced=_references(reader, table))


def _references(reader: TokenReader, referring: Mention) -> tuple[Mention, ...]:
    """Finds the tables behind REFERENCES.  A table without a database is in the database of the referring table (MySQL
    manual, FOREIGN KEY Constraints; TiDB, resolveCreateTableStmt), and not in that of the session."""
    inner = TokenReader(reader.tokens[reader.at :], referring.table.schema)
    mentions = []
    while inner.peek().kind != "end":
        if inner.accept("REFERENCES"):
            mentions.append(inner.table())
        else:
            inner.at += 1
    return tuple(mentions)


def _create_view(reader: TokenReader) -> Classified:
    """Reads CREATE VIEW or ALTER VIEW.  ALGORITHM, DEFINER and SQL SECURITY may come before VIEW; before other objects
    the bridge does not accept them."""
    while not reader.accept("VIEW"):
        if reader.accept("ALGORITHM"):
            reader.skip_mark("=")
            reader.identifier()
        elif reader.accept("DEFINER"):
            reader.skip_mark("=")
            reader.account()
        elif reader.accept("SQL", "SECURITY"):
            reader.identifier()
        else:
            raise NotUnderstoodError
    reader.accept("IF", "NOT", "EXISTS")
    view = _plain(StatementKind.CREATE_VIEW, reader.table())
    reader.skip_to("AS")
    return replace(view, reads_bare=tuple(dict.fromkeys(_bare_tables(reader.tokens[reader.at :]))))


_BEFORE_TABLE: Final = frozenset({"FROM", "JOIN", "STRAIGHT_JOIN", "TABLE", "OJ", ",", "("})
_AFTER_TABLES: Final = frozenset({"SELECT", "WHERE", "HAVING", "LIMIT", "UNION"})


def _bare_tables(query: Sequence[Token]) -> Iterator[str]:
    """Gives the tables of a query that have no database.  A name of a WITH at its beginning is no table behind its
    definition, and in it if RECURSIVE; nor is what stands behind the FROM of a function, as in EXTRACT(YEAR FROM a)."""
    words = [token.word for token in query[:2]]
    open_names, names_of_with = list[str | None](), set[str | None]()
    pairs = pairwise([END, *query])  # .t is a table of the session's database
    tokens = [token for before, token in pairs if not (token.text == "." and _opens(before))]
    is_query, in_tables = [True], [False]
    before_it = [END, *tokens]
    for first, before, token, behind in zip([END, *before_it], before_it, tokens, [*tokens[1:], END], strict=False):
        if token.text == "(":
            open_names.append(first.name if words[:1] == ["WITH"] and before.word == "AS" and not open_names else None)
            names_of_with.add(open_names[-1] if words[1:] == ["RECURSIVE"] else None)
            is_query.append(in_tables[-1] and _opens(before))
            in_tables.append(is_query[-1])
        elif token.text == ")":
            names_of_with.add(open_names.pop() if open_names else None)
            is_query, in_tables = is_query[:-1] or [True], in_tables[:-1] or [False]
        elif before.text == "." and not first.text.isdigit():
            continue
        elif token.word == "TABLE" or (token.word == "FROM" and is_query[-1]):
            in_tables[-1] = True
        elif token.word in _AFTER_TABLES or (token.word in {"GROUP", "ORDER"} and behind.word == "BY"):
            is_query[-1] |= token.word == "SELECT"
            in_tables[-1] = False
        elif token.name and in_tables[-1] and _opens(before) and behind.text not in {".", "("} and token.word != "DUAL":
            yield from {token.name} - names_of_with


def _opens(token: Token) -> bool:
    """Tells whether a table may stand behind a token."""
    return (token.word or token.text) in _BEFORE_TABLE


def _drop(reader: TokenReader) -> Classified:
    if reader.accept("DATABASE") or reader.accept("SCHEMA"):
        reader.accept("IF", "EXISTS")
        return _plain(StatementKind.DROP_DATABASE, database=reader.identifier())
    if reader.accept("INDEX"):
        reader.accept("IF", "EXISTS")
        return _plain(StatementKind.DROP_INDEX, _behind_index(reader))
    is_temporary = reader.accept("TEMPORARY")
    kind = StatementKind.DROP_VIEW if reader.accept("VIEW") else StatementKind.DROP_TABLE
    if kind is StatementKind.DROP_TABLE and not (reader.accept("TABLE") or reader.accept("TABLES")):
        raise NotUnderstoodError
    reader.accept("IF", "EXISTS")
    dropped = _plain(kind, *reader.table_list())
    reader.pass_wait()
    # Of temporary tables MySQL logs only their end (manual, Replication and Temporary Tables).
    return replace(dropped, classes=(ChangeClass.NOTHING,), touched=()) if is_temporary else dropped


def begins_database_option(token: Token, following: Token) -> bool:
    """Tells whether an option of a database begins here; words that are not reserved may also be names."""
    if token.word in {"CHARACTER", "CHARSET", "COLLATE", "DEFAULT", "SET"}:
        return True
    is_value = following.text == "=" or following.kind == "string"
    return (token.word, following.word) in {("PLACEMENT", "POLICY"), ("READ", "ONLY")} or (
        token.word in {"ENCRYPTION", "COMMENT"} and is_value
    )


def _alter(reader: TokenReader) -> Classified:
    if reader.accept("DATABASE") or reader.accept("SCHEMA"):
        has_name = not begins_database_option(reader.peek(), reader.peek(1))
        return _plain(StatementKind.ALTER_DATABASE, database=reader.identifier() if has_name else reader.schema)
    if reader.peek().word == "ONLINE" and reader.peek(1).word == "TABLE":
        reader.pass_over(1)
    if not reader.accept("TABLE"):
        return _create_view(reader)
    reader.accept("IF", "EXISTS")
    table = reader.table()
    reader.pass_wait()
    actions = alter_actions(reader.tokens[reader.at :])
    changes = dict.fromkeys(action_class(addition) for action in actions for addition in additions(action))
    classes = tuple(changes) or (ChangeClass.NOTHING,)
    kind = StatementKind.ALTER_TABLE
    touched = [table]
    swaps = Swap.COLUMNS if swaps_columns(actions) else None
    for action in actions:
        inner = TokenReader(list(action), reader.schema)
        if action_class(action) is ChangeClass.EXCHANGE_PARTITION:
            kind, swaps = StatementKind.EXCHANGE_PARTITION, Swap.TABLES
            inner.skip_to("TABLE")
            touched.append(inner.table())
        elif action_class(action) is ChangeClass.RENAME_TABLE:
            inner.at += 1
            if not (inner.accept("TO") or inner.accept("AS")):
                inner.skip_mark("=")
            touched.append(inner.table())
    return Classified(kind, classes, tuple(touched), referenced=_references(reader, table), swaps=swaps)


def _rename(reader: TokenReader) -> Classified:
    reader.accept("IF", "EXISTS")
    touched: list[Mention] = []
    while True:
        touched.append(reader.table())
        reader.pass_wait()
        if not reader.accept("TO"):
            raise NotUnderstoodError
        touched.append(reader.table())
        if reader.peek().text != ",":
            renamed = _plain(StatementKind.RENAME_TABLE, *touched)
            old, new = ({name.folded for name in renamed.tables[start::2]} for start in (0, 1))
            return replace(renamed, swaps=Swap.TABLES if old <= new and touched[2:] else None)  # else a name is gone
        reader.at += 1
