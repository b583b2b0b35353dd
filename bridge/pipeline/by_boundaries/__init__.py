"""The order of commit ts: boundaries vouch that a transaction is whole."""
