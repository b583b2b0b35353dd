"""How far the queue is in the upstream's binlog, and what contradicts that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from bridge.errors import SourceError
from bridge.protocols.debezium.transactions import IN_FILE, told_id
from bridge.protocols.values.event_time import NUMBER_DIGITS, SNAPSHOT_SERVER


class Place(NamedTuple):
    """The last transaction, or schema change, that was due: whose binlog, and its file and position.

    last: those of the last transaction, else one below the snapshot's.  id: that transaction, or the change's GTID.
    """

    server: str
    number: int
    last: int
    id: str

    def text(self) -> str:
        """Writes it as progress keeps it."""
        return "\n".join(map(str, self))

    @classmethod
    def read(cls, text: str) -> Place:
        """Reads what `text` wrote."""
        server, number, last, id_ = text.split("\n", 3)
        return cls(server, int(number), int(last), id_)


NOWHERE: Final = Place("", -1, -1, "")


class Reached:
    """The last transaction that is in the target or was due, of all and of each server.

    gone: transactions of which rows came again after they were due.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.gone: set[str] = set()
        self._lasts: dict[str, str] = {}
        """By what stands before the number of the id; of the processes before, only the last of all."""
        self._note(place.id)

    def _note(self, id_: str) -> None:
        if head := id_[:-NUMBER_DIGITS]:
            self._lasts[head] = max(id_, self._lasts.get(head, ""))

    def move(self, place: Place, id_: str, topic: str) -> None:
        """Notes what is due next.  Raises SourceError where its GTID is behind one that was due before."""
        last = self._lasts.get(id_[:-NUMBER_DIGITS], "")
        if last and IN_FILE not in id_ and id_ <= last:
            raise other_binlog(f"{told_id(id_)} lies behind {told_id(last)} there", topic)
        self.place = place
        self._note(id_)

    def is_past(self, id_: str) -> bool:
        """Tells whether a transaction is in the target, or was due; of one whose id has no number that compares with
        that of the last, by its rows alone."""
        return id_ in self.gone or id_ == self.place.id or id_ <= self._lasts.get(id_[:-NUMBER_DIGITS], "")

    def check_server(self, servers: Sequence[str], position: str) -> None:
        """Raises SourceError for a place in the binlog of another server."""
        for server in servers:
            if server.endswith(f"/{SNAPSHOT_SERVER}"):
                continue
            if self.place.server not in ("", server):
                raise other_binlog(f"it is of {server}, and what was read before of {self.place.server}", position)
            self.place = self.place._replace(server=server)

    def check_order(self, id_: str, number: int, last: int, position: str) -> None:
        """Raises SourceError where a GTID is behind what was due, and the place is not, or the other way round: a
        replica copies GTIDs, and has a binlog with places of its own.  last: the place of what was due."""
        known = self._lasts.get(id_[:-NUMBER_DIGITS], "")
        if known and IN_FILE not in id_ and (id_ > known) != (number > last):
            raise other_binlog(f"{told_id(id_)} and {told_id(known)} are in another order in the binlog", position)


def other_binlog(why: str, position: str) -> SourceError:
    """The error of a message that is of another server's binlog."""
    return SourceError(
        f"the connector reads another binlog: {why}; nothing tells which of its transactions are in the target",
        where=position,
        fix="begin a new pipeline behind a new snapshot, under another topic.prefix; bridge help starting has the steps"
        " by which a connector goes over to another server without one",
    )
