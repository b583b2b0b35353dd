"""Tables whose key became one of another type, by the messages of each protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from itertools import count
from random import Random
from typing import Final

import pyarrow as pa
import pytest
from pymysql.err import MySQLError

from bridge.config import Settings
from bridge.protocols import make_decoder
from bridge.protocols.batch_decode import Messages, decode_messages
from bridge.tso import ms_tso
from bridge.verify.report import TableResult
from tests.generated.kinds import Value
from tests.generated.tables import Column, Table, Unique
from tests.generated.upstream import Change
from tests.generated.verifying import verify_events
from tests.generated.wires import WIRES, Message, Wire
from tests.support.pipelines import admin, run_all
from tests.support.verify_servers import execute

BECOMES: Final[dict[str, tuple[Sequence[Value], str]]] = {
    "int": ((1, 2, 20240229, 101112), "bigint unsigned decimal varchar varbinary datetime date time double"),
    "decimal": ((Decimal("1.00"), Decimal("2.00"), Decimal("3.50")), "bigint double varchar year"),
    "unsigned": ((1, 2**63, 2**64 - 1), "double float"),
    "varchar": (("7", "8", "12"), "int decimal char varbinary year time double bit"),
    "char": (("a", "b", "é"), "varchar latin1"),
    "varbinary": ((b"1", b"2", b"34"), "varchar decimal bit"),
    "datetime": (
        (datetime(2024, 1, 1), datetime(2024, 2, 29, 12, 34, 56), datetime(1999, 12, 31)),
        "microseconds timestamp date time varchar bigint double",
    ),
    "timestamp": ((datetime(2024, 3, 31, 2, 30), datetime(2024, 3, 31, 2, 30, 0, 500_000)), "datetime varchar bigint"),
    "date": ((date(2024, 2, 29), date(1999, 12, 31)), "datetime varchar int decimal"),
    "time": ((timedelta(hours=10, minutes=11, seconds=12), timedelta(hours=1)), "decimal int varchar datetime date"),
    "year": ((2000, 2024), "int varchar decimal date"),
    "bit": ((b"\0\1", b"\0A"), "int varchar varbinary decimal"),
    "enum": (("a", "B"), "int varchar set"),
    "set": (("x", "x,y"), "int varchar enum"),
    "float": ((1.0, 2.5, 0.1), "double decimal varchar"),
    "double": ((1.0, 2.5, 0.1), "float decimal varchar"),
}  # fmt: skip
"""Types of keys with values, and what they become."""
SENDERS: Final = (
    "canal-json ext", "official canal FULL", "open-protocol", "debezium TiCDC ext", "debezium TiCDC noschema ext",
    "debezium native", "debezium native noschema", "ckafka",
)  # fmt: skip
COLLATIONS: Final = {"varchar": "utf8mb4_bin", "char": "utf8mb4_bin", "latin1": "latin1_bin"}


def key(kind: str) -> Column:
    """The column of the key."""
    return Column("k", kind, nullable=False, collation=COLLATIONS.get(kind, ""))


def table(name: str, kind: str) -> Table:
    """A table with a key of a type."""
    return Table(name, (key(kind), Column("v", "int")), (Unique("kk", ("k",)),))


def history(wire: Wire, ts: Iterator[int], was: Table, now: Table, values: Sequence[Value]) -> Iterator[Message]:
    """Rows come, one changes, one goes; then the type of their key is changed."""
    rows = [{"k": value, "v": number} for number, value in enumerate(values)]
    yield wire.ddl((was, was, was.create(on_target=False)), next(ts))
    for row in rows:
        yield from wire.transaction([Change(was, None, row)], next(ts))
    yield from wire.transaction([Change(was, rows[0], rows[0] | {"v": 100})], next(ts))
    yield from wire.transaction([Change(was, rows[1], None)], next(ts))
    yield wire.ddl((was, now, f"ALTER TABLE `{now.name}` MODIFY {now.column('k').sql}"), next(ts))


def settings_of(sender: str, timezone: str = "UTC") -> Settings:
    """The settings of a sender whose server makes what the target's does."""
    decimals = "precise" if "native" in sender else "double"
    return Settings.model_validate(
        {
            "timezone": timezone,
            "ddl": {"source": "mariadb"},
            "ckafka": {"binary": "latin1"},
            "debezium": {"decimal_handling_mode": decimals},
        }
    )


