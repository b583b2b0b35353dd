"""A replication bridge from change messages in Kafka to a MySQL-compatible target."""

import os

# Arrow's allocator gives freed memory back to the system after 10 ms, only to take it again for the next micro-batch:
# a third of the system time of a catch-up, and more on a virtual machine whose host takes free pages away.  Of so many
# ms between two micro-batches it is left alone.  Read when pyarrow is loaded, also in Spark's Python workers.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "10000")
