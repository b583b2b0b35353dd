"""Topics without boundaries, applied in the order of their partitions."""
