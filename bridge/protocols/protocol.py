"""What everybody but its decoder must know of a protocol.  Each has one such object in its folder (`recognition.py`);
the list of them is in `detect.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Recognised(NamedTuple):
    """What a message tells about its format.

    protocol: the name of one in `detect.PROTOCOLS`.
    variant: the sender, in words for people, as far as the message shows them.
    certain: False for a message that looks the same in another protocol, as ckafka's schema changes look like Canal's.
    mysql_born: whether the message was made from MySQL's binlog, which lacks the changes that foreign keys cascade; so
    `ddl.source` has to say whose default collations its schema changes mean.
    is_schema_change: whether the message says that it is a schema change, whatever else it holds.
    """

    protocol: str
    variant: str
    certain: bool = True
    mysql_born: bool = False
    is_schema_change: bool = False


@dataclass(frozen=True)
class Protocol:
    """The facts of a wire format.

    name: as `--protocol` has it.
    decoder: its decoder, as `module:class` of `bridge.protocols`; loaded when the first is made.
    shows: by what messages of a topic are recognised, in words behind "17 of 20 messages".
    of_key: recognises a message by its key, before anything is parsed.
    of_message: recognises a message in JSON.
    takes_zone: whether messages do not say in which zone TIMESTAMP values are, so that --timezone has to.
    may_lack_boundaries: whether changes can have a commit ts although no boundaries are sent.
    may_hide_updates: whether an update without its old row is written as an insert is.
    """

    name: str
    decoder: str
    shows: str
    of_key: Callable[[bytes], Recognised | None] | None = None
    of_message: Callable[[Mapping[str, Any]], Recognised | None] | None = None
    takes_zone: bool = False
    may_lack_boundaries: bool = False
    may_hide_updates: bool = False
