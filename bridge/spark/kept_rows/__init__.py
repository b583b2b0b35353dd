"""Row changes that the driver does not hold: kept on Spark's executors, folded and rendered there."""
