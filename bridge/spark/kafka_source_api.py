"""Spark's connector for Kafka: where its jars are, and the Spark properties that bring it."""

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
"""The jars that the package brings and Spark does not have, by their names in Spark's Ivy folder."""
_IVY: Final = Path.home() / ".ivy2.5.2"
"""Where Spark 4.0 keeps what it has fetched.  Spark is told so: by itself it takes the home of the password file, not
$HOME, and in a container the two may differ."""


_OTHER_WAYS: Final = {"spark.driver.extraClassPath", "spark.jars", "spark.jars.packages"}
"""Properties that may bring a connector of the user's choice."""


def connector(given: Mapping[str, str], *, fetch: bool) -> dict[str, str]:
    """The properties that bring the connector, under those that were given: its jars, where they have been fetched
    before, as asking Ivy for them takes 1.5 s and classes on the class path can be archived; else, on request, the
    package, which is fetched.  An archive is of one class path, so that the jars are on it, needed or not."""
    ivy = given.get("spark.jars.ivy", str(_IVY))
    jars = jars_in(Path(ivy))
    if is_local(given) and jars and not _OTHER_WAYS & given.keys():
        return {"spark.driver.extraClassPath": os.pathsep.join(map(str, jars))}
    return {"spark.jars.packages": KAFKA_PACKAGE, "spark.jars.ivy": ivy} if fetch else {}


def is_local(given: Mapping[str, str]) -> bool:
    """Whether Spark runs on this machine alone, as it does where nothing else was given."""
    return given.get("spark.master", "local").startswith("local")


def jars_in(ivy: Path = _IVY) -> list[Path]:
    """The connector's jars in an Ivy folder; none until all are there."""
    jars = [ivy / "jars" / name for name in _KAFKA_JARS]
    return jars if all(jar.is_file() for jar in jars) else []
