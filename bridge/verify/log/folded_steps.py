"""Folds the steps of rows to the last state of every key, or to the number of copies of a row.  Pure, over Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP
from bridge.rows.arrow_images import TEXT
from bridge.rows.gathering import whole_texts
from bridge.rows.grouping import combined, distinct, numbered
from bridge.rows.keys.key_sums import key_sums
from bridge.verify.log.row_steps import STEP_SCHEMA


def fold_steps(found: pa.Table) -> pa.Table:
    """Folds the given steps.  It may be applied again to its own results (but see `fold_some`).

    Tables with a key keep the last step of each key, and the steps that complete it.  For tables without a key, it adds
    up the copies of a change.  Once all steps are folded together, `completed` makes one step for each key.
    """
    keyed, others = parted(found, pc.equal(found["copies"], 0))
    return pa.concat_tables([_last(keyed), _counted(others)])


def fold_some(found: pa.Table, fold: Callable[[pa.Table], pa.Table]) -> pa.Table:
    """Folds steps of which others may be of the same keys.  fold: `fold_steps` or `last_of_keys`.

    Steps by event time are folded partition by partition: where the times of a partition have gone back, only all of
    its steps tell which step of another partition is earlier.
    """
    if not pc.any(found["by_time"]).as_py():
        return fold(found)
    partitions = _partitions(found)
    return pa.concat_tables([fold(found.filter(pa.array(partitions == one))) for one in np.unique(partitions)])


def parted(found: pa.Table, mask: pa.ChunkedArray) -> tuple[pa.Table, pa.Table]:
    """Gives the steps that a mask names, and the others; nothing is copied where these are all or none: texts
    are large."""
    nothing = found.slice(0, 0)
    if pc.all(mask).as_py():
        return found, nothing
    if not pc.any(mask).as_py():
        return nothing, found
    return found.filter(mask), found.filter(pc.invert(mask))


def _last(found: pa.Table) -> pa.Table:
    if found.num_rows == 0 or not _has_parts(found):
        return last_of_keys(found)
    linked, others = parted(found, pc.is_valid(found["unit"]))
    return pa.concat_tables([linked, _last_whole_and_later(others)])


def _has_parts(found: pa.Table) -> bool:
    """Tells whether some images must be completed, or complete others."""
    return any(found[name].null_count < found.num_rows for name in ("basis", "unit"))


def last_of_keys(found: pa.Table) -> pa.Table:
    """Gives the last step of each key: by commit ts, where an image beats a delete; by event time and position where
    there is no commit ts.  Steps may be hashed (`hashed_steps`)."""
    if found.num_rows == 0:
        return found
    keys = _codes(found, "key")
    found, order = _ordered(found, keys)
    last = np.empty(keys.max() + 1, dtype=np.int64)
    last[keys[order]] = order  # where an index is repeated, the last value stays (NumPy)
    is_last = np.zeros(found.num_rows, np.bool_)
    is_last[last] = True
    return found.filter(pa.array(is_last))


def _last_whole_and_later(found: pa.Table) -> pa.Table:
    """Keeps for each key the last step that holds its whole row, and behind it the last step of each list of
    columns."""
    if found.num_rows == 0:
        return found
    keys, lists = _codes(found, "key"), _codes(found, "key", "names")
    found, order = _ordered(found.combine_chunks(), keys)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    is_part = pc.is_valid(found["basis"]).to_numpy(zero_copy_only=False)
    whole = np.full(keys.max() + 1, -1, dtype=np.int64)
    np.maximum.at(whole, keys[~is_part], rank[~is_part])
    last = np.full(lists.max() + 1, -1, dtype=np.int64)
    np.maximum.at(last, lists[is_part], rank[is_part])
    stays = np.where(is_part, (rank == last[lists]) & (rank > whole[keys]), rank == whole[keys])
    return found.filter(pa.array(stays))


def completed(found: pa.Table) -> pa.Table:
    """Makes one step for each key from the steps that `fold_steps` kept: the last image, completed by the values that
    the row had before."""
    keyed, others = parted(found, pc.equal(found["copies"], 0))
    return pa.concat_tables([_completed(keyed), others])


def _completed(found: pa.Table) -> pa.Table:
    if found.num_rows == 0 or not _has_parts(found):
        return found
    keys = _codes(found, "key")
    is_one = pc.and_(pc.is_null(found["basis"]), pc.is_null(found["unit"])).to_numpy(zero_copy_only=False)
    of_several = np.zeros(keys.max() + 1, dtype=np.bool_)
    of_several[keys[~is_one]] = True
    mine = of_several[keys]
    parts = found.filter(pa.array(mine)).combine_chunks()
    units = pc.coalesce(parts["unit"], parts["key"])
    parts, order = _ordered(parts, _codes(parts.append_column("whose", units), "whose"))
    return pa.concat_tables([found.filter(pa.array(~mine)), _replayed(parts.take(pa.array(order)))])


def _replayed(parts: pa.Table) -> pa.Table:
    """Applies steps in their order, and gives the last one of each key."""
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    states: dict[tuple[int, str], dict[str, str]] = {}
    for step in parts.to_pylist():
        key, values = (step["table_number"], step["key"]), None
        if step["image"] is not None:
            values = dict(zip(step["names"].split(SEP), step["image"].split(SEP), strict=True))
            if step["basis"] is not None:
                before = (step["table_number"], step["basis"])
                step["lacks"] = step["lacks"] or before not in states or rows[before]["lacks"]
                values = states.get(before, {}) | values
            step |= {"names": SEP.join(values), "image": SEP.join(values.values())}
            states[key] = values
        else:
            states.pop(key, None)
        rows[key] = step | {"basis": None, "unit": None}
    return pa.Table.from_pylist(list(rows.values()), STEP_SCHEMA)


def _codes(found: pa.Table, *names: str) -> npt.NDArray[np.int64]:
    """Gives a number for each row of a table: equal numbers where the values of these columns are equal."""
    key_numbers = found["key_number"].to_numpy()
    codes = numbered(found["table_number"].to_numpy().astype(np.int64) * (key_numbers.max() + 1) + key_numbers)
    for name in names:
        codes = combined(codes, found[name].combine_chunks().dictionary_encode(null_encoding="encode"))
    return codes


def _ordered(found: pa.Table, keys: npt.NDArray[np.int64]) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """Gives the steps and their order.  Event times are raised to the highest that their partition has shown before for
    the same key."""
    by_time, partitions = found["by_time"].to_numpy(zero_copy_only=False), _partitions(found)
    if by_time.any():
        times = pa.array(_in_partition_order(found, keys, partitions, by_time))
        found = found.set_column(found.schema.get_field_index("commit_ts"), STEP_SCHEMA.field("commit_ts"), times)
    is_image = pc.is_valid(found["image"]).to_numpy(zero_copy_only=False)
    eras = found["era"].to_numpy()
    ranks = (
        ~is_image,  # the row that moves here has the values of its old key, so images come first
        found["index"].to_numpy(),
        found["offset"].to_numpy(),
        partitions,
        is_image & ~by_time,
        found["commit_ts"].to_numpy(),
        -eras,  # a change of the key is behind all rows of the earlier key
    )
    telling = [rank for rank in ranks if (rank != rank[0]).any()]
    return found, np.lexsort(telling) if telling else np.arange(found.num_rows)


def _partitions(found: pa.Table) -> npt.NDArray[np.int64]:
    """Gives a number for the topic and partition of each step, in the order of both: offsets of a topic say nothing of
    another's."""
    topics, topic_of = distinct(found, ["topic"])
    places = np.empty(len(topics), np.int64)
    places[sorted(range(len(topics)), key=topics.__getitem__)] = np.arange(len(topics))
    partitions = found["partition"].to_numpy().astype(np.int64)
    numbers: npt.NDArray[np.int64] = places[topic_of] * (partitions.max(initial=0) + 1) + partitions
    return numbers


