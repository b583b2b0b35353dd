"""Steps that have the hash of an image instead of the image: to move and sort images takes longer than to hash them.

Pure, over Arrow.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from bridge.rows.literal_offsets import to_numpy, whole
from bridge.verify.log.hashes.text_hashes import text_hashes
from bridge.verify.log.row_steps import STEP_SCHEMA

_KEPT: Final = (
    "table_number", "key", "key_number", "era", "commit_ts", "by_time", "topic", "partition", "offset",
    "index",
)  # fmt: skip
"""What decides which step of a key is the last one, where images hold whole rows."""
HASHED_SCHEMA: Final = pa.schema([*(STEP_SCHEMA.field(name) for name in _KEPT), pa.field("image", pa.uint64())])


def hashed(steps: pa.Table) -> pa.Table:
    """Gives steps (STEP_SCHEMA) of rows with a key the hashes of their images (HASHED_SCHEMA), null when the row
    goes."""
    images = whole(steps["image"])
    hashes = pa.array(text_hashes(images), mask=~to_numpy(images.is_valid()))
    return pa.Table.from_arrays([*(steps[name] for name in _KEPT), hashes], schema=HASHED_SCHEMA)
