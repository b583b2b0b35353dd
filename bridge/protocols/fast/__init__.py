"""The fast path of decoding: templates learned from earlier messages."""
