"""The embedded Kafka and MariaDB that the demo and the tests start."""

from bridge.local.errors import LocalError
from bridge.local.kafka import Kafka
from bridge.local.mariadb import MariaDB

__all__ = ["Kafka", "LocalError", "MariaDB"]
