"""Tables that are made upstream, and whose rows go to a topic that nobody reads.  Pure.

Debezium's connector sends schema changes to a topic of its own, `topic.prefix`, and the rows of each table to another
one, `topic.prefix.database.table` (its page on the connector for MySQL, Topic names).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from bridge.ddl.classes import ChangeClass
from bridge.ddl.parser import Classified, classify
from bridge.model import SchemaChange, TableName

ADD_TOPIC: Final = "stop the bridge, and start it with --topic {}@{} beside the others"
_NAMING: Final = frozenset({ChangeClass.CREATE_TABLE, ChangeClass.RENAME_TABLE})
_WRITTEN_OTHERWISE: Final = re.compile(r"[^a-zA-Z0-9._-]")


def unread_topics(change: SchemaChange, topics: Collection[str]) -> dict[TableName, str]:
    """Gives the tables that a schema change makes, or renames, whose topic is not among those that are read.

    topics: those that are read; where none of them is of a table of the connector, they are not told apart so.
    """
    prefix = change.position.rsplit("/", 2)[0]
    if not any(topic.startswith(f"{prefix}.") for topic in topics):
        return {}
    classified = classify(change.text, change.schema, is_certain=True)
    if not isinstance(classified, Classified) or _NAMING.isdisjoint(classified.classes):
        return {}
    named = {name: _WRITTEN_OTHERWISE.sub("_", f"{prefix}.{name.schema}.{name.table}") for name in classified.tables}
    return {name: topic for name, topic in named.items() if topic not in topics}
