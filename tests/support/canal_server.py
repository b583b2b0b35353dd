"""Alibaba's own Canal server, with its sender for Kafka: the flat messages that it writes are genuine.

Its jars are fetched once per user, and kept where the embedded servers are kept.  Maven has the server's parts, without
the program that puts them together: this module does that, through the gateway of Py4J that PySpark brings.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final
from xml.sax.saxutils import escape

import py4j
from py4j.java_gateway import GatewayParameters, JavaGateway

from bridge.cache import cached
from bridge.local.jars import Artifact, java, retrieve
from bridge.local.server import HOST, Server, free_port
from tests.support.pipelines import sql

VERSION: Final = "1.1.7"
"""The newest that Maven has: 1.1.8 is not there."""
ARTIFACTS: Final = (
    Artifact("com.alibaba.otter", "canal.server", VERSION),
    Artifact("com.alibaba.otter", "connector.kafka", VERSION),
)
_SECOND_LOGGING: Final = "slf4j-log4j12-*.jar"
"""ZooKeeper's, beside Canal's own."""
_ACCOUNT: Final = (
    "SET sql_log_bin = 0",
    "CREATE USER IF NOT EXISTS canal@'%' IDENTIFIED BY 'canal'",
    "GRANT ALL PRIVILEGES ON *.* TO canal@'%'",
)
_NAME: Final = "sender"
_PACKAGE: Final = "com.alibaba.otter.canal"
_PARSE: Final = f"{_PACKAGE}.parse"
_MYBATIS: Final = '<?xml version="1.0"?><!DOCTYPE {root} PUBLIC "-//mybatis.org//DTD {name} 3.0//EN" "{name}.dtd">'


class CanalServer(Server):
    """A Canal server that reads a MySQL or MariaDB server, and writes flat messages to a Kafka.

    It makes an account of its own there, unseen by the binlog: it cannot log in without a password.


    settings: of its sender (`canal.mq.topic`, `canal.mq.dynamicTopic`, `canal.mq.partitionsNum`,
    `canal.mq.partitionHash`, `canal.instance.filter.regex`, `canal.instance.get.ddl.isolation`), by the names that
    they have in its files.
    begin: the binlog file and position at which it begins; where its own notes say more, they count.
    gtids: the transactions behind which it begins instead (`canal.instance.gtidon`); messages tell GTIDs only then.
    """

    name: ClassVar[str] = "Canal"
    needs: ClassVar[str] = "it needs Java 17"

    def __init__(
        self,
        bootstrap_servers: str,
        port: int,
        settings: Mapping[str, str],
        *,
        begin: tuple[str, int] | None = None,
        gtids: str | None = None,
    ) -> None:
        super().__init__()
        self._bootstrap_servers, self._upstream_port = bootstrap_servers, port
        self._settings, self._begin, self._gtids = dict(settings), begin, gtids
        self._gateway_port = 0

    def _prepare(self, folder: Path) -> None:
        sql(f"mysql://root@{HOST}:{self._upstream_port}/", *_ACCOUNT, "SELECT 1")
        self._gateway_port = free_port()
        for path, text in {
            "logback.xml": _LOGGING,
            "instance.xml": self._instance(folder),
            "schemas.xml": _schemas(folder),
            "maps.xml": _MAPS,
            "history.xml": _HISTORY,
            "snapshot.xml": _SNAPSHOT,
        }.items():
            (folder / path).write_text(text)

    def _command(self, folder: Path) -> list[str]:
        flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", *_OPENED]
        gateway = next((Path(py4j.__file__).parents[1] / "pyspark" / "jars").glob("py4j-*.jar"))
        return [java(), *flags, "-cp", f"{folder}:{jars()}/*:{gateway}", "py4j.GatewayServer", str(self._gateway_port)]

    def _answers(self) -> bool:
        try:
            socket.create_connection((HOST, self._gateway_port), timeout=5).close()
        except OSError:
            return False
        return True

    def _launch(self) -> None:
        """Canal's parts are put together in the process that has just been started."""
        super()._launch()
        # Without the collection of objects: what was killed had objects of the same names at the same port, and those
        # of the server that takes its place would be given up in their stead.
        parameters = GatewayParameters(port=self._gateway_port, enable_memory_management=False)
        gateway = JavaGateway(gateway_parameters=parameters)
        try:
            canal = gateway.jvm.com.alibaba.otter.canal
            instances = canal.instance.spring.SpringCanalInstanceGenerator()
            instances.setSpringXml("instance.xml")
            server = canal.server.embedded.CanalServerWithEmbedded.instance()
            server.setCanalInstanceGenerator(instances)
            gateway.jvm.System.setProperty("canal.instance.memory.rawEntry", "false")
            properties = gateway.jvm.java.util.Properties()
            for name, value in self._sender().items():
                properties.setProperty(name, value)
            producer = canal.connector.kafka.producer.CanalKafkaProducer()
            producer.init(properties)
            server.start()
            server.start(_NAME)
            canal.server.CanalMQStarter(producer).start(_NAME)
        finally:
            gateway.close()

    def _sender(self) -> dict[str, str]:
        """What the server's example settings say, where it matters."""
        return {
            "kafka.bootstrap.servers": self._bootstrap_servers,
            "kafka.acks": "all",
            "kafka.max.request.size": str(16 << 20),
            "kafka.retries": "0",
            "canal.mq.flatMessage": "true",
            "canal.mq.canalBatchSize": "50",
            "canal.mq.canalGetTimeout": "100",
            **self._settings,
        }

    def _instance(self, folder: Path) -> str:
        """The server's own parts, as its spring/file-instance.xml puts them together."""
        place = {"timestamp": "1"} if self._begin or self._gtids else {}
        if self._begin:
            place |= {"journalName": self._begin[0], "position": str(self._begin[1])}
        if self._gtids:
            place["gtid"] = self._gtids
        topic = {
            name.removeprefix("canal.mq."): value
            for name, value in self._settings.items()
            if ".mq." in name and name != "canal.mq.flatMessage"  # of the server, not of the instance
        }
        alarm = _bean(f"{_PACKAGE}.common.alarm.LogAlarmHandler", id="alarm")
        meta = _bean(f"{_PACKAGE}.meta.FileMixedMetaManager", id="meta", dataDir=str(folder), period="1000")
        store = _bean(
            f"{_PACKAGE}.store.memory.MemoryEventStoreWithBuffer",
            id="store", bufferSize="16384", bufferMemUnit="1024", batchMode="MEMSIZE", raw="false",
            ddlIsolation=self._settings.get("canal.instance.get.ddl.isolation", "false"),
        )  # fmt: skip
        sink = _bean(f"{_PACKAGE}.sink.entry.EntryEventSink", id="sink", eventStore="#store")
        address = _made("java.net.InetSocketAddress", HOST, str(self._upstream_port))
        regex = self._settings.get("canal.instance.filter.regex", r".*\..*")
        filters = f"{_PACKAGE}.filter.aviater.AviaterRegexFilter"
        notes = _made(f"{_PARSE}.index.MetaLogPositionManager", "#meta")
        positions = _made(
            f"{_PARSE}.index.FailbackLogPositionManager", _bean(f"{_PARSE}.index.MemoryLogPositionManager"), notes
        )
        parser = _bean(
            f"{_PARSE}.inbound.mysql.MysqlEventParser",
            id="parser",
            destination=_NAME,
            detectingEnable="false",
            alarmHandler="#alarm",
            eventSink="#sink",
            eventFilter=_made(filters, regex),
            eventBlackFilter=_made(filters, r"mysql\.slave_.*", "false"),
            logPositionManager=positions,
            masterInfo=_made(f"{_PARSE}.support.AuthenticationInfo", address, "canal", "canal"),
            masterPosition=_bean(f"{_PACKAGE}.protocol.position.EntryPosition", **place),
            haController=_bean(f"{_PARSE}.ha.HeartBeatHAController"),
            connectionCharset="UTF-8",
            isGTIDMode=str(self._gtids is not None).lower(),
            parallel="true",
            parallelBufferSize="256",
            tsdbJdbcUrl=f"jdbc:h2:{folder}/h2;CACHE_SIZE=1000;MODE=MYSQL;",
            tsdbJdbcUserName="canal",
            tsdbJdbcPassword="canal",
            tsdbSpringXml="classpath:schemas.xml",
            enableTsdb="true",
        )
        instance = _bean(
            f"{_PACKAGE}.instance.spring.CanalInstanceWithSpring",
            id="instance",
            destination=_NAME,
            eventParser="#parser",
            eventSink="#sink",
            eventStore="#store",
            metaManager="#meta",
            alarmHandler="#alarm",
            mqConfig=_bean(f"{_PACKAGE}.instance.core.CanalMQConfig", **topic),
        )
        return _beans(alarm, meta, store, sink, parser, instance)


