r"""Ready-made line formats for the logs people have.

Plain data; :data:`tally.lines.format.CATALOGUE` is built from it. A fraction of a second and a zone
are matched outside of the group ``time``: a minute needs neither, and ``log_time`` is the wall
clock as printed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

_DATE: Final = r"\d{4}-\d\d-\d\d"
_CLOCK: Final = r"\d\d:\d\d:\d\d"
_FRACTION: Final = r"(?:[.,]\d{1,9})?"
_ZONE: Final = r"(?: ?(?:Z|[+-]\d\d:?\d\d))?"
_TIME: Final = rf"(?<time>{_DATE} {_CLOCK}){_FRACTION}"
_TIME_T: Final = rf"(?<time>{_DATE}T{_CLOCK}){_FRACTION}"
_LEVEL: Final = r"(?<level>[A-Za-z]+)"
_SPACED: Final = "yyyy-MM-dd HH:mm:ss"
_ISO: Final = "yyyy-MM-dd'T'HH:mm:ss"


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogueEntry:
    """What a ready-made pattern format is made of."""

    description: str
    """Whose lines these are."""
    example: str
    """A line that the format understands."""
    pattern: str
    """With the groups ``time`` and ``level`` where the lines have them."""
    time_format: str = ""
    """Of the time; empty where the lines have none."""
    level_names: Mapping[str, str] = field(default_factory=dict)
    """Level by what the line prints, where the two differ."""
    levels: tuple[str, ...] = ()
    """All levels that the producer prints, where it alone decides; empty where applications add
    levels of their own."""


# From the least to the most severe, or the other way round where the producer's manual does so.
_APACHE_22: Final = ("emerg", "alert", "crit", "error", "warn", "notice", "info", "debug")
_APACHE_24: Final = (*_APACHE_22, *(f"trace{depth}" for depth in range(1, 9)))
_NGINX: Final = ("debug", "info", "notice", "warn", "error", "crit", "alert", "emerg")
_LOG4J: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
_JULI: Final = ("FINEST", "FINER", "FINE", "CONFIG", "INFO", "WARNING", "SEVERE")
_POSTGRESQL: Final = ("DEBUG", "INFO", "NOTICE", "WARNING", "ERROR", "LOG", "FATAL", "PANIC")
_MYSQL: Final = ("System", "ERROR", "Warning", "Note")
# Two of its own for deprecated settings: OpenSearch prints the first, Elasticsearch 8 the second.
_ELASTICSEARCH: Final = (*_LOG4J, "DEPRECATION", "CRITICAL")
_SERILOG: Final = ("VRB", "DBG", "INF", "WRN", "ERR", "FTL")

_SEVERITIES: Final = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_PRIORITY_NAMES: Final = MappingProxyType(
    {str(priority): _SEVERITIES[priority % 8] for priority in range(192)}
)

# What an RFC 3164 line has behind its priority. A day below 10 is padded with a blank.
_RFC_3164: Final = (
    rf"(?<time>[A-Z][a-z]{{2}} [ \d]\d {_CLOCK}) (?<host>\S++)(?: (?<program>[^\s:\[]++))?"
)
_RFC_3164_TIME: Final = "MMM ppd HH:mm:ss"
_KLOG: Final = MappingProxyType({"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL"})

PATTERNS: Final[Mapping[str, CatalogueEntry]] = MappingProxyType(
    {
        "log4j": CatalogueEntry(
            description="Log4j with the level after the time (%d %p …): Hadoop, Spring Boot 2",
            example="2015-10-18 18:01:47,978 INFO [main] org.apache.hadoop.mapreduce.v2.app."
            "MRAppMaster: Created MRAppMaster",
            pattern=rf"{_TIME} ++{_LEVEL}(?: |$)",
            time_format=_SPACED,
        ),
        "logback": CatalogueEntry(
            description="Logback and Log4j 2 with the thread before the level (%d [%t] %-5p …)",
            example="2017-07-30 14:09:08,123 [http-nio-8080-exec-1] ERROR c.e.Cart - no such item",
            pattern=rf"{_TIME} \[.*?\] +{_LEVEL} ",
            time_format=_SPACED,
        ),
        "spring-boot": CatalogueEntry(
            description="Spring Boot 3, and others that print an ISO 8601 time, then the level",
            example="2023-11-22T14:09:08.123+01:00 ERROR 1234 --- [shop] [main] c.e.Cart : no item",
            pattern=rf"{_TIME_T}{_ZONE} ++{_LEVEL}(?: |$)",
            time_format=_ISO,
        ),
        "zookeeper": CatalogueEntry(
            description="ZooKeeper (%d - %-5p [%t] - …)",
            example="2015-07-29 17:41:44,747 - INFO  [QuorumPeer[myid=1]/0:0:0:0:0:0:0:0:2181:"
            "FastLeaderElection@774] - Notification time out: 3200",
            pattern=rf"{_TIME} - {_LEVEL} ",
            time_format=_SPACED,
            levels=_LOG4J,
        ),
        "kafka": CatalogueEntry(
            description="Kafka's broker ([%d] %p …)",
            example="[2017-07-30 14:09:08,123] ERROR [KafkaServer id=0] Fatal error during startup",
            pattern=rf"\[{_TIME}\] {_LEVEL} ",
            time_format=_SPACED,
            levels=_LOG4J,
        ),
        "spark": CatalogueEntry(
            description="Spark's and Hadoop's short year (%d{yy/MM/dd HH:mm:ss} %p %c{1}: …)",
            example="17/06/09 20:10:40 INFO executor.CoarseGrainedExecutorBackend: Registered",
            pattern=rf"(?<time>\d\d/\d\d/\d\d {_CLOCK}) {_LEVEL} ",
            time_format="yy/MM/dd HH:mm:ss",
        ),
        "hdfs": CatalogueEntry(
            description="HDFS with a time without separators and the thread's number",
            example="081109 203615 148 INFO dfs.DataNode$PacketResponder: PacketResponder 1 ends",
            pattern=rf"(?<time>\d{{6}} \d{{6}}) \d+ {_LEVEL} ",
            time_format="yyMMdd HHmmss",
            levels=_LOG4J,
        ),
        "tomcat": CatalogueEntry(
            description="Tomcat's own logs (JULI's one-line formatter)",
            example="30-Jul-2017 14:09:08.123 SEVERE [main] org.apache.catalina.core.Standard "
            "failed to start",
            pattern=rf"(?<time>\d\d-[A-Z][a-z]{{2}}-\d{{4}} {_CLOCK}){_FRACTION} {_LEVEL} ",
            time_format="dd-MMM-yyyy HH:mm:ss",
            levels=_JULI,
        ),
        "apache-2.2": CatalogueEntry(
            description="Apache httpd's error log up to 2.2",
            example="[Sun Dec 04 04:47:44 2005] [error] mod_jk child workerEnv in error state 6",
            pattern=rf"\[(?<time>[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} \d\d {_CLOCK} \d{{4}})\] "
            r"\[(?<level>[a-z]+)\](?: |$)",
            time_format="EEE MMM dd HH:mm:ss yyyy",
            levels=_APACHE_22,
        ),
        "apache-2.4": CatalogueEntry(
            description="Apache httpd's error log from 2.4, with microseconds",
            example="[Wed Oct 11 14:32:52.123456 2017] [core:error] [pid 35708:tid 4328636416] "
            "[client 72.15.99.187] File does not exist: /usr/local/apache2/htdocs/favicon.ico",
            pattern=rf"\[(?<time>[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} \d\d {_CLOCK}\.\d{{6}} \d{{4}})\] "
            r"\[(?:[\w-]*+:)?(?<level>[a-z]+\d?)\](?: |$)",
            time_format="EEE MMM dd HH:mm:ss.SSSSSS yyyy",
            levels=_APACHE_24,
        ),
        "nginx": CatalogueEntry(
            description="nginx's error log",
            example='2017/07/30 14:09:08 [error] 1234#0: *5 open() "/srv/x" failed',
            pattern=rf"(?<time>\d{{4}}/\d\d/\d\d {_CLOCK}) \[(?<level>[a-z]+)\] ",
            time_format="yyyy/MM/dd HH:mm:ss",
            levels=_NGINX,
        ),
        "python": CatalogueEntry(
            description="Python's logging as its manual formats it (asctime - name - level - …)",
            example="2017-07-30 14:09:08,123 - shop.cart - ERROR - no such item",
            pattern=rf"{_TIME} - .*? - (?<level>[A-Z]+) - ",
            time_format=_SPACED,
        ),
        "airflow": CatalogueEntry(
            description="Airflow's text logs ([time] {file:line} level - …)",
            example="[2017-07-30T14:09:08.123+0000] {taskinstance.py:1937} ERROR - Task failed",
            pattern=rf"\[{_TIME_T}{_ZONE}\] \{{[^}}]*\}} (?<level>[A-Z]+) - ",
            time_format=_ISO,
        ),
        "postgresql": CatalogueEntry(
            description="PostgreSQL with log_line_prefix '%m [%p] ' or '%m [%p] %q%u@%d '",
            example='2017-07-30 14:09:08.123 UTC [1234] ERROR:  relation "cart" does not exist',
            pattern=rf"{_TIME} \S{{1,12}} \[\d+\] (?:\S{{1,128}}@\S{{1,128}} )?"
            r"(?<level>[A-Z]+\d?): ",
            time_format=_SPACED,
            levels=_POSTGRESQL,
        ),
        "mysql": CatalogueEntry(
            description="MySQL's error log from 5.7",
            example="2017-07-30T14:09:08.123456Z 0 [ERROR] [MY-010119] [Server] Aborting",
            pattern=rf"{_TIME_T}{_ZONE} \d+ \[{_LEVEL}\] ",
            time_format=_ISO,
            levels=_MYSQL,
        ),
        "elasticsearch": CatalogueEntry(
            description="Elasticsearch's and OpenSearch's text logs ([time][level][logger] …)",
            example="[2017-07-30T14:09:08,123][ERROR][o.e.b.Bootstrap          ] [node] Exception",
            pattern=rf"\[{_TIME_T}\]\[{_LEVEL} *+\]",
            time_format=_ISO,
            levels=_ELASTICSEARCH,
        ),
        "serilog": CatalogueEntry(
            description="Serilog's file sink (.NET)",
            example="2017-07-30 14:09:08.123 +02:00 [ERR] no such item",
            pattern=rf"{_TIME}{_ZONE} \[{_LEVEL}\] ",
            time_format=_SPACED,
            levels=_SERILOG,
        ),
        "rfc5424": CatalogueEntry(
            description="syslog by RFC 5424, the level from the priority",
            example="<11>1 2003-10-11T22:14:15.003Z host.example.com shop 812 ID47 - no such item",
            pattern=rf"<(?<level>\d{{1,3}})>1 {_TIME_T}{_ZONE} ",
            time_format=_ISO,
            level_names=_PRIORITY_NAMES,
            levels=_SEVERITIES,
        ),
        "logfmt": CatalogueEntry(
            description="key=value lines that start with time and level, such as Go's slog",
            example='time=2017-07-30T14:09:08.123Z level=ERROR msg="no such item"',
            pattern=rf'(?:time|ts)="?{_TIME_T}{_ZONE}"? level="?{_LEVEL}"?(?: |$)',
            time_format=_ISO,
        ),
        "rfc3164": CatalogueEntry(
            description="syslog by RFC 3164 with its priority, as sent over the network; no year",
            example="<11>Jul 30 14:09:08 combo sshd[19939]: no such user",
            pattern=rf"<(?<level>\d{{1,3}})>{_RFC_3164}",
            time_format=_RFC_3164_TIME,
            level_names=_PRIORITY_NAMES,
            levels=_SEVERITIES,
        ),
        "syslog": CatalogueEntry(
            description="syslog files of Linux, OpenSSH and macOS (RFC 3164); no year",
            example="Jul  3 14:09:08 combo sshd(pam_unix)[19939]: authentication failure",
            pattern=_RFC_3164,
            time_format=_RFC_3164_TIME,
        ),
        "klog": CatalogueEntry(
            description="Kubernetes' klog and glog; no year",
            example="E0730 14:09:08.123456    1234 reflector.go:138] no such item",
            pattern=rf"(?<level>[IWEF])(?<time>\d{{4}} {_CLOCK})\.\d{{6}} ",
            time_format="MMdd HH:mm:ss",
            level_names=_KLOG,
            levels=tuple(_KLOG.values()),
        ),
        "glog": CatalogueEntry(
            description="glog and absl with the year in front (--log_year_in_prefix)",
            example="E20170730 14:09:08.123456  1234 cart.cc:138] no such item",
            pattern=rf"(?<level>[IWEF])(?<time>\d{{8}} {_CLOCK})\.\d{{6}} ",
            time_format="yyyyMMdd HH:mm:ss",
            level_names=_KLOG,
            levels=tuple(_KLOG.values()),
        ),
        "android": CatalogueEntry(
            description="Android's logcat -v threadtime; no year",
            example="07-30 14:09:08.123  1702  2395 E WindowManager: no such window",
            pattern=rf"(?<time>\d\d-\d\d {_CLOCK}){_FRACTION} ++\d++ ++\d++ (?<level>[A-Z]) "
            r"(?<tag>[^\s:]*+)",
            time_format="MM-dd HH:mm:ss",
            levels=("V", "D", "I", "W", "E", "F", "S"),
        ),
        "access": CatalogueEntry(
            description="access logs of Apache and nginx, common and combined",
            example='10.0.0.7 - - [30/Jul/2017:14:09:08 +0000] "GET /cart HTTP/1.1" 502 157',
            pattern=r"(?<client>[\w.:%-]++) \S++ [^\[]*+"
            r"\[(?<time>\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d)"
            r"[^\]]*+\] \"(?:(?<method>[A-Z]++) )?(?:[^\"\\]|\\.)*+\" (?<status>\d{3})(?!\d)",
            time_format="dd/MMM/yyyy:HH:mm:ss",
        ),
        "openstack": CatalogueEntry(
            description="OpenStack's services, with or without the file's name in front",
            example="nova-api.log 2017-07-30 14:09:08.123 25746 ERROR nova.compute.manager [-] x",
            pattern=rf"(?:[\w.:-]++ )?{_TIME} \d++ (?<level>[A-Z]+) (?<logger>\S++)",
            time_format=_SPACED,
        ),
        "windows-cbs": CatalogueEntry(
            description="Windows component servicing (CBS.log)",
            example="2017-07-30 14:09:08, Error                 CBS    Failed to start",
            pattern=rf"{_TIME}, {_LEVEL} ++(?<component>\S++)",
            time_format=_SPACED,
        ),
        "bgl": CatalogueEntry(
            description="Blue Gene/L's RAS log",
            example="- 1117838570 2005.06.03 R02-M1-N0-C:J12-U11 2005-06-03-15.42.50.675872 "
            "R02-M1-N0-C:J12-U11 RAS KERNEL INFO instruction cache parity error corrected",
            pattern=r"(?<alert>[\w-]++) \d++ \S++ (?<node>\S++) "
            r"(?<time>\d{4}-\d\d-\d\d-\d\d\.\d\d\.\d\d)\.\d++ \S++ \S++ "
            r"(?<component>\S++) (?<level>[A-Z]+)",
            time_format="yyyy-MM-dd-HH.mm.ss",
        ),
        "thunderbird": CatalogueEntry(
            description="Thunderbird's collected syslog, by the collector's seconds since 1970",
            example="- 1131566461 2005.11.09 dn228 Nov 9 12:01:01 dn228/dn228 crond(pam_unix)"
            "[2915]: session closed for user root",
            pattern=rf"(?<alert>[\w-]++) (?<time>\d++) \S++ (?<node>\S++) [A-Z][a-z]{{2}} ++\d++ "
            rf"{_CLOCK} \S++(?: (?<program>[^\s:\[]++))?",
            time_format="epoch_seconds",
        ),
        "hpc": CatalogueEntry(
            description="Los Alamos' cluster events, by seconds since 1970",
            example="134681 node-246 unix.hw state_change.unavailable 1077804742 1 Component State "
            "Change: Component is in the unavailable state",
            pattern=r"\d++ (?<node>\S++) (?<component>\S++) (?<state>\S++) (?<time>\d++) "
            r"(?<flag>\S++)",
            time_format="epoch_seconds",
        ),
        "healthapp": CatalogueEntry(
            description="HealthApp on Android, with fields that are not padded",
            example="20171223-22:5:9:606|Step_LSC|30002312|onStandStepChanged 3579",
            pattern=r"(?<time>\d{8}-\d{1,2}:\d{1,2}:\d{1,2}):\d{1,3}\|(?<component>[^|]*+)\|",
            time_format="yyyyMMdd-H:m:s",
        ),
        "proxifier": CatalogueEntry(
            description="Proxifier's connections; no year",
            example="[07.30 14:09:08] chrome.exe - proxy.example.com:5070 open through proxy",
            pattern=rf"\[(?<time>\d\d\.\d\d {_CLOCK})\] (?<program>\S++)",
            time_format="MM.dd HH:mm:ss",
        ),
        "text": CatalogueEntry(
            description='any line as it is, by Kafka\'s timestamp (time = "record")',
            example="no such item",
            pattern="^",
        ),
    }
)
"""Pattern formats by name."""
