"""What a sender loses by its settings before a message is made, so that nobody behind it can bring it back.

What the messages show is told only where they show it; what they cannot show is told of every sender of that kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from bridge.errors import few
from bridge.protocols.debezium.recognition import DebeziumModes, TimeMode
from bridge.protocols.decoder import DecodeError
from bridge.protocols.detect import Sample, recognise_message
from bridge.protocols.values.json_message import json_object

_NATIVE: Final = frozenset({"mysql", "mariadb"})
_WITHOUT_TRUNCATE: Final = (3, 2)
"""Since this version Debezium keeps TRUNCATE out of its topic of schema changes (DBZ-9085), and it has left op t out
since 2.0 (DBZ-5497, skipped.operations)."""
_CHANGES_TO_NULL: Final = (3, 5)
"""Since this version Debezium lets a column be NULL again (seen: 3.0.8 to 3.4.0 do not, 3.5.0 and 3.6.1 do)."""
_LOSSY_TIMES: Final[dict[str, TimeMode]] = {
    "org.apache.kafka.connect.data.Time": "connect",
    "io.debezium.time.IsoTime": "isostring",
}
"""The Connect types of TIME in the modes of time.precision.mode that hold times of a day only (Debezium's page on the
connector for MySQL, Temporal values)."""
_UTF16: Final = re.compile(r"\b(?:CHARSET|CHARACTER\s+SET)\b\s*=?\s*'?(utf16|ucs2)\b", re.IGNORECASE)
_ROWS: Final = frozenset({"c", "r", "u", "d"})


class Loss(NamedTuple):
    """What a sender loses, and what to set there, or here, against it."""

    what: str
    fix: str


_NULLS_OF_TICDC: Final = Loss(
    "TiCDC's debezium-avro writes a column's default where the value is NULL",
    "set protocol=open-protocol, or canal-json with enable-tidb-extension=true, in the changefeed's sink-uri; nothing"
    " to do where no column that may be NULL has a default",
)
_OLD_KEYS: Final = Loss(
    "CKafka's updates come without OLD_VALUES: where one changes the key of a row, the row with the former key stays",
    "have the task send OLD_VALUES; nothing to do where keys never change",
)


def losses(sample: Sample, modes: DebeziumModes, *, is_filtered: bool) -> list[Loss]:
    """Tells what the sender of these messages loses.  [] for TiCDC without Avro, of which only the columns that it
    leaves out are missing.

    sample: keys and values, the more the better.
    modes: how the settings say that a Debezium connector is configured.
    is_filtered: whether a filter says which tables are replicated.
    """
    messages, is_canal, is_ticdc_avro, lacks_old_keys = [], False, False, False
    keyless: dict[str, None] = {}
    for key, value in sample:
        origin = recognise_message(key, value)
        is_ticdc_avro = is_ticdc_avro or (origin is not None and origin.variant == "TiCDC, in Avro")
        if origin is not None and origin.protocol == "ckafka":
            row = _parsed(value)
            lacks_old_keys = lacks_old_keys or (row.get("TYPE") == "U" and row.get("OLD_VALUES") is None)
        if origin is not None and origin.mysql_born and origin.protocol in {"debezium", "canal-json"}:
            is_canal = is_canal or (origin.protocol == "canal-json" and origin.certain)
            messages.append(_parsed(value))
            if key is None and _payload(messages[-1]).get("op") in _ROWS:
                source = _source(messages[-1])
                keyless[f"{source.get('db')}.{source.get('table')}"] = None
    if is_canal:
        return list(_of_canal(messages, is_filtered=is_filtered))
    if is_ticdc_avro or lacks_old_keys:
        return [_NULLS_OF_TICDC if is_ticdc_avro else _OLD_KEYS]
    natives = [message for message in messages if _source(message).get("connector") in _NATIVE]
    connector = _Connector(natives, keyless)
    return list(connector.losses(modes, is_filtered=is_filtered)) if connector.messages else []


def _parsed(value: bytes | None) -> dict[str, Any]:
    try:
        return json_object(value)
    except DecodeError:
        return {}


def _payload(message: dict[str, Any]) -> dict[str, Any]:
    payload = message.get("payload", message)
    return payload if isinstance(payload, dict) else {}


def _source(message: dict[str, Any]) -> dict[str, Any]:
    source = _payload(message).get("source")
    return source if isinstance(source, dict) else {}


class _Connector:
    """What messages of Debezium's connector for MySQL or MariaDB show.  keyless: tables whose messages have no key."""

    def __init__(self, messages: Sequence[dict[str, Any]], keyless: Mapping[str, None]) -> None:
        self.messages, self._keyless = messages, keyless
        self._payloads = [_payload(message) for message in messages]
        self._rows = [message for message in messages if _payload(message).get("op") in {"c", "r", "u"}]

    def losses(self, modes: DebeziumModes, *, is_filtered: bool) -> Iterator[Loss]:
        """Tells what it loses."""
        yield from self._of_version()
        yield from self._of_nulls()
        yield from self._of_times(modes)
        yield from self._of_keys()
        if not is_filtered:
            yield from self._of_databases()

    def _of_version(self) -> Iterator[Loss]:
        versions = {str(_source(message).get("version") or "") for message in self.messages}
        newest = max(versions, key=_numbers)
        if () < _numbers(newest) < _CHANGES_TO_NULL:
            yield Loss(
                f"Debezium {newest} takes a column that was NOT NULL for one still, behind an ALTER TABLE ... CHANGE"
                " that says neither: NULL comes as '', 0 or the like then",
                "write NULL in such statements, or use MODIFY, or a connector of version 3.5 or later",
            )
        if _numbers(newest) >= _WITHOUT_TRUNCATE and all(payload.get("op") != "t" for payload in self._payloads):
            yield Loss(
                f"Debezium {newest} sends no TRUNCATE TABLE by default: the rows would stay on the target",
                "set skipped.operations=none in the connector; where it is set, nothing is lost",
            )

    def _of_nulls(self) -> Iterator[Loss]:
        """Tells of columns that may be NULL and have a default: the converter writes the default for NULL.  One NULL
        in such a column shows that the converter was set right."""
        fix = (
            "set value.converter and, beside it, value.converter.replace.null.with.default=false in the connector"
            " (Kafka Connect 3.5 and later): without a value.converter, it has the worker's with the worker's settings"
        )
        if any("avro" in _schema(message) for message in self._rows):
            fix = "set value.converter.ignore.default.for.nullables=true (Confluent's converter; Apicurio's has it not)"
        columns: dict[str, None] = {}
        for message in self._rows:
            fields, row, source = _fields(message), _payload(message).get("after"), _source(message)
            for name, field in fields.items():
                if field.get("optional") is True and field.get("default") is not None and isinstance(row, dict):
                    if name in row and row[name] is None:
                        return
                    columns[f"{source.get('db')}.{source.get('table')}.{name}"] = None
        if columns:
            yield Loss(f"NULL may have come as the column's default in {few(columns, 3)}", fix)
        elif not any(map(_fields, self._rows)):
            yield Loss("Debezium's converter for JSON writes a column's default where the value is NULL", fix)

    def _of_times(self, modes: DebeziumModes) -> Iterator[Loss]:
        columns: dict[str, None] = {}
        is_bare = not any(map(_fields, self._rows))
        modes_seen = {mode for mode in _LOSSY_TIMES.values() if is_bare and mode == modes.time}
        for message in self._rows:
            for name, field in _fields(message).items():
                if mode := _LOSSY_TIMES.get(str(field.get("name"))):
                    modes_seen.add(mode)
                    columns[f"{_source(message).get('db')}.{_source(message).get('table')}.{name}"] = None
        for mode in sorted(modes_seen):
            where = f" in {few(columns, 3)}" if columns else ""
            yield Loss(
                f"time.precision.mode={mode} loses TIME values below 0 and from 24 hours on{where}",
                "set time.precision.mode=adaptive_time_microseconds in the connector (its default)",
            )

    def _of_keys(self) -> Iterator[Loss]:
        """Kafka's producer gives a message without a key to any partition (Kafka, BuiltInPartitioner)."""
        if self._keyless:
            yield Loss(
                f"rows of {few(self._keyless, 3)} have no key, so that Kafka gives them to any partition of their"
                " topic: the bridge stops at such rows in a topic of several partitions",
                "give such tables a key (message.key.columns), or their topics one partition; nothing to do where they"
                " have one",
            )

    def _of_databases(self) -> Iterator[Loss]:
        of_rows = {str(_source(message).get("db")) for message in self.messages if "op" in _payload(message)}
        of_changes = {str(payload["databaseName"]) for payload in self._payloads if payload.get("databaseName")}
        if of_rows and (without_rows := sorted(of_changes - of_rows)):
            yield Loss(
                f"the topic of schema changes also holds those of {few(without_rows, 3)}, of which no row is read",
                "give --filter with the databases or tables that the connector sends; nothing to do if rows will come",
            )


