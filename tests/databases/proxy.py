"""A TCP proxy that does what networks do: delays, falls silent, cuts, or cuts just where an answer is under way.

It runs in a thread of its own, so that it also serves a test whose own thread or loop is blocked, and all its
methods may be called from any thread. `to_server` is what clients send, `to_client` what the server answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeVar

Direction = Literal["to_server", "to_client"]
BOTH: tuple[Direction, Direction] = ("to_server", "to_client")

_LONGEST = 4096
"""Bytes that a pattern may have."""
_T = TypeVar("_T")


class Cut:
    """A cut that waits for its bytes."""

    def __init__(
        self, pattern: bytes, direction: Direction, when: Literal["before", "after", "answered"]
    ) -> None:
        self.pattern = pattern
        self.direction = direction
        self.when = when
        self.done = threading.Event()
        """Set once it has cut a connection."""


class _Way:
    """What is done to the bytes of one direction, of all connections."""

    def __init__(self) -> None:
        self.delay = 0.0
        self.piece = 65536
        self.flows = asyncio.Event()
        self.flows.set()


class Proxy:
    """Enter it to start it. It passes all on, until it's told otherwise."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.port = 0
        """Where it listens, on 127.0.0.1."""
        self.made = 0
        """How many connections clients have made through it."""
        self._to = (host, port)
        self._ways: dict[Direction, _Way] = {}
        self._links: set[_Link] = set()
        self._cuts: list[Cut] = []
        self._refuses = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def url(self, url: str) -> str:
        """A database's URL with the proxy's port in the place of the server's."""
        before, found, after = url.rpartition(f":{self._to[1]}/")
        if not found:
            raise ValueError(f"{url!r} is not a URL with the port {self._to[1]}, to which this proxy goes")
        return f"{before}:{self.port}/{after}"

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        return len(self._links)

    def delay(self, seconds: float, *directions: Direction) -> None:
        """Holds each piece of bytes for so long before it goes on, both ways if none is named. 0 ends it."""

        def change(way: _Way) -> None:
            way.delay = seconds

        self._change(change, directions)

    def trickle(self, size: int = 1, *directions: Direction) -> None:
        """Passes on so many bytes at a time, a thousandth of a second apart."""

        def change(way: _Way) -> None:
            way.piece = size

        self._change(change, directions)

    def hang(self, *directions: Direction) -> None:
        """Falls silent: connections stay, new ones are taken, and nothing goes on until `heal`. Nothing is lost."""
        self._change(lambda way: way.flows.clear(), directions)

    def refuse(self) -> None:
        """Closes each new connection at once, until `heal`. Those that are open stay."""
        self._do(lambda: setattr(self, "_refuses", True))

    def heal(self) -> None:
        """Ends all delays, silences, refusals and cuts that still wait. What was held back goes on."""

        def heal() -> None:
            self._refuses = False
            self._cuts.clear()
            for way in self._ways.values():
                way.delay, way.piece = 0.0, 65536
                way.flows.set()

        self._do(heal)

    def cut(self) -> int:
        """Resets all connections now, to both sides, and gives their number."""

        def cut() -> int:
            links = list(self._links)
            for link in links:
                link.abort()
            return len(links)

        return self._do(cut)

    def cut_at(
        self,
        pattern: bytes,
        *,
        direction: Direction = "to_server",
        when: Literal["before", "after", "answered"] = "answered",
    ) -> Cut:
        """Cuts the next connection on which these bytes come by, and that one only.

        "before": they don't go on. "after": they do, and the cut is at once, so that the other side may or may not
        get to read them. "answered", for what goes to the server only: they go on, and the cut is when the server
        begins to answer, so that it has done what they asked and the client doesn't hear of it.
        """
        if not pattern:
            raise ValueError("an empty pattern comes by always; use cut()")
        if len(pattern) > _LONGEST:
            raise ValueError(f"a pattern has at most {_LONGEST} bytes, and this one {len(pattern)}")
        if when == "answered" and direction != "to_server":
            raise ValueError("only what goes to the server is answered; for its answers say before or after")
        cut = Cut(pattern, direction, when)
        self._do(lambda: self._cuts.append(cut))
        return cut

    def _change(self, change: Callable[[_Way], None], directions: tuple[Direction, ...]) -> None:
        def each() -> None:
            for direction in directions or BOTH:
                change(self._ways[direction])

        self._do(each)

    def _do(self, work: Callable[[], _T]) -> _T:
        async def run() -> _T:
            return work()

        return self._run(run())

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)

    async def _start(self) -> None:
        self._ways = {direction: _Way() for direction in BOTH}
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for link in list(self._links):
            link.abort()
        # Each ends by itself once its pumps have, and a cancelled one would be logged as an error.
        if serving := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(serving, timeout=5)
        # The aborted transports close in the loop's next turns.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.made += 1
        if self._refuses:
            writer.transport.abort()
            return
        try:
            to_server = await asyncio.open_connection(*self._to)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(reader, writer, *to_server)
        link.pumps = [asyncio.ensure_future(self._pump(link, direction)) for direction in BOTH]
        self._links.add(link)
        try:
            await asyncio.gather(*link.pumps, return_exceptions=True)
        finally:
            link.abort()
            self._links.discard(link)

    async def _pump(self, link: _Link, direction: Direction) -> None:
        way = self._ways[direction]
        reader, writer = link.ends[direction]
        before = b""
        try:
            while data := await reader.read(65536):
                if way.delay:
                    await asyncio.sleep(way.delay)
                await way.flows.wait()
                if direction == "to_client" and link.answers is not None:
                    self._finish(link, link.answers)
                    return
                cut = self._due(direction, before, data)
                before = (before + data)[-_LONGEST:]
                if cut is not None:
                    self._cuts.remove(cut)
                    if cut.when == "before":
                        self._finish(link, cut)
                        return
                    if cut.when == "answered":
                        link.answers = cut
                for at in range(0, len(data), way.piece):
                    writer.write(data[at : at + way.piece])
                    await writer.drain()
                    if at + way.piece < len(data):
                        # Else the system would put the pieces together again.
                        await asyncio.sleep(0.001)
                if cut is not None and cut.when == "after":
                    self._finish(link, cut)
                    return
            writer.write_eof()
        except OSError:
            link.abort()

    def _due(self, direction: Direction, before: bytes, data: bytes) -> Cut | None:
        for cut in self._cuts:
            # A pattern may come in two pieces; but one that came by whole, before it was asked for, is past.
            tail = before[-(len(cut.pattern) - 1) :] if len(cut.pattern) > 1 else b""
            if cut.direction == direction and cut.pattern in tail + data:
                return cut
        return None

    def _finish(self, link: _Link, cut: Cut) -> None:
        link.abort()
        cut.done.set()


class _Link:
    """A client's connection and the proxy's own to the server."""

    def __init__(
        self,
        client_reader: asyncio.StreamReader,
        client_writer: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        server_writer: asyncio.StreamWriter,
    ) -> None:
        self.ends: dict[Direction, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {
            "to_server": (client_reader, server_writer),
            "to_client": (server_reader, client_writer),
        }
        self.answers: Cut | None = None
        """The cut that waits for the server to begin its answer."""
        self.pumps: list[asyncio.Future[None]] = []

    def abort(self) -> None:
        for pump in self.pumps:
            pump.cancel()
        for _, writer in self.ends.values():
            # Without a time to linger a close is a reset.
            end = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
