"""Removes topics, and asks for the offsets of consumer groups."""

from __future__ import annotations

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from bridge.sources.kafka.client import AWAY, group_client
from tests.support.waiting import SECONDS, wait_for


def delete_topic(bootstrap_servers: str, name: str) -> None:
    """Deletes a topic; returns when Kafka does not show it any more, so that another of its name can be made."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.delete_topics([name])[name].result(30)
    wait_for(lambda: name not in admin.list_topics(timeout=30).topics, f"the topic {name} is not deleted")


def group_offsets(bootstrap_servers: str, group: str) -> dict[tuple[str, int], int]:
    """The offsets of a consumer group, by topic and partition.  A broker that has just begun makes the topic of all
    groups when it is first asked, and says until it has read it that its coordinator loads.

    A consumer asks: an AdminClient would end the whole process, without a word, if it lost the connection meanwhile.
    """
    asked = group_client({"bootstrap.servers": bootstrap_servers}, group)
    topics = asked.list_topics(timeout=SECONDS).topics
    partitions = [TopicPartition(name, number) for name in topics for number in topics[name].partitions]
    again = Retrying(
        retry=retry_if_exception(_is_away), wait=wait_fixed(0.1), stop=stop_after_delay(SECONDS), reraise=True
    )
    found = again(lambda: asked.committed(partitions, SECONDS))
    asked.close()
    return {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}


def _is_away(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in AWAY
