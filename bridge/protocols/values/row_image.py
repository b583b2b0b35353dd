r"""Makes row images: it finds the converters of the columns that a message names once, and applies them to rows.

The zips here are not strict, which would cost a quarter of a microsecond; their callers have compared the names.

Handles raw values: values whose type the message does not tell, until the target's column tells it.

Some formats name no types (Debezium without schemas, ckafka) or ambiguous ones (a Debezium `double` may be a
DECIMAL).  Typing such a value needs the target's tables as they are when its row is applied, which a decoder cannot
know: a schema change may come before.  So the work is done in two steps:

1. The decoder writes what is known without a type, a *raw literal*: a JSON number as its digits (`repr` of a float
   with an exponent, as `literals.double` gives it), a JSON boolean as 1 or 0, a string as `literals.text`, null as
   NULL.  It names the *form* of the values in `RowChange.columns` by `with_forms`: one form for all columns, or one for
   each, ``""`` for a literal that is ready.
2. Before rows are folded, `rows.resolve_types.typed` asks `raw_converter` for the converter of each (form,
   target's column), runs raw literals through it, and leaves plain columns and ready literals behind.  Equal values
   become equal literals, as keys are compared by them.

A form is a name, and its arguments after a colon: ``json:precise,adaptive_time_microseconds,bytes``.  A
new form is one entry in `FORMS`: a `Form`, which looks at the column and gives a conversion, or None where the raw
literal is already right for such a column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from bridge.events import RAW, SEP, Code
from bridge.protocols.canal.types import CANAL_FORMS
from bridge.protocols.ckafka.raw import CKAFKA_FORMS
from bridge.protocols.debezium.raw import DEBEZIUM_FORMS
from bridge.protocols.decoder import FAILURES, DecodeError, check_name, excerpt, explain
from bridge.protocols.open_protocol.types import OPEN_FORMS
from bridge.protocols.values.column_types import NONE, Column, ColumnType, Conversion, Form, OnLoss, RawConverter, Usual
from bridge.protocols.values.literals import NULL, Converter

FORMS: Final[dict[str, Form]] = {**DEBEZIUM_FORMS, **CKAFKA_FORMS, **CANAL_FORMS, **OPEN_FORMS}
_TYPE: Final = "\1"
"""Separates a column's form from the type that its message declares."""
_LONGEST_TYPE: Final = 200
"""The most characters of a declared type, which goes with every row; a longer type (an ENUM of many members) is left
out."""


def with_forms(columns: str, forms: Sequence[str]) -> str:
    """Gives the `RowChange.columns` of raw values: names joined by SEP, then their forms (one for all, or for each)."""
    return columns + RAW + SEP.join(forms)


def with_modes(columns: str, ckafka: Sequence[str], debezium: Sequence[str]) -> str:
    """Says how values are written in the forms of `RowChange.columns`, where they do not say it.  ckafka, debezium: the
    arguments of their forms."""

    def with_own_modes(form: str) -> str:
        form_text, *declared = form.split(_TYPE)
        name, colon, arguments = form_text.partition(":")
        modes = zip(arguments.split(","), ckafka if name == "ckafka" else debezium, strict=True) if colon else ()
        return _TYPE.join([name + colon + ",".join(one or mode for one, mode in modes), *declared])

    names, raw, forms = columns.partition(RAW)
    return names + raw + SEP.join(map(with_own_modes, forms.split(SEP)))


def with_declared_types(columns: str, forms: Sequence[str], types: Sequence[str]) -> str:
    """Gives the `RowChange.columns` of names, the form of each, and the type that the message declares for each, ""
    where it declares none.

    The target's types are compared with them (`rows.type_check`).
    """
    usable = ("" if SEP in declared or len(declared) > _LONGEST_TYPE else declared for declared in types)
    declarations = [form + _TYPE * bool(declared) + declared for form, declared in zip(forms, usable, strict=True)]
    return with_forms(columns, declarations if len(set(declarations)) > 1 else declarations[:1])


def split_forms(columns: str) -> tuple[str, list[str]]:
    """Splits `RowChange.columns` into the names, joined by SEP, and the form of each column."""
    names, forms, _ = _split(columns)
    return names, list(forms)


def declared_types(columns: str) -> Sequence[str]:
    """Gives the types that a message declared for its columns, "" where it did not."""
    return _split(columns)[2]


