"""Rewrites tables and views as a whole: kinds that a target lacks, names, options and accounts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.classes import StatementKind
from bridge.ddl.clauses import StatementParts, at, outer, span_of, with_depth
from bridge.ddl.rule import (
    Edit,
    Feature,
    OmittedObject,
    Site,
    UnsupportedError,
    option_scopes,
    partition_scopes,
    remove,
    value_at,
)
from bridge.ddl.rules.table_options import HINTS, HOW
from bridge.model import TableName, has_long_characters, quote_name


def possible_names(statement: StatementParts, site: Site) -> None:
    """Refuses names with characters that only TiDB takes in a name.  Other servers refuse even questions about such
    tables, and MySQL makes a question mark of each in the name of a column, an index or a constraint."""
    classified = statement.classified
    names = [classified.database, *(part for name in classified.tables for part in name)]
    names += [token.name or "" for token in statement.tokens]
    name = next((name for name in names if has_long_characters(name)), None)
    if name is not None:
        raise UnsupportedError(
            f"the target can have no name with such characters as {name!r}: give a table another one with --route, or"
            " leave it out with --filter, and start again; rename a column upstream first, or leave its table out;"
            " otherwise `bridge ddl replace` the statement with one that has another name"
        )


def recover(statement: StatementParts, site: Site) -> None:
    """Refuses to bring a dropped table back, which only TiDB can do."""
    if statement.classified.kind is StatementKind.RECOVER_TABLE:
        raise UnsupportedError(
            "the target cannot bring a dropped table back; make the table by hand with the rows that the upstream has"
            " at this commit ts, then say bridge ddl done"
        )


def versions(statement: StatementParts, site: Site) -> None:
    """Refuses to make a table of MariaDB's that keeps former versions of its rows, as the target would keep its own."""
    if ("ROW", "START") in pairwise(token.word for token in statement.tokens):
        raise UnsupportedError(
            "the messages have former versions of its rows as rows of their own, and the target would make its own"
            " beside them: rows that are deleted would stay; leave the table out with --filter"
        )


