"""Removes topics."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from tests.support.waiting import wait_for


def delete_topic(bootstrap_servers: str, name: str) -> None:
    """Deletes a topic; returns when Kafka does not show it any more, so that another of its name can be made."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.delete_topics([name])[name].result(30)
    wait_for(lambda: name not in admin.list_topics(timeout=30).topics, f"the topic {name} is not deleted")