def _of_canal(messages: Sequence[dict[str, Any]], *, is_filtered: bool) -> Iterator[Loss]:
    texts = [str(message.get("sql") or "") for message in messages if message.get("isDdl")]
    charsets = {match.group(1).lower() for text in texts if (match := _UTF16.search(text))}
    yield Loss(
        f"Canal reads the values of columns of {few(sorted(charsets) or ['utf16', 'ucs2'])} wrongly",
        "make such columns utf8mb4 upstream; nothing to do where there are none",
    )
    if not any(message.get("gtid") for message in messages):
        yield Loss(
            "Canal without GTIDs does not always tell whether a TRUNCATE, DROP or RENAME came before rows of other"
            " partitions: it is held then; and where partitions are chosen by key, a row whose key changed may come"
            " back, and one whose key was there in another spelling ('A' for 'a') may be lost",
            "set canal.instance.gtidon=true, with GTIDs on the server; nothing to do where topics have one partition",
        )
    if not is_filtered:
        yield Loss(
            "Canal sends CREATE and DROP DATABASE of every database, whatever canal.instance.filter.regex says",
            "give --filter with the databases or tables that Canal sends",
        )


def _schema(message: dict[str, Any]) -> dict[str, Any]:
    schema = message.get("schema")
    return schema if isinstance(schema, dict) else {}


def _fields(message: dict[str, Any]) -> Mapping[str, dict[str, Any]]:
    """Gives the Connect schema of each column of a row; none for a message without a schema."""
    images = _schema(message).get("fields")
    for image in images if isinstance(images, list) else ():
        if isinstance(image, dict) and image.get("field") == "after" and isinstance(image.get("fields"), list):
            return {str(column.get("field")): column for column in image["fields"] if isinstance(column, dict)}
    return {}


def _numbers(version: str) -> tuple[int, ...]:
    """Gives the numbers of a version such as 3.6.1.Final; () for what is none."""
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