def events_of(sender: str, settings: Settings, pairs: Sequence[tuple[str, str]]) -> pa.Table:
    """The events of one table for each pair of types."""
    wire = WIRES[sender](Random(1), splits=False)
    ts = count(ms_tso(1_700_000_000_000), wire.unit)
    sent = []
    for old, new in pairs:
        name = f"{old} {new}"
        sent += history(wire, ts, table(name, old), table(name, new), BECOMES[old][0])
    if wire.has_boundaries:
        sent.append(wire.boundary(next(ts)))
    places = ["cdc"] * len(sent), [0] * len(sent), list(range(len(sent)))
    decoder = make_decoder(wire.protocol, settings.decode_options(None))
    return decode_messages(decoder, Messages(*places, [one.key for one in sent], [one.value for one in sent]))


def verified(target: str, sender: str, pairs: Sequence[tuple[str, str]], timezone: str = "UTC") -> list[TableResult]:
    """What verify finds, on a target that holds what the messages say."""
    settings, protocol = settings_of(sender, timezone), WIRES[sender].protocol
    events = events_of(sender, settings, pairs)
    boundary_seconds = None if WIRES[sender].has_boundaries else 0.0
    run_all(target, events, ddl=settings.ddl_rules(), protocol=protocol, boundary_seconds=boundary_seconds)
    return verify_events(target, events, protocol, settings=settings).tables


@pytest.fixture
def database(target: str) -> str:
    execute(target, "CREATE DATABASE m")
    return target


@cache
def is_possible(target: str, old: str, new: str) -> bool:
    """Whether the server makes this change."""
    with admin(target) as session:
        session.execute("CREATE OR REPLACE TABLE m.tried (" + key(old).sql + " PRIMARY KEY)")
        for value in BECOMES[old][0]:
            session.execute("INSERT INTO m.tried VALUES (%s)", (value,))
        try:
            session.execute("ALTER TABLE m.tried MODIFY " + key(new).sql)
        except MySQLError:
            return False
        finally:
            session.execute("DROP TABLE m.tried")
    return True


@pytest.mark.parametrize("sender", SENDERS)
def test_nothing_that_is_right_is_called_different(database: str, sender: str) -> None:
    """Where a message does not tell what an earlier value has become, verify says so.  Before, CKafka's TIME that had
    become a number ended the verification of all tables with 3, and Debezium's without a schema was called missing."""
    every = [(old, new) for old, (_, types) in BECOMES.items() for new in types.split()]
    pairs = [pair for pair in every if is_possible(database, *pair)]
    tables = verified(database, sender, pairs)
    assert len(tables) == len(pairs)
    for found in tables:
        assert (found.missing, found.extra, found.different) == (0, 0, 0), found
        assert found.is_equal or "was changed, and the messages do not tell what" in found.schema[0], found
    named = {found.name.table: found for found in tables}
    sure = {"int bigint", "char varchar", "varchar char"}
    if not sender.startswith("official canal"):  # its texts are bytes of the character set that the column has
        sure.add("char latin1")
    assert {name for name in sure if not named[name].is_equal} == set()


@pytest.mark.parametrize("sender", ["canal-json ext", "open-protocol", "debezium TiCDC ext"])
def test_a_moment_as_text(database: str, sender: str) -> None:
    """A TIMESTAMP that becomes a text is a local time, which the message does not tell."""
    [found] = verified(database, sender, [("timestamp", "varchar")], "+08:00")
    assert (found.missing, found.extra, found.different) == (0, 0, 0)
    assert "its key (k) was changed" in found.schema[0]


def test_damage_below_a_key_that_is_surely_told(database: str) -> None:
    """Where the messages tell the keys, a lost row is missing."""
    sender = "canal-json ext"
    settings = settings_of(sender)
    events = events_of(sender, settings, [("int", "bigint"), ("char", "varchar")])
    run_all(database, events, ddl=settings.ddl_rules())
    execute(database, "DELETE FROM m.`int bigint` LIMIT 1")
    execute(database, "DELETE FROM m.`char varchar` LIMIT 1")
    assert [found.missing for found in verify_events(database, events, settings=settings).tables] == [1, 1]
