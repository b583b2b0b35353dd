"""`bridge setup`: fetches what Spark needs besides the package, so that later starts need no network."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bridge.errors import UsageError
from bridge.spark.class_archive import make_archive
from bridge.spark.kafka_source_api import jars_in


@dataclass(frozen=True)
class Prepared:
    """What is there now.

    connector: the jars of Spark's connector for Kafka.
    archive: the archive of Spark's classes, "" without one; why: why there is none.
    """

    connector: tuple[str, ...]
    archive: str
    why: str = ""

    def document(self) -> dict[str, Any]:
        """Returns it as a JSON document."""
        return asdict(self)


def prepare() -> Prepared:
    """Fetches Spark's connector for Kafka, and makes the archive of Spark's classes, unless they are there.

    Raises UsageError when the connector cannot be fetched; a bridge starts without the archive, but slower.
    """
    archive, why = "", ""
    try:
        archive = str(make_archive())
    except UsageError as error:
        if not jars_in():
            raise
        why = error.what
    return Prepared(tuple(map(str, jars_in())), archive, why)
