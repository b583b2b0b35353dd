"""The Spark side: from messages to windows of complete upstream transactions."""
