"""A replication bridge from change messages in Kafka to a MySQL-compatible target."""

import os

# Arrow's allocator returns freed memory to the system after so many ms, 10 by default, and takes it again for the next
# micro-batch, page by page.  pyarrow reads it when it is imported, also in Spark's Python workers.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "10000")

# NumPy's BLAS, which nothing uses, starts a thread for each core, and they look for work for 0.1 s of processor time
# (measured): most of what importing NumPy costs.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
