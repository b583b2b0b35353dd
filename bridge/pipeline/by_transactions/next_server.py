"""Asks the server that the connector reads now for the transactions that were read from the one before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

from pymysql.err import MySQLError

from bridge.errors import UnansweredError
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import LOST, server_words

Lacks = Callable[[str, Sequence[str]], str]
"""Tells in words why a server (its server_id) may lack transactions up to these (GTIDs); "" when it has all of them."""


def lacks(upstream: Target, server_id: str, gtids: Sequence[str]) -> str:
    """Asks the upstream, which must be that server.  Raises UnansweredError when it does not answer, TargetError when
    it refuses the login.

    Source of the rules: MySQL, "Functions Used with Global Transaction Identifiers"; MariaDB, "gtid_binlog_state".
    """
    try:
        with closing(upstream.connect(autocommit=True)) as session:
            ((found,),) = session.rows("SELECT @@GLOBAL.server_id")
            if str(found) != server_id:
                return f"{upstream} is server {found}, which is not the one that the messages come from"
            if ":" in gtids[0]:
                wanted = ",".join(":1-".join(gtid.rsplit(":", 1)) for gtid in gtids)
                ((has_all,),) = session.rows("SELECT GTID_SUBSET(%s, @@GLOBAL.gtid_executed)", (wanted,))
                missing = [] if has_all else [wanted]
            else:
                ((state,),) = session.rows("SELECT CONCAT(@@GLOBAL.gtid_binlog_state, ',', @@GLOBAL.gtid_slave_pos)")
                missing = _missing(gtids, state.split(","))
    except LOST as error:
        raise UnansweredError(
            f"the upstream does not answer, which is asked after a failover: {server_words(error)}",
            where=str(upstream),
            fix="check --upstream: it must be the server that the connector reads",
        ) from error
    except MySQLError as error:
        return f"{upstream} does not tell: {server_words(error)}"
    return f"{upstream} does not have all of {', '.join(missing)}" if missing else ""


def _missing(gtids: Sequence[str], state: Sequence[str]) -> list[str]:
    """Gives those of MariaDB's GTIDs (domain-server-number) whose domain and server have no such number in a state."""
    split = [one.rsplit("-", 1) for one in state if one]
    return [
        gtid
        for gtid, (of, number) in zip(gtids, (gtid.rsplit("-", 1) for gtid in gtids), strict=True)
        if not any(head == of and int(last) >= int(number) for head, last in split)
    ]
