"""Asks a schema registry for the schemas of messages in Avro: each once on a machine.

Sources: Confluent, "Schema Registry API Reference" (`GET /schemas/ids/{id}`), which Karapace, Redpanda and Apicurio
(`/apis/ccompat/v7`) have too; Apicurio's own API (`GET /ids/contentIds/{id}`, `/ids/globalIds/{id}`).
"""

from __future__ import annotations

import hashlib
import json
import time
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from bridge.cache import cache_folder, cached
from bridge.console import keep_secret
from bridge.errors import RegistryAwayError, SourceError, UsageError
from bridge.mysql.connection.tls import Tls
from bridge.protocols.decoder import MAX_CACHED, DecodeError, SchemaId, SchemaLookup

_APICURIO: Final = "/apis/registry/"
"""In the path of Apicurio's own API."""
_MEDIA: Final = "application/vnd.schemaregistry.v1+json, application/json"
_FILE: Final = "schema.json"
_MOST_BYTES: Final = 16 << 20
_PATIENCE_SECONDS: Final = 4.0
"""How long one question is asked again before the source counts as away: what then begins anew is dear."""
_PAUSE_SECONDS: Final = 0.5
_FRESH_SECONDS: Final = 600.0
"""For so long what the machine has kept is not compared with what the registry gives."""
_LACKING_SECONDS: Final = 10.0
"""For so long a registry that lacks a schema is not asked for it again."""
_PAGE: Final = "see [source.registry]"


class _Answer(NamedTuple):
    status: int
    content: bytes


@dataclass(frozen=True)
class SchemaRegistry:
    """A registry, as the settings name it; it is sent to executors, and never shown.

    urls: of its servers, which are asked in turn.  user, password: for HTTP Basic.  token: a bearer token, instead.
    tls: for servers whose URLs begin with https.
    """

    urls: tuple[str, ...]
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    tls: Tls = field(default_factory=Tls, repr=False)
    timeout_seconds: float = 10

    def __post_init__(self) -> None:
        keep_secret(self.password)
        keep_secret(self.token)

    def text(self, schema_id: SchemaId) -> str:
        """Gives a schema's text, from this machine's cache if it is there.  Raises DecodeError for one that the
        registry lacks, or that is not Avro's; RegistryAwayError, or SourceError where waiting does not help."""
        entry = _memory.get((self.urls, schema_id))
        if isinstance(entry, str):
            return entry
        if entry is not None and time.monotonic() < entry.until:
            raise DecodeError(entry.reason)
        if len(_memory) >= MAX_CACHED:
            _memory.clear()
        try:
            text = _memory[self.urls, schema_id] = self._from_cache(schema_id)
        except DecodeError as error:
            _memory[self.urls, schema_id] = _Lack(str(error), time.monotonic() + _LACKING_SECONDS)
            raise
        return text

    def changed(self, schema_id: SchemaId) -> str:
        """Asks again, and says so where the registry gives another schema now."""
        return "" if self.ask(schema_id) == self.text(schema_id) else f"; {self._given_anew(schema_id)}"

    def _given_anew(self, schema_id: SchemaId) -> str:
        return (
            f"the registry gives another schema for {schema_id.number} than it gave before: its ids were given anew."
            f" Begin with a new dump behind that, and remove {self.folder(schema_id)}"
        )

    def folder(self, schema_id: SchemaId) -> Path:
        """Where this machine keeps a schema."""
        return cache_folder() / self._name(schema_id)

    def ask(self, schema_id: SchemaId) -> str:
        """Asks the registry for a schema's text; it raises what `text` raises."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return self._ask_once(schema_id)
            except RegistryAwayError:
                if time.monotonic() > until:
                    raise
                time.sleep(_PAUSE_SECONDS)

    def _from_cache(self, schema_id: SchemaId) -> str:
        def build(folder: Path) -> None:
            (folder / _FILE).write_text(self.ask(schema_id), encoding="utf-8")

        with suppress(OSError, UnicodeError):  # a folder that cannot be written to, as in some containers
            file = cached(self._name(schema_id), build) / _FILE
            text = file.read_text(encoding="utf-8")
            if time.time() - file.stat().st_mtime > _FRESH_SECONDS and self._is_another(schema_id, text):
                summary = "this machine has kept another schema than the schema registry gives now"
                raise SourceError(f"{summary}: {self._given_anew(schema_id)}", fix="see bridge help protocols")
            return text
        return self.ask(schema_id)

    def _is_another(self, schema_id: SchemaId, text: str) -> bool:
        """Tells whether the registry gives another schema than this one, which was kept long ago: another registry may
        have its URL now.  One that does not answer, or lacks the schema, tells nothing."""
        try:
            current = self._ask_once(schema_id)
        except (SourceError, DecodeError):
            return False
        (self.folder(schema_id) / _FILE).touch()
        return current != text

    def _name(self, schema_id: SchemaId) -> str:
        digest = hashlib.sha256("\n".join(sorted(self.urls)).encode()).hexdigest()[:16]
        return f"registry-{digest}-{schema_id.kind}-{schema_id.number}"

    def _ask_once(self, schema_id: SchemaId) -> str:
        from http.client import HTTPException  # late: most commands ask for no schema

        away, lacks = list[str](), ""
        for url in self.urls:
            if schema_id.kind == "globalIds" and not _is_apicurios(url):
                raise SourceError(
                    f"the message names its schema by Apicurio's globalId {schema_id.number} (0x00 and 8 bytes), and"
                    f" {url} may have another one by that number",
                    fix=f"give the URL of Apicurio's own API, which ends in /apis/registry/v2 or v3; {_PAGE}",
                )
            try:
                status, content = self._get(url, schema_id)
            except (OSError, HTTPException) as error:
                away.append(f"{url}: {str(error) or type(error).__name__}")
                continue
            if status >= 500 or status in (408, 429):
                away.append(f"{url}: HTTP {status}")
            elif status == 404:
                lacks = url
            elif status != 200:
                raise _refusal(url, status, schema_id)
            else:
                return _schema_of(url, content)
        if away:
            raise RegistryAwayError(
                f"the schema registry does not answer ({'; '.join(away)}), and the schema {schema_id.number} is needed",
                fix=f"check that it runs and that this machine reaches it; {_PAGE}",
            )
        raise DecodeError(
            f"the schema registry {lacks} lacks the schema {schema_id.number} with which the message was written:"
            " check that it is the sender's own registry, and that the schema was not deleted there; with Apicurio,"
            " that the URL takes the ids that the converter writes (apicurio.registry.use-id)"
        )

    def _get(self, url: str, schema_id: SchemaId) -> _Answer:
        import http.client  # late

        parts = urlsplit(url)
        host, port, seconds = parts.hostname or "", parts.port, self.timeout_seconds
        connection = (
            http.client.HTTPSConnection(host, port, timeout=seconds, context=self.tls.driver_settings()["ssl"])
            if parts.scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=seconds)
        )
        kind, number = schema_id
        path = f"/ids/{kind}/{number}" if _is_apicurios(url) else f"/schemas/ids/{number}"
        try:
            connection.request("GET", parts.path.rstrip("/") + path, headers={"Accept": _MEDIA, **self._login})
            answer = connection.getresponse()
            return _Answer(answer.status, answer.read(_MOST_BYTES))
        finally:
            connection.close()

    @property
    def _login(self) -> dict[str, str]:
        if self.token:
            return {"Authorization": f"Bearer {self.token}"}
        if self.user or self.password:
            return {"Authorization": "Basic " + b64encode(f"{self.user}:{self.password}".encode()).decode()}
        return {}


@dataclass(frozen=True)
class KeptSchemas:
    """The schemas that a quarantined message was kept with, for those that a registry does not give any more."""

    texts: Mapping[str, str]
    registry: SchemaLookup | None

    def text(self, schema_id: SchemaId) -> str:
        """Gives a schema's text; raises what the registry raises, where it was not kept either."""
        try:
            if self.registry is not None:
                return self.registry.text(schema_id)
        except (DecodeError, SourceError):
            if schema_id.name not in self.texts:
                raise
        if schema_id.name not in self.texts:
            raise DecodeError(f"no schema registry is given, and the schema {schema_id.number} was not kept")
        return self.texts[schema_id.name]


