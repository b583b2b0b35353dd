"""The columns that a Debezium message's key names."""

from __future__ import annotations

import orjson

from bridge.protocols.debezium_envelope import Envelopes


class HandleKeys:
    """Reads the keys of one table's messages, parsing the same frame around a number once."""

    def __init__(self, envelopes: Envelopes) -> None:
        self._envelopes = envelopes
        self._names: list[str] = []
        self._start = self._end = b"\0"  # begins no key
        self._cut = slice(0)

    def names(self, key: bytes | None) -> list[str]:
        """The names of the key's columns; none for a table without a key (null, `{}`), or where a transform has made
        the key a bare value: then the target's catalog tells them."""
        if not key or not key.startswith(b"{"):
            return []
        # Digits for digits, the key is the last one: the same names
        if key.startswith(self._start) and key.endswith(self._end) and key[self._cut].isdigit():
            return self._names
        payload, _ = self._envelopes.parsed(key, "the message's key")
        names = [*payload] if type(payload) is dict else []
        if len(names) == 1 and type(payload[names[0]]) is int:
            self._remember(key, names)
        return names

    def _remember(self, key: bytes, names: list[str]) -> None:
        name = orjson.dumps(names[0]) + b":"
        at = key.rfind(name) + len(name)
        end = key[at:].lstrip(b"0123456789")
        if at >= len(name) and end.startswith(b"}") and len(end) < len(key) - at:
            self._names, self._start, self._end = names, key[:at], end
            self._cut = slice(at, -len(end))
