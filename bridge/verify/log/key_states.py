"""Folds the steps of rows to the last state of every key, with the writer's own fold (`rows.net_changes`).  The writer
folds window by window; here all steps of some keys are folded at once, so that the result depends on no window.  Pure,
over Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP, Kind
from bridge.rows.gathering import taken, whole_texts
from bridge.rows.grouping import Bools, Longs
from bridge.rows.keys.key_steps import RowShape
from bridge.rows.keys.key_sums import key_sums
from bridge.rows.literal_offsets import Cells, whole
from bridge.rows.net_changes import last_of_keys
from bridge.verify.log.expected_tables import ExpectedTable
from bridge.verify.log.logged_rows import STEP_SCHEMA, partitions_of


def last_steps(tables: Sequence[ExpectedTable], steps: pa.Table) -> pa.Table:
    """Gives the last step of each key.  It may be applied again to its own results (but see `last_of_some`).  Images
    may be hashes (`hashed`)."""
    if not steps.num_rows:
        return steps
    steps, order = _ordered(steps)
    return taken(steps, np.sort(order[_last(tables, steps, order)]))


def last_of_some(tables: Sequence[ExpectedTable], steps: pa.Table) -> pa.Table:
    """Does the same to steps of which others may be of the same keys.

    Steps by event time are folded partition by partition: where the times of a partition have gone back, only all of
    its steps tell which step of another partition is earlier.
    """
    if not pc.any(steps["by_time"]).as_py():
        return last_steps(tables, steps)
    numbers = partitions_of(steps)[1]
    return pa.concat_tables([last_steps(tables, steps.filter(pa.array(numbers == one))) for one in np.unique(numbers)])


def _last(tables: Sequence[ExpectedTable], steps: pa.Table, order: Longs) -> Longs:
    """Folds the keys alone: to the writer's fold, a step is a row change whose image is its key."""
    shapes = [RowShape(one.table, SEP.join(one.key), one.key, one.key, lacks=False) for one in tables]
    shape_of = steps["table_number"].to_numpy()[order].astype(np.int64)
    widths, keys = [len(one.key) for one in tables], whole(steps["key"])
    goes = pc.is_null(steps["image"]).to_numpy()[order]
    times = {name: steps[name].to_numpy()[order] for name in ("commit_ts", "by_time")}
    changes = pa.table({"kind": np.where(goes, int(Kind.DELETE), int(Kind.INSERT)), **times})
    before, after = (Cells(keys.take(pa.array(order, mask=~one)), shape_of, widths) for one in (goes, ~goes))
    return last_of_keys(shapes, shape_of, changes, before, after)


def _ordered(steps: pa.Table) -> tuple[pa.Table, Longs]:
    """Gives steps, and the order in which the writer folds row changes.

    Within a partition the order is the partition's; between partitions it is that of event times, as in
    `pipeline.by_partitions.merge`.  So event times are raised to the highest that their partition has shown before.
    """
    by_time, partitions = steps["by_time"].to_numpy(zero_copy_only=False), partitions_of(steps)[1]
    if by_time.any():
        times = pa.array(_raised(steps, partitions, by_time))
        steps = steps.set_column(steps.schema.get_field_index("commit_ts"), STEP_SCHEMA.field("commit_ts"), times)
    ranks = steps["index"].to_numpy(), steps["offset"].to_numpy(), partitions, steps["commit_ts"].to_numpy()
    telling = [rank for rank in ranks if (rank != rank[0]).any()]
    return steps, np.lexsort(telling) if telling else np.arange(steps.num_rows)


def _raised(steps: pa.Table, partitions: Longs, by_time: Bools) -> npt.NDArray[np.int64]:
    times: npt.NDArray[np.int64] = steps["commit_ts"].to_numpy()
    order = np.lexsort((steps["index"].to_numpy(), steps["offset"].to_numpy(), partitions))
    distinct_times, ranks = np.unique(times, return_inverse=True)
    base = partitions[order] * len(distinct_times)
    raised = np.empty_like(times)
    raised[order] = distinct_times[np.maximum.accumulate(base + ranks[order]) - base]
    return np.where(by_time, raised, times)


def last_rows(tables: Sequence[ExpectedTable], steps: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Gives for each table its last steps, those of gone keys too.  All steps of the keys are there."""
    steps = last_steps(tables, steps)
    numbers = steps["table_number"].to_numpy()
    order = np.argsort(numbers, kind="stable")
    steps, numbers = taken(steps, order), numbers[order]
    for number in np.unique(numbers).tolist():
        start, end = np.searchsorted(numbers, [number, number + 1]).tolist()
        yield number, steps.slice(start, end - start)


def buckets(steps: pa.Table, count: int) -> Iterator[tuple[int, pa.Table]]:
    """Divides steps, which may be hashed, into buckets.  All steps of a key are in one bucket."""
    if steps.num_rows == 0:
        return
    if count == 1:
        yield 0, steps
        return
    numbers = key_sums(whole_texts(steps["key"])) % count
    ordered = steps.take(pa.array(np.argsort(numbers.astype(np.min_scalar_type(count)), kind="stable")))
    sizes = np.bincount(numbers)
    for number, (end, size) in enumerate(zip(np.cumsum(sizes).tolist(), sizes.tolist(), strict=True)):
        if size:
            yield number, ordered.slice(end - size, size)
