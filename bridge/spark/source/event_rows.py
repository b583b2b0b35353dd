"""Change events as rows that other Spark jobs can read: values as texts by the names of their columns."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP, Kind
from bridge.protocols.values.untyped import split_forms
from bridge.rows.grouping import distinct

EVENT_ROWS: Final = (
    "topic string, partition int, offset long, index int, kind string, commit_ts long, schema string, table string,"
    " before map<string,string>, after map<string,string>, text string, by_time boolean"
)
"""The columns, as Spark writes them.

topic, partition, offset, index: the place of the event: of its message in Kafka, and in the message.
kind: insert, update, delete, schema-change, boundary or bad.
commit_ts: TSO; where `by_time`, the message tells only the time of the event, and this is its TSO.
schema, table: as the upstream calls them; empty where they do not apply.
before, after: the row's values as texts (binary values as 0x and hexadecimal digits), NULL as null.
text: the statement of a schema-change, the reason why a message is bad.
"""

_KINDS: Final = {
    kind: kind.name.lower().replace("_", "-")
    for kind in (Kind.INSERT, Kind.UPDATE, Kind.DELETE, Kind.SCHEMA_CHANGE, Kind.BOUNDARY, Kind.BAD)
}
_MAP: Final = pa.map_(pa.string(), pa.string())
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ZERO: Final = "0"


def event_rows(events: pa.Table) -> pa.Table:
    """Makes rows of events (EVENT_SCHEMA), in the order of their places.  Events that are none of the kinds that are
    shown are left out."""
    events = events.filter(pc.is_in(events["kind"], pa.array(list(map(int, _KINDS)), pa.int8())))
    events = events.sort_by([(name, "ascending") for name in ("topic", "partition", "offset", "index")])
    events = events.combine_chunks()
    kinds = pa.array([_KINDS.get(Kind(number), "") for number in range(1, 1 + max(Kind))])
    is_row = pc.less_equal(events["kind"], int(Kind.DELETE))
    is_told = pc.is_in(events["kind"], pa.array([int(Kind.SCHEMA_CHANGE), int(Kind.BAD)], pa.int8()))
    named = [(name, events[name]) for name in ("topic", "partition", "offset", "index")]
    named += [("kind", kinds.take(pc.subtract(events["kind"].cast(pa.int64()), 1)))]
    named += [(name, events[name]) for name in ("commit_ts", "schema", "table")]
    named += [(name, _maps(events, name, is_row)) for name in ("before", "after")]
    named += [("text", pc.if_else(is_told, events["text"], None)), ("by_time", events["by_time"])]
    return pa.table(dict(named))


def _maps(events: pa.Table, image: str, is_row: pa.ChunkedArray) -> pa.Array:
    """Gives the images of rows as maps from column names to texts; null where there is none."""
    images = pc.if_else(is_row, events[image], None).combine_chunks()
    has_image = pc.is_valid(images).to_numpy(zero_copy_only=False)
    kinds, kind_of = distinct(events.select(["columns"]).filter(pa.array(has_image)), ("columns",))
    names = [split_forms(columns)[0].split(SEP) for (columns,) in kinds]
    counts = np.zeros(len(images) + 1, np.int32)
    counts[1:][has_image] = np.array([len(one) for one in names], np.int32)[kind_of] if names else 0
    keys = pa.array(names, pa.list_(pa.string())).take(pa.array(kind_of)).flatten()
    values = pc.split_pattern(images.drop_null(), SEP).flatten()
    mask = pa.array(np.append(~has_image, False))
    offsets = pa.array(np.cumsum(counts, dtype=np.int32), mask=mask.to_numpy(zero_copy_only=False))
    return pa.MapArray.from_arrays(offsets, keys, texts(values)).cast(_MAP)


def texts(literals: pa.Array) -> pa.Array:
    """Gives the texts of SQL literals (`protocols.values.literals`): NULL becomes null, quotation marks and escapes go,
    bytes stay hexadecimal, and numbers lose the exponent that only tells that they are floating-point numbers."""
    is_text = pc.starts_with(literals, "'")
    is_binary = pc.starts_with(literals, "x'")
    inner = pc.utf8_slice_codeunits(literals, 1, -1)
    if pc.any(has_escape := pc.and_(is_text, pc.match_substring(inner, "\\"))).as_py():
        unescaped = [_ESCAPE.sub(_unescaped, text) for text in inner.filter(has_escape).to_pylist()]
        inner = pc.replace_with_mask(inner, has_escape, pa.array(unescaped, pa.string()))
    binary = pc.binary_join_element_wise("0x", pc.utf8_slice_codeunits(literals, 2, -1), "")
    number = pc.replace_substring_regex(literals, r"e0$", "")
    plain = pc.if_else(pc.equal(literals, "NULL"), pa.scalar(None, pa.string()), number)
    return pc.if_else(is_text, inner, pc.if_else(is_binary, binary, plain))


def _unescaped(found: re.Match[str]) -> str:
    return "\0" if found[1] == _ZERO else found[1]
