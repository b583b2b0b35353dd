"""What the driver's JVM is started with."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bridge.errors import SourceError, UsageError
from bridge.spark import session
from bridge.spark.process_memory import driver_java_options


def test_options_of_the_operator_stand_behind_the_bridges_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trust store of their own must not cost them the archive of classes, or the end on lack of memory."""
    started: list[Mapping[str, str]] = []

    def refuse(properties: Mapping[str, str], _: object) -> None:
        started.append(properties)
        raise OSError("no Java")

    monkeypatch.setattr(session, "_start_jvm", refuse)
    name, given = "spark.driver.extraJavaOptions", "-Djavax.net.ssl.trustStore=/etc/trust"
    for settings in ({}, {name: given}):
        with pytest.raises(UsageError, match="no Java"):
            session.start_session(settings)
    assert "-XX:+ExitOnOutOfMemoryError" in started[0][name]
    assert started[1][name] == driver_java_options(given) == f"{started[0][name]} {given}"


def test_a_jvm_that_is_killed_while_it_starts_is_no_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 3, after which a service manager starts the bridge again; 2 would say that it never can."""

    def end(*_: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(session, "_start_jvm", end)
    with pytest.raises(SourceError, match="Spark's JVM has ended"):
        session.start_session({})