def global_temporary(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Leaves out global temporary tables: their rows belong to one session and are never replicated."""
    words = [token.word for token in statement.tokens[:3]]
    if words[1:3] == ["GLOBAL", "TEMPORARY"]:
        omission = OmittedObject("table", str(statement.classified.tables[0]))
        why = "the target has no global temporary tables; none of its rows is replicated"
        yield remove(statement.tokens, why, omission)


def dropped_unmade(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Leaves out drops of tables that were left out."""
    if statement.classified.kind is StatementKind.DROP_TABLE:
        for item, name in zip(statement.items, statement.classified.tables, strict=True):
            if site.around.lacks(name, OmittedObject("table", str(name))):
                yield remove(item.tokens, "the target never got it")


def names_case(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Writes names as the target stores them, where it tells names apart by case.  TiDB, and MySQL on some systems,
    find a table whatever the case of the letters.

    Other systems of MySQL do not: behind IF EXISTS, their statement may have meant a table that was not there.
    """
    classified = statement.classified
    if site.target.lower_case_table_names != 0:
        return
    renamed: dict[TableName, TableName] = {}
    makes = classified.kind in {StatementKind.CREATE_TABLE, StatementKind.CREATE_VIEW}
    for mention in (*classified.begins_from[makes:], *classified.mentions[len(classified.touched) :]):
        folded = TableName(mention.table.schema, mention.table.table.lower())
        stored = renamed.get(folded) or site.around.stored_name(mention.table)
        if stored is not None and stored != mention.table:
            before = [token.word for token in statement.tokens if token.span[0] < mention.span[0]]
            if not site.is_from_tidb and ("IF", "EXISTS") in pairwise(before):
                raise UnsupportedError(
                    f"the target has no {mention.table}, only {stored}, and the statement does not tell which of them"
                    " the upstream meant: skip it if the upstream tells names apart by the case of their letters"
                    f" (lower_case_table_names = 0), otherwise replace it by one that names {stored}"
                )
            yield Edit(*mention.span, quote_name(*stored), "the target tells names apart by the case of their letters")
        if classified.kind is StatementKind.RENAME_TABLE:  # one statement may rename a table that it has just named
            new = classified.tables[classified.touched.index(mention) + 1]
            renamed[TableName(new.schema, new.table.lower())] = new


def current_database(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Writes the name into ALTER DATABASE without one: some servers would take an option's first word for it."""
    if statement.classified.kind is StatementKind.ALTER_DATABASE and statement.tokens[2:] == statement.options:
        end = statement.tokens[1].span[1]
        yield Edit(end, end, f" {quote_name(statement.classified.database)}", "the database of the message")


def view_rights(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Makes a replicated view run with its reader's rights, so that it shows a reader no more than the reader may
    see.  It must not have the rights of the account that made it, which the target may lack, nor the bridge's."""
    if statement.classified.kind is not StatementKind.CREATE_VIEW:
        return
    name = statement.classified.touched[0].span[0]
    before = [token for token in statement.tokens if token.span[0] < name]
    view = max(i for i, token in enumerate(before) if token.word == "VIEW")
    security = next((i for i in range(view) if [t.word for t in before[i : i + 2]] == ["SQL", "SECURITY"]), view)
    definer = next((i for i in range(security) if before[i].word == "DEFINER"), None)
    account = before[definer + 2 : security] if definer is not None else []
    if account and account[0].word != "CURRENT_USER":
        yield Edit(*span_of(account), "CURRENT_USER", "the account is the upstream's")
    why = "a reader of the view sees what the reader may see, not what the bridge may"
    if security == view:
        yield Edit(before[view].span[0], before[view].span[0], "SQL SECURITY INVOKER ", why)
    elif before[security + 2].word != "INVOKER":
        yield Edit(*before[security + 2].span, "INVOKER", why)


_INDEXES: Final = frozenset({StatementKind.CREATE_INDEX, StatementKind.DROP_INDEX})


def hashed_partitions(statement: StatementParts, site: Site) -> None:
    """Refuses to empty or exchange one of the partitions into which a server puts rows by a hash of its own: TiDB's is
    another one than that of MySQL and MariaDB (tried on 8.5, 8.0, 5.7, 11.4), and LINEAR means nothing to it."""
    is_other = site.is_from_tidb != site.target.has(Feature.TIDB_SYNTAX)
    taking = [item for item in statement.items if item.change in {C.EXCHANGE_PARTITION, C.TRUNCATE_PARTITION}]
    if site.is_approved or not is_other or all(at(item.tokens, 2).word == "ALL" for item in taking):
        return
    method = site.around.partition_method(statement.classified.tables[0])
    if "KEY" in method or "LINEAR" in method:
        raise UnsupportedError(
            f"by {method} the target has other rows in a partition than the upstream: change them as it did by hand,"
            " then say bridge ddl done; or approve it if the rows are the same"
        )


def hints(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Removes ALGORITHM and LOCK of CREATE INDEX and DROP INDEX."""
    tokens = statement.tokens
    for i, token in outer(tokens if statement.classified.kind in _INDEXES else ()):
        if token.word in HINTS:
            yield remove(tokens[i : value_at(tokens, i) + 1], HOW)


def engines(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Replaces other engines by InnoDB: only InnoDB tables can be written exactly once."""
    for scopes, is_inner in ((option_scopes, False), (partition_scopes, True)):
        for scope in scopes(statement):
            for i, token, depth in with_depth(scope):
                engine = at(scope, value_at(scope, i))
                is_other = engine.kind != "end" and engine.text.strip("'\"`").upper() != "INNODB"
                if token.word == "ENGINE" and bool(depth) is is_inner and is_other:
                    yield Edit(*engine.span, "InnoDB", "only InnoDB tables can be written exactly once")
