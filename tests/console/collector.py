"""A receiver of OpenTelemetry metrics and traces, as a collector would be one."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass(kw_only=True)
class Collector:
    """What was received."""

    port: int
    """Where it listens, on the loopback address."""
    values: dict[tuple[str, frozenset[tuple[str, str]]], float] = field(default_factory=dict)
    """The latest value of each metric; of a histogram the sum of what was recorded."""
    spans: dict[bytes, Span] = field(default_factory=dict)
    """The spans by id."""

    def value(self, name: str, **labels: str) -> float | None:
        """The latest value of a metric; None before the first one."""
        return self.values.get((name, frozenset(labels.items())))


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            take = self._spans if self.path.endswith("/traces") else self._metrics
            take(body)
            self.send_response(200)
            self.end_headers()

        def _spans(self, body: bytes) -> None:
            told = ExportTraceServiceRequest.FromString(body)
            for scope in (scope for of in told.resource_spans for scope in of.scope_spans):
                collector.spans.update((span.span_id, span) for span in scope.spans)

        def _metrics(self, body: bytes) -> None:
            told = ExportMetricsServiceRequest.FromString(body)
            scopes = [scope for of in told.resource_metrics for scope in of.scope_metrics]
            for metric in (metric for scope in scopes for metric in scope.metrics):
                for point in getattr(metric, str(metric.WhichOneof("data"))).data_points:
                    labels = frozenset((a.key, a.value.string_value) for a in point.attributes)
                    of_number = "sum" if hasattr(point, "sum") else str(point.WhichOneof("value"))
                    collector.values[metric.name, labels] = float(getattr(point, of_number))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its signature
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(port=server.server_address[1])
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
