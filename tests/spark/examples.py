"""Records by hand, and what each says: unusual ones, but such as real programs write.

Minute and reason are what ``docs/line-formats.md`` promises; where a line is counted, its level is
the format's own word for an error.
"""

from tests.spark.oracle import Outcome

COUNTED: Outcome = (None, "2017-07-30 14:09:00")
NOT_COUNTED: Outcome = (None, None)
UNMATCHED: Outcome = ("no-match", None)
TIME_INVALID: Outcome = ("time-invalid", None)
NO_TIME: Outcome = ("no-time", None)
NO_LEVEL: Outcome = ("no-level", None)

FIXED_EXAMPLES: dict[bytes, Outcome] = {
    b"2017-07-30 14:09:08 INFO ERROR ERROR": NOT_COUNTED,
    b"2017-07-30 14:09:08 INFO\n2017-07-30 14:09:08 ERROR x": NOT_COUNTED,
    b"2017-07-30 14:09:08 ERROR": COUNTED,
    b"2017-07-30 14:09:08 ERROR\r\n": COUNTED,
    b"2017-07-30 14:09:08 ERROR\tx": COUNTED,
    b"2017-07-30 14:09:08 ERROR x\r\nCaused by: y\r\n\t... 12 more\r\n": COUNTED,
    b"2017-07-30 14:09:08 ERROR: x": NOT_COUNTED,
    b"2017-07-30 14:09:08 [ERROR] x": NOT_COUNTED,
    b"2017-07-30 14:09:08 error x": NOT_COUNTED,
    b"2017-07-30 14:09:08  ERROR x": NO_LEVEL,
    b"2017-07-30 14:09:08": NO_LEVEL,
    b"2017-07-30 14:09:08 \nERROR": NO_LEVEL,
    b"2017-07-30 14:09:08,123 ERROR": NO_LEVEL,
    b" 2017-07-30 14:09:08 ERROR": NO_TIME,
    b"\r\n2017-07-30 14:09:08 ERROR x": NO_TIME,
    "２０１７-07-30 14:09:08 ERROR x".encode(): NO_TIME,  # noqa: RUF001 - digits, but not ours
    b"2017-07-30T14:09:08 ERROR": NO_TIME,
    b"2017-7-30 14:09:08. ERROR": NO_TIME,
    b"Caused by: java.net.ConnectException: ERROR": NO_TIME,
    b"2999-07-30 14:09:08 ERROR x": (None, "2999-07-30 14:09:00"),
    b"2026-03-29 02:30:00 ERROR x": (None, "2026-03-29 02:30:00"),
    b"0000-01-01 00:00:00 ERROR x": ("time-out-of-range", None),
    b"2017-02-29 00:00:00 ERROR x": TIME_INVALID,
}

ERROR_OF = {
    "rfc5424": "err",
    "serilog": "ERR",
    "tomcat": "SEVERE",
    "apache-2.2": "error",
    "apache-2.4": "error",
    "nginx": "error",
    "windows-cbs": "Error",
}
"""What the formats call an error that do not print ``ERROR``."""

