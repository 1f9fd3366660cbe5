"""A receiver of OTLP over HTTP in a few lines: it keeps the spans that it gets, in this process."""

from __future__ import annotations

import gzip
import threading
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

_MOST = 16 * 1024 * 1024


@dataclass(frozen=True)
class Received:
    """A span, as it came."""

    service: str
    name: str
    kind: str
    """SERVER, PRODUCER, CONSUMER, CLIENT or INTERNAL."""
    trace_id: str
    span_id: str
    parent_id: str
    """Empty for the first of a trace."""
    began: float
    """Unix seconds."""
    ended: float
    failed: bool
    status: str
    """What its status says of an error."""
    attributes: dict[str, object] = field(repr=False)
    links: tuple[str, ...] = ()
    """The ids of the spans that it's linked to."""


class Receiver:
    """Takes spans at `url`, for `OTEL_EXPORTER_OTLP_ENDPOINT`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._spans: list[Received] = []
        self._came = threading.Condition()

    @property
    def spans(self) -> list[Received]:
        """All that came so far."""
        with self._came:
            return list(self._spans)

    def trace(self, trace_id: str) -> list[Received]:
        """Those of one trace, in the order in which they began."""
        return sorted((each for each in self.spans if each.trace_id == trace_id), key=lambda each: each.began)

    def take(self, spans: Sequence[Received]) -> None:
        """Keeps them."""
        with self._came:
            self._spans += spans
            self._came.notify_all()

    def wait_for(self, trace_id: str, names: Sequence[str], seconds: float = 30) -> list[Received]:
        """The trace, once it has a span of each of these names, as often as it's named. TimeoutError after a while."""

        def has_them() -> bool:
            found = Counter(each.name for each in self._spans if each.trace_id == trace_id)
            return Counter(names) <= found

        with self._came:
            if not self._came.wait_for(has_them, seconds):
                found = sorted(each.name for each in self._spans if each.trace_id == trace_id)
                raise TimeoutError(
                    f"trace {trace_id} has {found} after {seconds:g} s, and not {sorted(names)}"
                )
        return self.trace(trace_id)


@contextmanager
def receiving(port: int = 0) -> Generator[Receiver]:
    """Receives on a port of this machine, any that is free by default, while entered."""
    server = _Server(("127.0.0.1", port), _Handler)
    receiver = server.receiver = Receiver(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    receiver: Receiver


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(min(int(self.headers.get("Content-Length", 0)), _MOST))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        answer = b""
        if self.path == "/v1/traces":
            receiver = cast("_Server", self.server).receiver
            receiver.take(received(ExportTraceServiceRequest.FromString(body)))
            answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def received(request: ExportTraceServiceRequest) -> list[Received]:
    """The spans of one export."""
    found: list[Received] = []
    for resource in request.resource_spans:
        service = str(_attributes(resource.resource.attributes).get("service.name", "?"))
        for scope in resource.scope_spans:
            found += [_span(service, each) for each in scope.spans]
    return found


def _span(service: str, span: Span) -> Received:
    return Received(
        service=service,
        name=span.name,
        kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        began=span.start_time_unix_nano / 1e9,
        ended=span.end_time_unix_nano / 1e9,
        failed=span.status.code == Status.STATUS_CODE_ERROR,
        status=span.status.message,
        attributes=_attributes(span.attributes),
        links=tuple(each.span_id.hex() for each in span.links),
    )


def _attributes(pairs: Sequence[KeyValue]) -> dict[str, object]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value") or "string_value") for each in pairs}
