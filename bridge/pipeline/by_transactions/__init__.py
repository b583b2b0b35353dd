"""The order of the upstream's transactions, which Debezium's connector tells in a topic of its own."""
