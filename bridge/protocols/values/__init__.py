"""What the protocols share: values, types, times, row images."""
