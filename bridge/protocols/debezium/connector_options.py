"""The options of a Debezium connector that decide how values are written and that its messages do not name."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Literal

DecimalMode = Literal["precise", "string", "double"]
TimeMode = Literal["adaptive_time_microseconds", "adaptive", "connect", "microseconds", "nanoseconds", "isostring"]
BinaryMode = Literal["bytes", "base64", "base64-url-safe", "hex"]


@dataclass(frozen=True)
class DebeziumModes:
    """The connector's properties decimal.handling.mode, time.precision.mode and binary.handling.mode.

    A Connect schema in the message says more than these, and a JSON number or string may.  None: not told; then the
    connector's own default holds (precise, bytes), unless a value might be of another mode just as well.
    """

    decimal: DecimalMode | None = None
    time: TimeMode = "adaptive_time_microseconds"
    binary: BinaryMode | None = None

    @classmethod
    def read(cls, text: str) -> DebeziumModes:
        """Reads what `str` wrote."""
        return cls(*(mode or None for mode in text.split(",")))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return ",".join(mode or "" for mode in astuple(self))


TICDC_MODES = DebeziumModes("double", "adaptive_time_microseconds", "base64")
"""The modes of TiCDC, whose messages name it as the connector."""
