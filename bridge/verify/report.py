"""Reports what verify found, per table and in all: as lines, and as one JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bridge.model import TableName
from bridge.mysql.table_definition import ColumnInfo, ValueClass
from bridge.tso import tso_ms
from bridge.verify.compare.checksums import real_number
from bridge.verify.compare.row_diff import ComparedColumns, Difference, DifferenceKind

_SHOWN_BYTES = 120
_COUNTS = ("rows", "chunks", "different", "missing", "extra", "not_covered")


@dataclass(frozen=True)
class ShownCell:
    """A column of a differing row, in words."""

    column: str
    expected: str | None
    actual: str | None


@dataclass(frozen=True)
class ShownRow:
    """A differing row for people; its fields are those of the JSON document.

    key: key columns and their values.  commit_ts, position: of the row's last change, where they are known.
    """

    finding: DifferenceKind
    key: Mapping[str, str]
    columns: list[ShownCell]
    copies: int = 1
    commit_ts: int | None = None
    position: str | None = None


@dataclass
class TableResult:
    """How one table compares.

    not_covered: rows of the target that the log never mentioned.  is_compared: whether any rows could be compared.
    """

    name: TableName
    rows: int = 0
    chunks: int = 0
    different: int = 0
    missing: int = 0
    extra: int = 0
    not_covered: int = 0
    is_compared: bool = True
    seconds: float = 0.0
    schema: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    first_rows: list[ShownRow] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs, neither rows nor columns."""
        return not (self.different or self.missing or self.extra or self.schema)

    @property
    def result(self) -> str:
        """The verdict, in words."""
        return "DIFFERENT" if not self.is_equal else "equal" if self.is_compared else "not covered"

    def count(self, differences: Iterable[Difference]) -> None:
        """Counts differing rows."""
        for difference in differences:
            name = difference.finding.value
            setattr(self, name, getattr(self, name) + difference.copies)


@dataclass
class Report:
    """What a verification has found.

    against: log or source.
    moment: the applied_ts (TSO) at which both sides were read, 0 when it is unknown.
    held_seconds: how long the bridge was kept waiting for it.
    """

    against: str
    moment: int
    held_seconds: float
    tables: list[TableResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_equal(self) -> bool:
        """Whether every table is equal."""
        return all(table.is_equal for table in self.tables)

    @property
    def by_name(self) -> list[TableResult]:
        """The tables in the order of their names."""
        return sorted(self.tables, key=lambda table: table.name)

    def document(self) -> dict[str, Any]:
        """Gives the report as a JSON document."""
        return {
            "against": self.against,
            "equal": self.is_equal,
            "applied_ts": self.moment or None,
            "applied_ms": tso_ms(self.moment) if self.moment else None,
            "held_seconds": round(self.held_seconds, 4),
            "seconds": round(self.seconds, 3),
            "notes": self.notes,
            "tables": [
                {
                    "table": str(table.name),
                    "equal": table.is_equal,
                    **{name: getattr(table, name) for name in _COUNTS},
                    "seconds": round(table.seconds, 3),
                    "schema": list(table.schema),
                    "notes": list(table.notes),
                    "first_rows": list(map(asdict, table.first_rows)),
                }
                for table in self.by_name
            ],
        }


def shown_row(
    shape: ComparedColumns, difference: Difference, commit_ts: int | None = None, position: str | None = None
) -> ShownRow:
    """Gives a differing row column by column; of one that both sides have, only the columns that differ."""
    expected, actual = difference.expected, difference.actual
    if expected is not None and actual is not None:
        numbers: Sequence[int] = shape.differing(expected, actual)
    else:
        numbers = [i for i in range(len(shape.actual)) if i not in shape.key]
    cells = [
        ShownCell(
            shape.actual[i].name,
            None if expected is None else in_words(shape.expected[i], expected[i]),
            None if actual is None else in_words(shape.actual[i], actual[i]),
        )
        for i in numbers
    ]
    of_key = zip(shape.key, difference.key, strict=False)
    key = {shape.actual[i].name: in_words(shape.actual[i], value) for i, value in of_key}
    return ShownRow(difference.finding, key, cells, difference.copies, commit_ts, position)


def in_words(column: ColumnInfo, value: bytes | None) -> str:
    """Gives a canonical value for people: NULL, numbers, text in quotes, bytes in hex; long ones are cut."""
    if value is None:
        return "NULL"
    match column.value_class:
        case ValueClass.BINARY:
            return _shortened(f"x'{value.hex()}'")
        case ValueClass.NAME:
            return _shortened(repr(value[2:].decode(errors="replace")))
        case ValueClass.FLOAT | ValueClass.DOUBLE:
            return repr(real_number(value)).removesuffix(".0")
        case ValueClass.TEXT | ValueClass.JSON:
            return _shortened(repr(value.decode(errors="replace")))
        case _:
            return _shortened(value.decode(errors="replace"))


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_BYTES else f"{text[:_SHOWN_BYTES]}... ({len(text)} characters)"


def row_lines(table: TableName, row: ShownRow) -> Iterable[str]:
    """Gives a differing row as lines."""
    key = ", ".join(f"{name}={value}" for name, value in row.key.items()) or "a row without a key"
    copies = f" ({row.copies} copies)" if row.copies > 1 else ""
    last_change = f", last changed at commit ts {row.commit_ts} by {row.position}" if row.position else ""
    yield f"{table} {key}: {row.finding.value}{copies}{last_change}"
    for cell in row.columns:
        match row.finding:
            case DifferenceKind.DIFFERENT:
                yield f"    {cell.column}: should be {cell.expected}, is {cell.actual}"
            case DifferenceKind.MISSING:
                yield f"    {cell.column}: should be {cell.expected}"
            case DifferenceKind.EXTRA:
                yield f"    {cell.column}: is {cell.actual}"