PATTERN_EXAMPLES: dict[str, dict[str, Outcome]] = {
    "log4j": {
        "2017-07-30 14:09:08,123 WARN  [a] ERROR": NOT_COUNTED,
        "2017-07-30 14:09:08,123 INFO x\n2017-07-30 14:09:08,124 ERROR y": NOT_COUNTED,
        "2017-07-30 14:09:08.123  ERROR 12 --- [a] b": COUNTED,
        "2017-07-30 14:09:08 ERROR x": COUNTED,
        "2017-07-30 14:09:08,123 ERROR\r\n": COUNTED,
        "2017-07-30 14:09:08,123 ERROR\tx": UNMATCHED,
        "2017-07-30 14:09:08,123 [main] ERROR x": UNMATCHED,
        "log4j:ERROR Could not find value for key log4j.appender.R": UNMATCHED,
    },
    "logback": {
        "2017-07-30 14:09:08 [a[b]/c d] INFO  x [y] ERROR z": NOT_COUNTED,
        "2017-07-30 14:09:08,123 [main] WARN  c.e.A - [x] ERROR y": NOT_COUNTED,
        "2017-07-30 14:09:08.123 [a] b] ERROR c.e.A - x": COUNTED,
        "2017-07-30 14:09:08.123 [] ERROR c.e.A - level=INFO": COUNTED,
        "14:09:08.123 [main] ERROR c.e.A - x": UNMATCHED,
        "14:09:08,123 |-INFO in ch.qos.logback.classic.LoggerContext[default] - x": UNMATCHED,
    },
    "spring-boot": {
        "2026-03-29T02:30:00.1Z ERROR x": (None, "2026-03-29 02:30:00"),
        "2017-07-30T14:09:59-11:00 ERROR x": COUNTED,
        "2017-07-30T14:09:08.123+02:00 ERROR 1 --- [main] a : x\r\n\r\njava.lang.Oops: y": COUNTED,
        "2017-07-30T14:09:08.123Z  WARN 1 --- [main] c.e.A : ERROR": NOT_COUNTED,
        "2017-07-30 14:09:08.123 ERROR 1 --- [main] c.e.A : x": UNMATCHED,
        r" =========|_|==============|___/=/_/_/_/": UNMATCHED,
    },
    "kafka": {
        "[2017-07-30 14:09:08,123] ERROR Error in x (kafka.log.Log)\njava.io.IOException": COUNTED,
        "[2017-07-30 14:09:08,123] INFO [Log partition=a-0] ERROR (kafka.log.Log)": NOT_COUNTED,
        "[2017-07-30 14:09:08,123] FATAL x (kafka.Kafka$)": NOT_COUNTED,
        " [2017-07-30 14:09:08,123] ERROR x": UNMATCHED,
    },
    "tomcat": {
        "30-Jul-2017 14:09:08.123 SEVERE [main] o.a.A x\r\n java.lang.Oops\r\n\tat y": COUNTED,
        "30-Jul-2017 14:09:08 SEVERE [main] x": COUNTED,
        "30-Jul-2017 14:09:08.123 WARNING [localhost-startStop-1] x SEVERE y": NOT_COUNTED,
        "Jul 30, 2017 2:09:08 PM org.apache.A b\nSEVERE: x": UNMATCHED,
        "30-Juli-2017 14:09:08.123 SCHWERWIEGEND [main] x": UNMATCHED,
    },
    "apache-2.2": {
        "[Sun Jul 30 14:09:44 2017] [error] [client 10.0.0.1] File does not exist: /x": COUNTED,
        "[Mon Jul 30 14:09:44 2017] [error] not a Monday": COUNTED,
        "[Sun Jul 30 14:09:44 2017] [notice] caught SIGTERM [error] x": NOT_COUNTED,
        "[Sun Jul  3 14:09:44 2017] [error] x": UNMATCHED,
    },
    "apache-2.4": {
        "[Sun Jul 30 14:09:52.123456 2017] [error] x": COUNTED,
        "[Sun Jul 30 14:09:52.123456 2017] [proxy_http:error] [pid 7] (111)refused: x": COUNTED,
        "[Sun Jul 30 14:09:52.123456 2017] [:error] [pid 7] PHP Notice:  x": COUNTED,
        "[Sun Jul 30 14:09:52.123456 2017] [core:trace3] [pid 7] [:error] x": NOT_COUNTED,
        "[Sun Jul 30 14:09:52 2017] [core:error] x": UNMATCHED,
        "AH00558: apache2: Could not reliably determine the server's name": UNMATCHED,
    },
    "nginx": {
        '2017/07/30 14:09:08 [error] 7#7: *1 connect() failed, upstream: "http://a"\r\n': COUNTED,
        "2017/07/30 14:09:08 [warn] 7#7: *1 [error] x": NOT_COUNTED,
        "nginx: [emerg] bind() to 0.0.0.0:80 failed (98: Address already in use)": UNMATCHED,
        '10.0.0.1 - - [30/Jul/2017:14:09:08 +0200] "GET / HTTP/1.1" 500 1': UNMATCHED,
    },
    "python": {
        "2017-07-30 14:09:08,123 - a - b - ERROR - x": COUNTED,
        "2017-07-30 14:09:08,123 - root - INFO - x - ERROR - y": NOT_COUNTED,
        "2017-07-30 14:09:08,123 - a - CRITICAL - ERROR": NOT_COUNTED,
        "2017-07-30 14:09:08,123 - ERROR - x": UNMATCHED,
        '  File "/srv/a.py", line 1, in <module> - ERROR - x': UNMATCHED,
    },
    "airflow": {
        "[2017-07-30T14:09:08.123+0000] {a.py:1} ERROR - Task failed\nTraceback (most": COUNTED,
        "[2017-07-30T14:09:08.123+0000] {logging_mixin.py:188} INFO - ERROR - x": NOT_COUNTED,
        "[2017-07-30, 14:09:08 UTC] {a.py:1} ERROR - x": UNMATCHED,
        "[2017-07-30T14:09:08.123+0000] ERROR - x": UNMATCHED,
    },
    "postgresql": {
        "2017-07-30 14:09:08.123 CEST [7] a@b ERROR:  x": COUNTED,
        "2017-07-30 14:09:08 +03 [7] ERROR:  x at character 8\n": COUNTED,
        "2017-07-30 14:09:08.123 CEST [7] LOG:  ERROR:  x": NOT_COUNTED,
        "2017-07-30 14:09:08.123 UTC [7] a@b STATEMENT:  select 'ERROR:  '": NOT_COUNTED,
        "2017-07-30 14:09:08.123 UTC [7] [unknown]@[unknown] FATAL:  ERROR:  x": NOT_COUNTED,
        "ERROR:  x": UNMATCHED,
    },
    "mysql": {
        "2017-07-30T14:09:08.123456+02:00 0 [ERROR] InnoDB: x": COUNTED,
        "2017-07-30T14:09:08.123456Z 0 [ERROR] [MY-010457] [Server] x\r\n": COUNTED,
        "2017-07-30T14:09:08.123456Z 8 [Warning] [MY-010055] [Server] [ERROR] x": NOT_COUNTED,
        "2017-07-30 14:09:08 7 [ERROR] x": UNMATCHED,
        "InnoDB: ###### [ERROR] Diagnostic info printed": UNMATCHED,
    },
    "elasticsearch": {
        "[2017-07-30T14:09:08,123][ERROR][o.e.b.Elasticsearch] [n] x\njava.lang.Oops": COUNTED,
        "[2017-07-30T14:09:08,123][WARN ][o.e.x] [n] [ERROR] y": NOT_COUNTED,
        "[2017-07-30T14:09:08,123][DEPRECATION][o.e.d.A] [n] ERROR": NOT_COUNTED,
        "[2017-07-30T14:09:08,123] [ERROR] [o.e.x] y": UNMATCHED,
    },
    "serilog": {
        "2017-07-30 14:09:08.123 +02:00 [ERR] x\r\nSystem.Exception: y\r\n   at A.B()": COUNTED,
        "2017-07-30 14:09:08.123 +02:00 [INF] HTTP GET /a responded 500 [ERR] x": NOT_COUNTED,
        "[14:09:08 ERR] x": UNMATCHED,
    },
    "rfc5424": {
        "<131>1 2017-07-30T14:09:08+02:00 h a p m - x": COUNTED,
        "<3>1 2017-07-30T14:09:08Z - - - - -": COUNTED,
        '<11>1 2017-07-30T14:09:08.123456-07:00 h a - - [e@1 k="v"] \ufeffx\nmore': COUNTED,
        "<14>1 2017-07-30T14:09:08Z h a p m - error": NOT_COUNTED,
        "<10>1 2017-07-30T14:09:08Z h a p m - <11>1": NOT_COUNTED,
        "<192>1 2017-07-30T14:09:08Z h a p m - no such priority": NOT_COUNTED,
        "<11>1 - h a p m - x": UNMATCHED,
        "<11>Jul 30 14:09:08 h a: x": UNMATCHED,
        "47 <11>1 2017-07-30T14:09:08Z h a p m - x": UNMATCHED,
    },
    "logfmt": {
        'ts=2017-07-30T14:09:08.123Z level=ERROR caller=main.go:1 msg="level=INFO"': COUNTED,
        'time="2017-07-30T14:09:08Z" level="ERROR" msg=x\r\n': COUNTED,
        "time=2017-07-30T14:09:08.123+02:00 level=ERROR": COUNTED,
        'time=2017-07-30T14:09:08Z level=INFO msg="level=ERROR"': NOT_COUNTED,
        "time=2017-07-30T14:09:08Z level=error msg=x": NOT_COUNTED,
        "level=ERROR time=2017-07-30T14:09:08Z": UNMATCHED,
        "goroutine 1 [running]: level=ERROR": UNMATCHED,
    },
    "access": {
        '10.0.0.7 - - [30/Jul/2017:14:09:08 +0000] "GET / HTTP/1.1" 500 1': COUNTED,
        '::1 - ann smith [30/Jul/2017:14:09:08 +0200] "POST /?x=\\"1\\" HTTP/2.0" 201 0': COUNTED,
        'h:443 10.0.0.7 - - [30/Jul/2017:14:09:08 +0000] "-" 408 - "-" "[x]"\r\n': COUNTED,
        '10.0.0.7 - - [30/Jul/2017:14:09:08 +0000] "GET /': UNMATCHED,
        '10.0.0.7 - - [30/Jul/2017:14:09:08 +0000] "GET / HTTP/1.1" 5000 1': UNMATCHED,
        '10.0.0.7 - - [2017-07-30 14:09:08] "GET / HTTP/1.1" 200 1': UNMATCHED,
        '10.0.0.7 - - [30/jul/2017:14:09:08 +0000] "GET / HTTP/1.1" 200 1': UNMATCHED,
    },
}
"""By format. Each has lines that are counted, and that it does not understand; those of others are
in ``tests/logs``."""

