"""The embedded Kafka, MariaDB and MySQL that the demo and the tests start."""

from bridge.local.errors import LocalError
from bridge.local.kafka import Kafka
from bridge.local.mariadb import MariaDB
from bridge.local.mysql import MySQL

__all__ = ["Kafka", "LocalError", "MariaDB", "MySQL"]