def _in_partition_order(
    found: pa.Table, keys: npt.NDArray[np.int64], partitions: npt.NDArray[np.int64], by_time: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Raises event times so that the steps of a key in one partition never go back in time.

    Within a partition the order is the partition's; between partitions it is that of event times, as in
    `pipeline.by_partitions.merge`.
    """
    times: npt.NDArray[np.int64] = found["commit_ts"].to_numpy()
    offsets = found["offset"].to_numpy()
    order = np.lexsort((found["index"].to_numpy(), offsets, partitions, keys))
    starts = (np.diff(keys[order], prepend=-1) != 0) | (np.diff(partitions[order], prepend=-1) != 0)
    known, ranks = np.unique(times, return_inverse=True)
    base = np.cumsum(starts) * len(known)
    highest = known[np.maximum.accumulate(base + ranks[order]) - base]
    raised = np.empty_like(times)
    raised[order] = highest
    return np.where(by_time, raised, times)


_OF_KEYS: Final = ("forms", "basis")
_ADDED: Final = {"copies": "sum", "resent": "sum", "lacks": "max"}
_SAME_CHANGE: Final = ("table_number", "key_number", "era", "key", "names", "may_be_gone", "commit_ts", "by_time")


def _counted(found: pa.Table) -> pa.Table:
    """Adds up the copies of each change of an image; the result has the position of one of them."""
    if found.num_rows == 0:
        return found
    comes = pc.greater(found["copies"], 0)
    groups = [*_SAME_CHANGE, "comes"]
    added = (
        found.append_column("comes", comes)
        .group_by(groups)
        .aggregate(
            [
                ("image", "min"), ("topic", "min"), ("partition", "min"), ("offset", "min"), ("index", "min"),
                ("unit", "min"), *_ADDED.items(),
            ]
        )
    )  # fmt: skip
    columns = {
        field.name: added[
            field.name if field.name in _SAME_CHANGE else f"{field.name}_{_ADDED.get(field.name, 'min')}"
        ].combine_chunks()
        for field in STEP_SCHEMA
        if field.name not in _OF_KEYS
    } | {
        "forms": pa.repeat(0, added.num_rows),
        "basis": pa.nulls(added.num_rows, TEXT),
    }
    return pa.Table.from_arrays([columns[field.name].cast(field.type) for field in STEP_SCHEMA], schema=STEP_SCHEMA)


def balance(found: pa.Table) -> pa.Table:
    """Turns the folded steps of tables without a key into one row for each image that should be there, with its number
    of copies.

    Copies of a change that came below a boundary were sent again, and count only if there are no others.  Rows that may
    be gone with their partition are left out.  A row that came before a column was added or changed, and went
    afterwards, went as another image than it had come as.
    """
    found = found.filter(pc.invert(found["may_be_gone"]))
    if found.num_rows == 0:
        return found
    fresh = pc.subtract(found["copies"], found["resent"])
    counted = pc.if_else(pc.equal(fresh, 0), found["copies"], fresh)
    found = found.set_column(found.schema.get_field_index("copies"), STEP_SCHEMA.field("copies"), counted)
    encoded = (
        pc.binary_join_element_wise(
            found["table_number"].cast(TEXT), found["names"].cast(TEXT), found["key"], pa.scalar(SEP, TEXT)
        )
        .combine_chunks()
        .dictionary_encode()
    )
    codes = encoded.indices.to_numpy()
    total = np.bincount(codes, weights=found["copies"].to_numpy()).astype(np.int64)
    first = np.empty(len(total), dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    one = found.take(pa.array(first))
    total = _gone_with_more_columns(one, total)
    one = one.set_column(one.schema.get_field_index("copies"), STEP_SCHEMA.field("copies"), pa.array(total))
    lacks = np.bincount(codes, weights=found["lacks"].to_numpy()) > 0
    one = one.set_column(one.schema.get_field_index("lacks"), STEP_SCHEMA.field("lacks"), pa.array(lacks))
    return one.filter(pc.greater(one["copies"], 0))


def _gone_with_more_columns(images: pa.Table, total: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Takes images that went oftener than they came from the images of fewer columns as which these rows had come;
    preferably from those with the most columns.  Gives the copies that are left."""
    went = np.flatnonzero((total < 0) & images["unit"].is_valid().to_numpy(zero_copy_only=False)).tolist()
    if not went:
        return total
    units = set(images["unit"].take(pa.array(went)).to_pylist())
    left, came = total.copy(), dict[tuple[int, str], list[tuple[int, dict[str, str]]]]()
    rows = images.select(["table_number", "unit", "names", "image"]).to_pylist()
    values = {i: dict(zip(row["names"].split(SEP), row["image"].split(SEP), strict=True))
              for i, row in enumerate(rows) if row["unit"] in units}  # fmt: skip
    for i in sorted(values, key=lambda i: -len(values[i])):
        if total[i] > 0:
            came.setdefault((rows[i]["table_number"], rows[i]["unit"]), []).append((i, values[i]))
    for i in went:
        for other, had in came.get((rows[i]["table_number"], rows[i]["unit"]), []):
            if had.items() < values[i].items():
                copies = min(-left[i], left[other])
                left[i], left[other] = left[i] + copies, left[other] - copies
    return left


def buckets(found: pa.Table, count: int) -> Iterator[tuple[int, pa.Table]]:
    """Divides steps, which may be hashed, into buckets.  All steps of a key are in one bucket, and so are all keys of a
    unit."""
    if found.num_rows == 0:
        return
    if count == 1:
        yield 0, found
        return
    owners = pc.coalesce(found["unit"], found["key"]) if "unit" in found.column_names else found["key"]
    numbers = key_sums(whole_texts(owners)) % count
    ordered = found.take(pa.array(np.argsort(numbers.astype(np.min_scalar_type(count)), kind="stable")))
    sizes = np.bincount(numbers)
    for number, (end, size) in enumerate(zip(np.cumsum(sizes).tolist(), sizes.tolist(), strict=True)):
        if size:
            yield number, ordered.slice(end - size, size)
