"""Finds the jars of Spark's connector for Kafka, and the Spark properties that load it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

KAFKA_PACKAGE: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
_KAFKA_JARS: Final = (
    "org.apache.spark_spark-sql-kafka-0-10_2.13-4.0.0.jar",
    "org.apache.spark_spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    "org.apache.kafka_kafka-clients-3.9.0.jar",
    "org.apache.commons_commons-pool2-2.12.0.jar",
)
"""The jars of the package that Spark itself does not have, by their names in Spark's Ivy folder."""
_IVY: Final = Path.home() / ".ivy2.5.2"
"""Where Spark 4.0 keeps fetched packages.  The bridge sets it explicitly: by default Spark uses the home folder in
/etc/passwd, not $HOME, and in a container the two may differ."""


_OTHER_WAYS: Final = {"spark.driver.extraClassPath", "spark.jars", "spark.jars.packages"}
"""Properties with which the user may load a connector of another version."""


def connector(given: Mapping[str, str], *, fetch: bool) -> dict[str, str]:
    """Returns the Spark properties that load the connector.

    When its jars have been fetched before, they are put on the class path: to ask Ivy for them takes 1.5 s, and classes
    on the class path can be archived.  An archive belongs to one class path, so they are put there whether Kafka is
    read or not.  Otherwise, with `fetch`, Spark fetches the package.
    """
    ivy = given.get("spark.jars.ivy", str(_IVY))
    jars = jars_in(Path(ivy))
    if is_local(given) and jars and not _OTHER_WAYS & given.keys():
        return {"spark.driver.extraClassPath": os.pathsep.join(map(str, jars))}
    return {"spark.jars.packages": KAFKA_PACKAGE, "spark.jars.ivy": ivy} if fetch else {}


def is_local(given: Mapping[str, str]) -> bool:
    """Tells whether Spark runs on this machine alone, which is the default."""
    return given.get("spark.master", "local").startswith("local")


def jars_in(ivy: Path = _IVY) -> list[Path]:
    """Returns the connector's jars in an Ivy folder; an empty list unless all of them are there."""
    jars = [ivy / "jars" / name for name in _KAFKA_JARS]
    return jars if all(jar.is_file() for jar in jars) else []
