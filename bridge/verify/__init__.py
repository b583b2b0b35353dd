"""`bridge verify`: proof that the target is right, and the way back when it is not."""
