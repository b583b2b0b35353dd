"""The ends of a pipeline, target and source, which may be away."""
