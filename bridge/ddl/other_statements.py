"""Recognises statements that change no table and no row: maintenance, accounts, programs, sessions.

Upstreams write some of them to their logs beside schema changes, and senders pass them on.  The bridge never runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bridge.ddl.lexer import Token, TokenReader

_UNLOGGED: Final = ("NO_WRITE_TO_BINLOG", "LOCAL")
_TABLES: Final = ("TABLE", "TABLES", "VIEW")
_MAINTENANCE: Final = frozenset({"ANALYZE", "CHECK", "CHECKSUM", "OPTIMIZE", "REPAIR"})
_BEGINNINGS: Final = (
    *(("FLUSH",), ("RESET",), ("PURGE",), ("KILL",), ("SHUTDOWN",), ("DO",), ("USE",), ("HELP",)),
    *(("GRANT",), ("REVOKE",), ("RENAME", "USER"), ("INSTALL",), ("UNINSTALL",), ("CHANGE",)),
    *(("LOCK", "TABLE"), ("LOCK", "TABLES"), ("LOCK", "INSTANCE"), ("LOCK", "STATS"), ("UNLOCK",)),
    *(("COMMIT",), ("SAVEPOINT",), ("RELEASE", "SAVEPOINT"), ("STOP",)),
    *(("START", what) for what in ("TRANSACTION", "SLAVE", "ALL", "REPLICA", "GROUP_REPLICATION")),
    # XA ROLLBACK is logged only of rows that were logged before: it is none of these, nor is ROLLBACK
    *(("XA", verb) for verb in ("START", "BEGIN", "END", "PREPARE", "COMMIT", "RECOVER")),
    *(("ADMIN",), ("SPLIT",), ("LOAD", "STATS"), ("LOAD", "INDEX"), ("CACHE", "INDEX"), ("PREPARE",), ("DEALLOCATE",)),
    *(("CREATE", "TEMPORARY", "TABLE"), ("DROP", "PREPARE"), ("ALTER", "INSTANCE"), ("ALTER", "RANGE")),
)
"""How statements begin, apart from those about objects; of MySQL, MariaDB and TiDB."""
_OBJECTS: Final = (
    *(("USER",), ("ROLE",), ("SERVER",), ("TABLESPACE",), ("LOGFILE",), ("STATS",), ("STATISTICS",), ("BINDING",)),
    *(("SEQUENCE",), ("RESOURCE", "GROUP"), ("SPATIAL", "REFERENCE"), ("PLACEMENT", "POLICY")),
)
_PROGRAMS: Final = (("EVENT",), ("TRIGGER",), ("PROCEDURE",), ("FUNCTION",), ("PACKAGE",), ("LIBRARY",))
"""Objects that hold statements, between which there are semicolons."""
_UNLIKE: Final = {"SET": "STATEMENT", "BEGIN": "NOT"}
"""MariaDB's SET STATEMENT ... FOR and BEGIN NOT ATOMIC run other statements."""
_MODIFIERS: Final = (
    *(("OR", "REPLACE"), ("IF", "NOT", "EXISTS"), ("IF", "EXISTS"), ("AGGREGATE",), ("UNDO",)),
    *(("GLOBAL",), ("SESSION",)),
)


def changes_no_table(tokens: Sequence[Token]) -> bool:
    """Tells whether a statement, by its tokens, surely changes no table and no row, whatever follows its beginning."""
    reader = TokenReader(list(tokens), "")
    is_several = any(token.kind == "mark" and token.text == ";" for token in tokens[:-1])
    if all(token.text == ";" for token in tokens):
        return True
    if any(map(reader.accept, ("CREATE", "ALTER", "DROP"))):
        _skip_modifiers(reader)
        if any(reader.accept(*words) for words in _PROGRAMS):
            return True
        if any(reader.accept(*words) for words in _OBJECTS):
            return not is_several
        reader.at = 0
    return not is_several and (
        any(reader.accept(*words) for words in _BEGINNINGS) or _maintains(reader) or _is_alone(reader)
    )


def _skip_modifiers(reader: TokenReader) -> None:
    while True:
        if reader.accept("DEFINER"):
            reader.skip_mark("=")
            reader.account()
        elif not any(reader.accept(*words) for words in _MODIFIERS):
            return


def _maintains(reader: TokenReader) -> bool:
    """Tells whether it is ANALYZE TABLE or its like.  MariaDB's ANALYZE before another statement runs that one."""
    if reader.peek().word not in _MAINTENANCE:
        return False
    reader.at += 1
    any(map(reader.accept, _UNLOGGED))
    reader.accept("INCREMENTAL")
    return any(map(reader.accept, _TABLES))


def _is_alone(reader: TokenReader) -> bool:
    """Tells whether it sets variables, or begins a transaction, and no more."""
    word = reader.peek().word
    return word in _UNLIKE and reader.peek(1).word != _UNLIKE[word]