def jars() -> Path:
    """The folder of the jars.  Raises LocalError where they cannot be fetched."""
    return cached(f"canal-{VERSION}", _fetch)


def _fetch(folder: Path) -> None:
    for artifact in ARTIFACTS:
        retrieve(artifact, folder)
    for jar in folder.glob(_SECOND_LOGGING):
        jar.unlink()


def _beans(*beans: str) -> str:
    space = "http://www.springframework.org/schema/beans"
    where = (
        f'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="{space} {space}/spring-beans.xsd"'
    )
    return f'<beans xmlns="{space}" {where}>\n' + "\n".join(beans) + "\n</beans>\n"


def _bean(kind: str, *, id: str = "", **properties: str) -> str:
    """A bean of Spring's.  A value that begins with `#` is the bean of that name, one with `<` is a bean."""
    name = f' id="{id}"' if id else ""
    inner = "".join(f'<property name="{name}">{_value(value)}</property>' for name, value in properties.items())
    return f'<bean{name} class="{kind}">{inner}</bean>'


def _made(kind: str, *arguments: str) -> str:
    """A bean by its constructor; values as those of `_bean`."""
    inner = "".join(f"<constructor-arg>{_value(argument)}</constructor-arg>" for argument in arguments)
    return f'<bean class="{kind}">{inner}</bean>'


