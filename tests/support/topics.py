"""Removes topics, and asks for the offsets of consumer groups."""

from __future__ import annotations

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from bridge.sources.kafka.client import AWAY
from tests.support.waiting import SECONDS, wait_for


def delete_topic(bootstrap_servers: str, name: str) -> None:
    """Deletes a topic; returns when Kafka does not show it any more, so that another of its name can be made."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.delete_topics([name])[name].result(30)
    wait_for(lambda: name not in admin.list_topics(timeout=30).topics, f"the topic {name} is not deleted")


def group_offsets(bootstrap_servers: str, group: str) -> dict[tuple[str, int], int]:
    """The offsets of a consumer group, by topic and partition.  A broker that has just begun makes the topic of all
    groups when it is first asked, and says until it has read it that its coordinator loads."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    again = Retrying(
        retry=retry_if_exception(_is_away), wait=wait_fixed(0.1), stop=stop_after_delay(SECONDS), reraise=True
    )
    found = again(lambda: admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30))
    return {(one.topic, one.partition): one.offset for one in found.topic_partitions}


def _is_away(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in AWAY
