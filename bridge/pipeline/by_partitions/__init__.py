"""The order of the partitions, for topics without boundaries."""
