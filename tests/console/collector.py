"""A receiver of OpenTelemetry metrics, as a collector would be one."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

Labels = frozenset[tuple[str, str]]


@dataclass(kw_only=True)
class Collector:
    """What was received."""

    port: int
    """Where it listens, on the loopback address."""
    values: dict[tuple[str, Labels], float] = field(default_factory=dict)
    """The latest value of each metric; of a histogram the sum of what was recorded."""

    def take(self, request: ExportMetricsServiceRequest) -> None:
        """Keep what a request has."""
        for resource in request.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    data = getattr(metric, str(metric.WhichOneof("data")))
                    for point in data.data_points:
                        labels = frozenset((a.key, a.value.string_value) for a in point.attributes)
                        value = getattr(point, "sum", None)
                        if value is None:
                            value = getattr(point, str(point.WhichOneof("value")))
                        self.values[metric.name, labels] = float(value)

    def value(self, name: str, **labels: str) -> float | None:
        """The latest value of a metric; None before the first one."""
        return self.values.get((name, frozenset(labels.items())))


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = ExportMetricsServiceRequest()
            request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
            collector.take(request)
            body = ExportMetricsServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its signature
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(port=server.server_address[1])
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