JSON_EXAMPLES: dict[str, Outcome] = {
    '{"level":"ERROR","n":1,"time":"2017-07-30T14:09:08"}': COUNTED,
    '  {"timestamp": "2017-07-30T14:09:08.123+02:00", "severity": "ERROR"}\r\n': COUNTED,
    (
        '{ "m" : "\\"level\\":\\"INFO\\" {", "ts": 1, "log.level": "ERROR", '
        '"@timestamp": "2017-07-30T14:09:08Z" , "o": {}}'
    ): COUNTED,
    '{\n  "time": "2017-07-30T14:09:08Z",\n  "level": "ERROR"\n}': COUNTED,
    '{"log":{"level":"ERROR","offset":7},"@timestamp":"2017-07-30T14:09:08.123Z"}': COUNTED,
    '{"log":"a text","@timestamp":"2017-07-30T14:09:08.123Z","level":"ERROR"}': COUNTED,
    '{"level":"ERROR","o":{"time":"x"},"time":"2017-07-30T14:09:08Z"}': COUNTED,
    '{"time":"x","time":"2017-07-30T14:09:08Z","level":"INFO","level":"ERROR"}': COUNTED,
    '{"time":"2017-07-30T14:09:08Z","level":"\\u0045RROR"}': COUNTED,
    '{"timestamp":null,"time":"2017-07-30T14:09:08Z","level":null,"severity":"ERROR"}': COUNTED,
    r'{"m":"\"level\":\"ERROR\"","time":"2017-07-30T14:09:08Z","level":"INFO"}': NOT_COUNTED,
    '{"time":"2017-07-30T14:09:08Z","level":"error"}': NOT_COUNTED,
    '{"time":"2017-07-30T14:09:08Z","level":"INFO","severity":"ERROR"}': NOT_COUNTED,
    '{"time":"2017-07-30T14:09:08Z","level":"ERROR","level":"INFO"}': NOT_COUNTED,
    '{"level":50,"time":"2017-07-30T14:09:08Z"}': NOT_COUNTED,
    '{"level":"ERROR"}': NO_TIME,
    '{"level":"ERROR","time":null}': NO_TIME,
    '{"level":"ERROR","Time":"2017-07-30T14:09:08Z"}': NO_TIME,
    r'{"level":"ERROR","m":"\"time\":\"2017-07-30T14:09:08Z\""}': NO_TIME,
    "{}": NO_TIME,
    '{"time":1501423748,"level":"ERROR"}': TIME_INVALID,
    '{"time":"2017-07-30 14:09:08","level":"ERROR"}': TIME_INVALID,
    '{"time":"2017-07-30T14:09","level":"ERROR"}': TIME_INVALID,
    '{"time":"2017-07-30T14:09:081","level":"ERROR"}': TIME_INVALID,
    '{"time":" 2017-07-30T14:09:08","level":"ERROR"}': TIME_INVALID,
    '{"time":"2017-07-30T14:09:08Z","leevl":"ERROR"}': NO_LEVEL,
    '{"time":"2017-07-30T14:09:08Z","level":""}': NO_LEVEL,
    '{"time":"2017-07-30T14:09:08Z","level":"","severity":"ERROR"}': NO_LEVEL,
    "ERROR": UNMATCHED,
    " ": UNMATCHED,
    '[{"time":"2017-07-30T14:09:08Z","level":"ERROR"}]': UNMATCHED,
    '{"time":"2017-07-30T14:09:08Z","level":"ERROR"}\n{"level":"ERROR"}': UNMATCHED,
}
"""With the ready-made format: the record is one document, wherever its lines end."""
