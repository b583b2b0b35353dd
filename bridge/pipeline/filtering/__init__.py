"""What filters mean for a pipeline."""
