"""Reads the column names in the keys of Debezium messages."""

from __future__ import annotations

from typing import Final

import orjson

from bridge.protocols.debezium.envelope import Envelopes

_MOST_ENDS: Final = 4096
_LONGEST_END: Final = 1000
"""In bytes.  The schema of a key names the table, so each table's keys have another end."""
_DIGITS: Final = b"0123456789"


class HandleKeys:
    """Reads the keys of tables with the same columns; the same text around a number is parsed once."""

    def __init__(self, envelopes: Envelopes) -> None:
        self._envelopes = envelopes
        self._start = b"\0"  # begins no key
        self._names: dict[bytes, list[str]] = {}
        """The names of the keys that begin with `_start`, by how they end."""

    def names(self, key: bytes | None) -> list[str] | None:
        """Gives the names of the key's columns; raises DecodeError for a key that is not JSON.

        There are none for a table without a key (null, `{}`).  Gives None where a transform has turned the key into a
        bare value: then the target's catalog tells the key.
        """
        if not key:
            return []
        if not key.startswith(b"{"):
            return None
        # Apart from digits, the key was seen before: it has the same names
        if key.startswith(self._start):
            behind = key[len(self._start) :]
            end = behind.lstrip(_DIGITS)
            if end in self._names and len(end) < len(behind):
                return self._names[end]
        payload, _ = self._envelopes.parsed(key, "the message's key")
        names = [*payload] if type(payload) is dict else []
        if len(names) == 1 and type(payload[names[0]]) is int:
            self._remember(key, names)
        return names

    def _remember(self, key: bytes, names: list[str]) -> None:
        name = orjson.dumps(names[0]) + b":"
        at = key.rfind(name) + len(name)
        end = key[at:].lstrip(_DIGITS)
        if at >= len(name) and end.startswith(b"}") and len(end) < len(key) - at and len(end) <= _LONGEST_END:
            if key[:at] != self._start or len(self._names) >= _MOST_ENDS:
                self._start, self._names = key[:at], {}
            self._names[end] = names
