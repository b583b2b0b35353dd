"""How far the queue is in the upstream's binlog, and what contradicts that.

Asks the server that the connector reads now for the transactions that were read from the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Final, NamedTuple

from pymysql.err import MySQLError

from bridge.errors import SourceError, UnansweredError
from bridge.model import SchemaChange
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import LOST, server_words
from bridge.protocols.debezium.transactions import IN_FILE, plain_id
from bridge.protocols.values.event_time import NUMBER_DIGITS, SNAPSHOT_SERVER

Lacks = Callable[[str, Sequence[str]], str]
"""Tells in words why a server (its server_id) may lack transactions up to these (GTIDs); "" when it has all of them."""


def lacks(upstream: Target, server_id: str, gtids: Sequence[str]) -> str:
    """Asks the upstream, which must be that server (MySQL, "Functions Used with Global Transaction Identifiers";
    MariaDB, "gtid_binlog_state").  Raises UnansweredError when it does not answer."""
    try:
        with closing(upstream.connect(autocommit=True)) as session:
            ((server,),) = session.rows("SELECT @@GLOBAL.server_id")
            if str(server) != server_id:
                return f"{upstream} is server {server}, which is not the one that the messages come from"
            if ":" in gtids[0]:
                gtid_set = ",".join(":1-".join(gtid.rsplit(":", 1)) for gtid in gtids)
                ((has_all,),) = session.rows("SELECT GTID_SUBSET(%s, @@GLOBAL.gtid_executed)", (gtid_set,))
                missing = [] if has_all else [gtid_set]
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
    split = [entry.rsplit("-", 1) for entry in state if entry]
    return [
        gtid
        for gtid, (of, number) in zip(gtids, (gtid.rsplit("-", 1) for gtid in gtids), strict=True)
        if not any(head == of and int(last) >= int(number) for head, last in split)
    ]


class Place(NamedTuple):
    """The last transaction, or schema change, that was due: whose binlog, and its file and position.

    last: those of the last transaction, else one below the snapshot's.  id: that transaction, or the change's GTID.
    transactions, changes: the last id of each server that has committed some.  before: the server before a failover,
    until the next one has committed a transaction.
    """

    server: str
    number: int
    last: int
    id: str
    transactions: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    before: str = ""

    def text(self) -> str:
        """Writes it as progress keeps it."""
        return "\n".join("\t".join(field) if isinstance(field, tuple) else str(field) for field in self)

    @classmethod
    def read(cls, text: str) -> Place:
        """Reads what `text` wrote."""
        server, number, last, id_, transactions, changes, before = text.split("\n")
        of_rows, of_changes = (tuple(filter(None, field.split("\t"))) for field in (transactions, changes))
        return cls(server, int(number), int(last), id_, of_rows, of_changes, before)


NOWHERE: Final = Place("", -1, -1, "")


class Reached:
    """The last transaction that is in the target or was due, of all and of each server.

    repeated: transactions of which rows came again after they were due.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.repeated: set[str] = set()
        # the ids of `place` by what stands before their numbers: to look through them took twice as long (measured)
        self._transactions = {id_[:-NUMBER_DIGITS]: id_ for id_ in self.place.transactions}
        self._changes = {id_[:-NUMBER_DIGITS]: id_ for id_ in self.place.changes}

    def _last(self, id_: str, *, is_change: bool) -> str:
        """Gives the last id with which an id compares, "" for none.  The id of a transaction compares with transactions
        alone: a schema change may run before rows that come later."""
        head = id_[:-NUMBER_DIGITS]
        last = self._transactions.get(head, "")
        return max(last, self._changes.get(head, "")) if is_change else last

    def run(self, number: int, id_: str, topic: str) -> None:
        """Notes that a schema change is due next: its file and position, and its GTID.  Raises SourceError where that
        is behind one that was due before."""
        self._check([id_], topic)
        if head := id_[:-NUMBER_DIGITS]:
            self._changes[head] = id_
        changes = tuple(self._changes.values())
        self.place = self.place._replace(number=number, id=id_ if head else self.place.id, changes=changes)

    def move(self, numbers: Sequence[int], ids: Sequence[str], topic: str, server: str) -> Callable[[int], Place]:
        """Notes which transactions are due next, whose ids differ in their numbers alone, and gives the place of each
        by its index.  Raises as `run`.

        numbers: their files and positions.  server: who has committed them, where there was a failover before.
        """
        self._check(ids, topic)
        former, head, last_ids = self.place, ids[0][:-NUMBER_DIGITS], dict(self._transactions)
        before = former.before if server != former.server else ""

        def place(at: int) -> Place:
            transactions = tuple(({**last_ids, head: ids[at]} if head else last_ids).values())
            return Place(former.server, numbers[at], numbers[at], ids[at], transactions, former.changes, before)

        if head:
            self._transactions[head] = ids[-1]
        self.place = place(-1)
        return place

    def _check(self, ids: Sequence[str], topic: str) -> None:
        if has_gtid(ids[0]):  # the rows of CREATE TABLE ... SELECT have the GTID of the statement
            for earlier, id_ in pairwise([self._last(ids[0], is_change=ids[0] not in self.place.changes), *ids]):
                if id_ <= earlier:
                    raise other_binlog(f"{plain_id(id_)} lies behind {plain_id(earlier)} there", topic)

    def is_past(self, id_: str, *, is_change: bool = False) -> bool:
        """Tells whether a transaction was due; of one whose id does not compare with that of the last, by its rows."""
        is_last = id_ == self.place.id not in self.place.changes
        return is_last or id_ <= self._last(id_, is_change=is_change) or id_ in self.repeated

    def begin_at(self, server: str) -> None:
        """Notes whose binlog is read at first."""
        if not self.place.server and not is_of_snapshot(server):
            self.place = self.place._replace(server=server)

    def is_foreign(self, server: str) -> bool:
        """Tells whether a place is of another server's binlog."""
        return self.place.server not in ("", server) and server != self.place.before and not is_of_snapshot(server)

    def is_again(self, server: str, id_: str, *, is_change: bool = False) -> bool:
        """Tells whether what a server before the last failover has committed was due."""
        is_other = self.place.server not in ("", server)
        return is_other and has_gtid(id_) and self.is_past(id_, is_change=is_change)

    def contradiction(self, server: str, id_: str, number: int, last: int, *, is_change: bool = False) -> str:
        """Tells why a place is not of the binlog that was read before; "" when it may be, or was due.

        In another server's binlog, GTIDs and places are in another order.  number: the file and position.  last: those
        of what was due.
        """
        if self.is_again(server, id_, is_change=is_change):
            return ""
        if self.is_foreign(server):
            return f"{server} has committed {plain_id(id_)}, and what was read before {self.place.server}"
        last_id = self._last(id_, is_change=is_change)
        if last_id and has_gtid(id_) and (id_ > last_id) != (number > last):
            return f"{plain_id(id_)} and {plain_id(last_id)} are in another order in the binlog"
        return ""

    def is_behind(self, id_: str) -> int:
        """Tells whether a GTID is behind what was due, by 1 or 0; -1 where that cannot be told."""
        last_id = self._last(id_, is_change=False)
        return int(id_ > last_id) if last_id and has_gtid(id_) else -1

    def go_over(self, server: str, lacks: Lacks, why: str, topic: str) -> None:
        """Goes over to the binlog of another server, where places begin anew.  Raises SourceError when it may lack a
        transaction that is in the target or was due."""
        lasts = [*self.place.transactions, *self.place.changes]
        lack = "nothing was read before"
        if lasts and all(map(has_gtid, lasts)):
            lack = lacks(server.rpartition("/")[2], [plain_id(gtid) for gtid in lasts])
        if lack:
            raise other_binlog(f"{why}; {lack}", topic)
        self.place = self.place._replace(server=server, number=-1, last=-1, before=self.place.server)