class _Lack(NamedTuple):
    reason: str
    until: float


_memory: dict[tuple[tuple[str, ...], SchemaId], str | _Lack] = {}
"""What this process has asked for: Spark's workers outlive their tasks, and decoders are made again."""


def check_urls(urls: tuple[str, ...]) -> None:
    """Raises UsageError for what is not the URL of a registry."""
    for url in urls:
        try:
            parts = urlsplit(url)
            is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            is_right = False
        if not is_right or "@" in url or not url.isascii():
            raise UsageError(
                "a schema registry's URL is http://host:port/path or https://, without user and password",
                fix="give them as source.registry.user and BRIDGE_REGISTRY_PASSWORD",
            )


def _is_apicurios(url: str) -> bool:
    return _APICURIO in f"{urlsplit(url).path}/"


def _refusal(url: str, status: int, schema_id: SchemaId) -> SourceError:
    if status in (401, 403):
        summary = f"the schema registry {url} refuses the schema {schema_id.number}: HTTP {status}"
        return SourceError(summary, fix=f"check its user, password or token, and what they may read; {_PAGE}")
    summary = f"{url} gives no schema {schema_id.number}: HTTP {status}"
    return SourceError(summary, fix=f"check that the URL is a schema registry's, with its path; {_PAGE}")


def _schema_of(url: str, content: bytes) -> str:
    """Gives the schema's text of an answer: Confluent's has it in an object, Apicurio's is the schema."""
    try:
        answer: Any = json.loads(content)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise SourceError(f"{url} answers no schema", fix=f"check that the URL is a schema registry's; {_PAGE}")
    if "schema" not in answer:
        return content.decode()
    if (kind := answer.get("schemaType", "AVRO")) != "AVRO":
        raise DecodeError(
            f"the message is in {'Protobuf' if kind == 'PROTOBUF' else 'JSON Schema'}, by its schema in the registry,"
            " and the bridge reads Avro and plain JSON: set the connector's converters to one of these"
        )
    if answer.get("references"):
        raise DecodeError("the message's schema refers to others, as no schema of Debezium's does")
    return str(answer["schema"])
