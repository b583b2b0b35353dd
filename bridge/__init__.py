"""A replication bridge from change messages in Kafka to a MySQL-compatible target."""

import os

# Arrow's allocator returns freed memory to the system after 10 ms, and takes it again for the next micro-batch.  That
# was a third of the system time of a catch-up, and more on a virtual machine whose host takes free pages away.  With
# this value (ms) it keeps the memory between two micro-batches.  pyarrow reads it when it is imported, also in Spark's
# Python workers.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "10000")
