"""The data source `bridge` of Spark, for other jobs."""
