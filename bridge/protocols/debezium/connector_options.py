"""Holds the options of a Debezium connector that decide how it writes values, and that its messages do not name."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Literal

DecimalMode = Literal["precise", "string", "double"]
TimeMode = Literal["adaptive_time_microseconds", "adaptive", "connect", "microseconds", "nanoseconds", "isostring"]
BinaryMode = Literal["bytes", "base64", "base64-url-safe", "hex"]


@dataclass(frozen=True)
class DebeziumModes:
    """The connector's properties decimal.handling.mode, time.precision.mode and binary.handling.mode.

    A Connect schema in the message tells more than these options, and so may a JSON number or string.  None means not
    given: then the connector's default holds (precise, adaptive_time_microseconds, bytes), unless the value may just as
    well be of another mode.
    """

    decimal: DecimalMode | None = None
    time: TimeMode | None = None
    binary: BinaryMode | None = None

    @classmethod
    def read(cls, text: str) -> DebeziumModes:
        """Reads what `str` wrote."""
        return cls(*(mode or None for mode in text.split(",")))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return ",".join(mode or "" for mode in astuple(self))


TICDC_MODES = DebeziumModes("double", "adaptive_time_microseconds", "base64")
"""The modes of TiCDC, whose messages name it as the connector."""
