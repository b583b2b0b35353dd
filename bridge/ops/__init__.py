"""Looking at pipelines from outside."""