def _value(value: str) -> str:
    if value.startswith("#"):
        return f'<ref bean="{value[1:]}"/>'
    return value if value.startswith("<") else f"<value>{escape(value)}</value>"


def _schemas(folder: Path) -> str:
    """Where it keeps the definitions of tables: H2, as by default."""
    source = _bean(
        "com.alibaba.druid.pool.DruidDataSource",
        id="source",
        driverClassName="org.h2.Driver",
        url=f"jdbc:h2:{folder}/h2;CACHE_SIZE=1000;MODE=MYSQL;",
        username="canal",
        password="canal",
    )
    sessions = _bean(
        "org.mybatis.spring.SqlSessionFactoryBean",
        id="sessions",
        dataSource="#source",
        configLocation="classpath:maps.xml",
    )
    dao = f"{_PARSE}.inbound.mysql.tsdb.dao"
    history = _bean(f"{dao}.MetaHistoryDAO", id="history", sqlSessionFactory="#sessions")
    snapshot = _bean(f"{dao}.MetaSnapshotDAO", id="snapshot", sqlSessionFactory="#sessions")
    meta = _bean(
        f"{_PARSE}.inbound.mysql.tsdb.DatabaseTableMeta",
        id="tableMetaTSDB",
        metaHistoryDAO="#history",
        metaSnapshotDAO="#snapshot",
    )
    return _beans(source, sessions, history, snapshot, meta)


_OPENED: Final = ("--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED")
_LOGGING: Final = """
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
  <logger name="com.alibaba.otter.canal" level="INFO"/>
</configuration>
"""
_MAPS: Final = f"""
{_MYBATIS.format(root="configuration", name="Config").replace("Config.dtd", "mybatis-3-config.dtd")}
<configuration>
  <settings><setting name="mapUnderscoreToCamelCase" value="true"/></settings>
  <mappers><mapper resource="history.xml"/><mapper resource="snapshot.xml"/></mappers>
</configuration>
""".strip()


def _mapper(kind: str, statements: str) -> str:
    head = _MYBATIS.format(root="mapper", name="Mapper").replace("Mapper.dtd", "mybatis-3-mapper.dtd")
    return f'{head}\n<mapper namespace="{_PARSE}.inbound.mysql.tsdb.dao.{kind}Mapper">{statements}</mapper>'


def _statements(table: str, kind: str, names: list[str], found: str, *more: str) -> str:
    columns = ", ".join("".join(f"_{c.lower()}" if c.isupper() else c for c in name) for name in names)
    values = ", ".join(f"#{{{name}}}" for name in names)
    row = f"{_PARSE}.inbound.mysql.tsdb.dao.{kind}DO"
    return "\n".join(
        [
            f'<select id="findByTimestamp" resultType="{row}">SELECT * FROM {table} WHERE {escape(found)}</select>',
            f'<insert id="insert">INSERT INTO {table} (gmt_create, gmt_modified, {columns}) VALUES (NOW(), NOW(), '
            f"{values})</insert>",
            f'<delete id="deleteByName">DELETE FROM {table} WHERE destination = #{{destination}}</delete>',
            f'<delete id="deleteByTimestamp">DELETE FROM {table} WHERE destination = #{{destination}} AND '
            + escape("binlog_timestamp > 0 AND binlog_timestamp < #{timestamp}")
            + "</delete>",
            *more,
        ]
    )


_PLACE: Final = ["destination", "binlogFile", "binlogOffest", "binlogMasterId", "binlogTimestamp"]
_HISTORY: Final = _mapper(
    "MetaHistory",
    _statements(
        "meta_history",
        "MetaHistory",
        [*_PLACE, "useSchema", "sqlSchema", "sqlTable", "sqlText", "sqlType", "extra"],
        "destination = #{destination} AND binlog_timestamp BETWEEN #{snapshotTimestamp} AND #{timestamp} "
        "ORDER BY binlog_timestamp, id",
    ),
)
_SNAPSHOT: Final = _mapper(
    "MetaSnapshot",
    _statements(
        "meta_snapshot",
        "MetaSnapshot",
        [*_PLACE, "data", "extra"],
        "destination = #{destination} AND binlog_timestamp < #{timestamp} "
        "ORDER BY binlog_timestamp DESC, id DESC LIMIT 1",
        '<update id="update">UPDATE meta_snapshot SET gmt_modified = NOW(), binlog_file = #{binlogFile}, '
        "binlog_offest = #{binlogOffest}, binlog_master_id = #{binlogMasterId}, "
        "binlog_timestamp = #{binlogTimestamp}, data = #{data}, extra = #{extra} "
        "WHERE destination = #{destination} AND binlog_timestamp = 0</update>",
    ),
)