@lru_cache(maxsize=4096)
def _split(columns: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    names, _, forms_and_types = columns.partition(RAW)
    parts = [part.partition(_TYPE) for part in forms_and_types.split(SEP)]
    if len(parts) == 1:
        parts *= names.count(SEP) + 1
    return names, tuple(form for form, _, _ in parts), tuple(declared for _, _, declared in parts)


def raw_converter(form: str, column: ColumnType, on_loss: OnLoss) -> RawConverter | None:
    """Gives the function that turns a column's raw literals into ready ones, NULL included; None when they are ready as
    they are.

    The converter raises DecodeError for a value that the column cannot have had.  Where the format has lost a part of a
    value, the literal is the nearest one, and `on_loss` is called with the reason.
    """
    conversion = _conversion(form, column, on_loss)
    return conversion.convert if conversion else None


@lru_cache(maxsize=10_000)
def usual_values(form: str, column: ColumnType) -> Usual:
    """Names the raw literals of a form that compiled functions convert as the column's converter would."""
    conversion = _conversion(form, column, lambda _: None)
    return conversion.usual if conversion else NONE


def _conversion(form: str, column: ColumnType, on_loss: OnLoss) -> Conversion | None:
    name, _, arguments = form.partition(":")
    return FORMS[name](arguments, column, on_loss) if name else None


new_event = tuple.__new__
"""Makes an event in half the time of RowChange(...), which matters at one event for each row."""


@dataclass(slots=True)
class Layout:
    """The columns of an image, in message order.

    types: what the message tells of the columns, as JSON gave it; messages with equal ones have equal layouts.
    handle: the names of the key's columns, as JSON gave them.
    labels: the columns' types in words, for error messages.
    """

    names: tuple[str, ...]
    types: Any
    handle: Any
    labels: tuple[str, ...]
    converters: tuple[Converter, ...]
    columns: str
    key: str


def make_layout(types: Any, handle: Any, columns: Mapping[str, Column], without_names: str = "") -> Layout:
    """Makes a layout of columns, given by their names.

    handle: the names of the key's columns; None where the message says nothing of keys.
    without_names: what it means (`RowChange.key`) that the message names no column of a key.
    Raises DecodeError for names that no table can have; no later step checks names.
    """
    names, (labels, converters, forms, declared) = tuple(columns), zip(*columns.values(), strict=True)
    for name in names:
        if not check_name(name, "column"):
            raise DecodeError("a column without a name")
    if handle and len(handle) > len(names):
        raise DecodeError("there are more key columns than columns")
    if len({name.lower() for name in names}) < len(names):
        raise DecodeError("two columns have names that differ in case only, which no table has")
    key = SEP.join([check_name(name, "key column") for name in handle]) if handle else without_names
    return Layout(names, types, handle, labels, converters, with_declared_types(SEP.join(names), forms, declared), key)


def image_of(layout: Layout, row: Mapping[str, Any]) -> str:
    """Gives the image of a row with the layout's columns in its order.  Raises DecodeError for an impossible value."""
    try:
        return SEP.join(
            [
                NULL if value is None else convert(value)
                for value, convert in zip(row.values(), layout.converters)  # noqa: B905
            ]
        )
    except (*FAILURES, DecodeError) as failure:
        raise _blamed(layout, row, failure) from failure


def image_before(layout: Layout, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Gives the image of the row before an update; the new row completes an old one that holds less."""
    if layout.names != tuple(old):
        if not old.keys() <= new.keys():
            unknown = min(old.keys() - new.keys())
            raise DecodeError(f"the old row has a column {excerpt(unknown)} that the new one lacks")
        old = {**new, **old}
    return image_of(layout, old)


def _blamed(layout: Layout, row: Mapping[str, Any], failure: Exception) -> DecodeError:
    """Makes an error of the failure, with the name and type of the column that caused it."""
    for name, label, convert in zip(layout.names, layout.labels, layout.converters, strict=True):
        try:
            if row.get(name) is not None:
                convert(row[name])
        except (TypeError, AttributeError):
            reason = f"column {excerpt(name)} ({label}): {excerpt(row[name])} is of the wrong JSON type"
            return DecodeError(reason, Code.BAD_VALUE)
        except (*FAILURES, DecodeError) as cause:
            code = getattr(cause, "code", Code.MALFORMED)
            code = Code.BAD_VALUE if code is Code.MALFORMED else code
            return DecodeError(f"column {excerpt(name)} ({label}): {explain(cause)}", code)
    return DecodeError(explain(failure))
