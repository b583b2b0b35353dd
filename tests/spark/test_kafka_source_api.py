"""The connector for Kafka comes from where it was fetched before, unless the user has a way of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.spark import kafka_source_api
from bridge.spark.kafka_source_api import KAFKA_PACKAGE


@pytest.fixture
def ivy(tmp_path: Path) -> str:
    """An Ivy folder that holds the connector."""
    (tmp_path / "jars").mkdir()
    for name in kafka_source_api._KAFKA_JARS:
        (tmp_path / "jars" / name).touch()
    return str(tmp_path)


def test_jars_that_were_fetched_are_used(ivy: str) -> None:
    """Without asking Ivy again."""
    found = kafka_source_api.connector({"spark.jars.ivy": ivy}, fetch=True)
    assert list(found) == ["spark.driver.extraClassPath"]
    assert found["spark.driver.extraClassPath"].count(".jar") == len(kafka_source_api._KAFKA_JARS)


@pytest.mark.parametrize(
    "given",
    [
        {"spark.master": "spark://master:7077"},
        {"spark.driver.extraClassPath": "/mine.jar"},
        {"spark.jars": "/mine.jar"},
        {"spark.jars.packages": "org.example:mine:1"},
    ],
)
def test_otherwise_the_package_is_asked_for(ivy: str, given: dict[str, str]) -> None:
    """On a cluster executors need it too; two versions of a connector on one class path are none that works."""
    found = kafka_source_api.connector({"spark.jars.ivy": ivy, **given}, fetch=True)
    assert found == {"spark.jars.packages": KAFKA_PACKAGE, "spark.jars.ivy": ivy}


def test_spark_fetches_where_the_bridge_looks() -> None:
    """Java takes the home of the password file, Python takes $HOME: where they differ the jars were fetched at each
    start and never found."""
    fetched = kafka_source_api.connector({"spark.jars": "/mine.jar"}, fetch=True)
    assert fetched["spark.jars.ivy"] == str(Path.home() / ".ivy2.5.2")


def test_what_is_not_there_is_fetched_on_request_only(ivy: str, tmp_path: Path) -> None:
    """A replay of files needs no connector; a folder that lacks one jar does not count."""
    (tmp_path / "jars" / kafka_source_api._KAFKA_JARS[0]).unlink()
    assert kafka_source_api.connector({"spark.jars.ivy": ivy}, fetch=False) == {}
    found = kafka_source_api.connector({"spark.jars.ivy": ivy}, fetch=True)
    assert found == {"spark.jars.packages": KAFKA_PACKAGE, "spark.jars.ivy": ivy}