def is_of_snapshot(server: str) -> bool:
    """Tells whether a place is of a snapshot that is no incremental one."""
    return server.endswith(f"/{SNAPSHOT_SERVER}")


def has_gtid(id_: str) -> bool:
    """Tells whether a transaction has a GTID for its id, which is the same on every server."""
    return IN_FILE not in id_ and bool(id_[:-NUMBER_DIGITS])


def other_binlog(why: str, position: str) -> SourceError:
    """The error of a message that is of another server's binlog."""
    return SourceError(
        f"the connector reads another binlog: {why}; nothing tells which of its transactions are in the target",
        where=position,
        fix="after a failover with GTIDs, name the new server with --upstream: the bridge asks it, and goes on when it"
        " has all that was read; else begin a new pipeline behind a new snapshot, under another topic.prefix",
    )


class Snapshot:
    """The snapshot that a pipeline begins with: all of it has one place in the binlog, and each statement comes once.

    changes: the schema changes on record, of which those of a snapshot count.
    """

    def __init__(self, changes: Iterable[SchemaChange] = ()) -> None:
        statements = [change for change in changes if f"/{SNAPSHOT_SERVER}\n" in change.place]
        self._number = int(statements[-1].place.split("\n")[2]) if statements else None
        self._positions = {change.statement_hash: change.position for change in statements}

    def check(self, number: int, reached: Place, position: str) -> None:
        """Raises SourceError for a place of another snapshot.

        number: its file and position.  reached: the last place that was due.  position: of the message that tells it.
        """
        first = self._number if reached.last < 0 or reached.number >= 0 else reached.last + 1
        if first not in (None, number) or -1 < reached.number != number:
            raise _begun_again(position)
        self._number = number

    def check_statement(self, change: SchemaChange) -> None:
        """Raises SourceError for a statement that a snapshot of the same place had in another message."""
        if self._positions.setdefault(change.statement_hash, change.position) != change.position:
            raise _begun_again(change.position)


def _begun_again(where: str) -> SourceError:
    return SourceError(
        "the connector has begun another snapshot, as it was killed in its first one, has lost its offsets, got the"
        " signal for a blocking one, has snapshot.mode=recovery, or its upstream was set back: what was deleted in"
        " between may be in no message, and rows without a key would double",
        where=where,
        fix="have the connector take its snapshot under another topic.prefix, and begin a new pipeline with those"
        " topics into an empty target; bridge help starting has the steps",
    )
