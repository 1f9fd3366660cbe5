"""The proxy, before a server that answers each line with the same line in capitals."""

from __future__ import annotations

import contextlib
import queue
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from typing import Literal

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from tests.databases import mysql
from tests.databases.postgres import Database
from tests.databases.proxy import Direction, Proxy

LIMIT = 5.0
"""Seconds that a test waits for what has to come."""


class Echo(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.heard: queue.Queue[bytes] = queue.Queue()
        """Each line that came, and b"" for each connection that ended."""
        self.port: int = self.server_address[1]


class _Answer(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Echo)
        try:
            for line in self.rfile:
                self.server.heard.put(line)
                self.wfile.write(line.upper())
        except OSError:
            pass
        self.server.heard.put(b"")


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(echo: Echo, caplog: pytest.LogCaptureFixture) -> Iterator[Proxy]:
    with Proxy(echo.port) as made:
        yield made
    assert caplog.record_tuples == []


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=LIMIT) as made:
        assert ask(made, b"hello\n") == b"HELLO\n"
        yield made


@pytest.fixture
def heard(echo: Echo, client: socket.socket) -> queue.Queue[bytes]:
    """What the server hears after the client's hello."""
    assert echo.heard.get(timeout=LIMIT) == b"hello\n"
    return echo.heard


def ask(client: socket.socket, line: bytes) -> bytes:
    client.sendall(line)
    return read(client, len(line))


def read(client: socket.socket, size: int) -> bytes:
    """What comes, up to so many bytes or the connection's end."""
    got = b""
    while len(got) < size and (more := client.recv(size - len(got))):
        got += more
    return got


def is_silent(client: socket.socket) -> bool:
    client.settimeout(0.2)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(LIMIT)
    return False


def is_reset(client: socket.socket) -> bool:
    try:
        client.recv(1)
    except ConnectionResetError:
        return True
    return False


def test_all_passes_both_ways(proxy: Proxy, client: socket.socket) -> None:
    line = b"x" * 1_000_000 + b"\n"
    sender = threading.Thread(target=client.sendall, args=(line,))
    sender.start()
    assert read(client, len(line)) == line.upper()
    sender.join()
    assert (proxy.made, proxy.connections) == (1, 1)


def test_an_end_of_one_direction_leaves_the_other_open(client: socket.socket) -> None:
    client.sendall(b"last\n")
    client.shutdown(socket.SHUT_WR)
    assert read(client, 100) == b"LAST\n"


def test_a_delay_holds_what_comes(proxy: Proxy, client: socket.socket) -> None:
    proxy.delay(0.15)
    began = time.monotonic()
    assert ask(client, b"slow\n") == b"SLOW\n"
    assert time.monotonic() - began >= 0.3
    proxy.heal()
    began = time.monotonic()
    assert ask(client, b"fast\n") == b"FAST\n"
    assert time.monotonic() - began < 0.15


def test_a_silence_loses_nothing_and_takes_connections(
    proxy: Proxy, client: socket.socket, heard: queue.Queue[bytes]
) -> None:
    proxy.hang()
    client.sendall(b"held\n")
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=LIMIT) as other:
        other.sendall(b"new\n")
        assert is_silent(client)
        assert is_silent(other)
        assert heard.empty()
        proxy.heal()
        assert read(client, 5) == b"HELD\n"
        assert read(other, 4) == b"NEW\n"


@pytest.mark.parametrize(("direction", "reaches"), [("to_server", False), ("to_client", True)])
def test_a_silence_can_be_one_direction_s(
    proxy: Proxy, client: socket.socket, heard: queue.Queue[bytes], direction: Direction, reaches: bool
) -> None:
    proxy.hang(direction)
    client.sendall(b"held\n")
    if reaches:
        assert heard.get(timeout=LIMIT) == b"held\n"
    assert is_silent(client)
    assert heard.empty()
    proxy.heal()
    assert read(client, 5) == b"HELD\n"


def test_a_cut_resets_all_connections_also_in_a_silence(
    proxy: Proxy, client: socket.socket, heard: queue.Queue[bytes]
) -> None:
    proxy.hang()
    client.sendall(b"held\n")
    assert is_silent(client)
    assert proxy.cut() == 1
    assert is_reset(client)
    assert heard.get(timeout=LIMIT) == b""
    until = time.monotonic() + LIMIT
    while proxy.connections and time.monotonic() < until:
        time.sleep(0.005)
    assert proxy.connections == 0
    proxy.heal()
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=LIMIT) as other:
        assert ask(other, b"again\n") == b"AGAIN\n"
        assert proxy.connections == 1


def test_a_refusal_ends_new_connections_and_leaves_the_old(proxy: Proxy, client: socket.socket) -> None:
    proxy.refuse()
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=LIMIT) as other:
        try:
            other.sendall(b"in\n")
            assert other.recv(1) == b""
        except (ConnectionResetError, BrokenPipeError):
            pass
    assert ask(client, b"old\n") == b"OLD\n"
    proxy.heal()
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=LIMIT) as other:
        assert ask(other, b"in\n") == b"IN\n"


def test_a_server_that_is_not_there_ends_the_connection() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (
        Proxy(port) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=LIMIT) as client,
        contextlib.suppress(ConnectionResetError),
    ):
        assert client.recv(1) == b""


def test_cut_before_a_pattern_keeps_it_from_the_server(
    proxy: Proxy, client: socket.socket, heard: queue.Queue[bytes]
) -> None:
    cut = proxy.cut_at(b"COMMIT", when="before")
    assert ask(client, b"one\n") == b"ONE\n"
    client.sendall(b"COMMIT\n")
    assert is_reset(client)
    assert cut.done.wait(LIMIT)
    assert [heard.get(timeout=LIMIT), heard.get(timeout=LIMIT)] == [b"one\n", b""]


def test_cut_when_answered_has_the_server_do_it_and_the_client_not_know(
    proxy: Proxy, client: socket.socket, heard: queue.Queue[bytes]
) -> None:
    cut = proxy.cut_at(b"COMMIT")
    client.sendall(b"COMMIT\n")
    assert is_reset(client)
    assert cut.done.wait(LIMIT)
    assert heard.get(timeout=LIMIT) == b"COMMIT\n"


def test_cut_after_an_answer_lets_the_client_have_it_or_not_but_the_server_has_done_it(
    proxy: Proxy, client: socket.socket, heard: queue.Queue[bytes]
) -> None:
    cut = proxy.cut_at(b"ONE", direction="to_client", when="after")
    client.sendall(b"one\n")
    assert cut.done.wait(LIMIT)
    assert heard.get(timeout=LIMIT) == b"one\n"
    assert heard.get(timeout=LIMIT) == b""


def test_an_answer_can_be_cut_by_its_own_bytes(
    proxy: Proxy, client: socket.socket, heard: queue.Queue[bytes]
) -> None:
    proxy.cut_at(b"ONE", direction="to_client", when="before")
    client.sendall(b"one\n")
    assert is_reset(client)
    assert heard.get(timeout=LIMIT) == b"one\n"


def test_a_pattern_in_two_pieces_is_seen_and_one_that_is_past_is_not(
    proxy: Proxy, client: socket.socket, heard: queue.Queue[bytes]
) -> None:
    assert ask(client, b"COMMIT\n") == b"COMMIT\n"
    proxy.cut_at(b"COMMIT\n", when="before")
    assert ask(client, b"more\n") == b"MORE\n"
    client.sendall(b"COM")
    assert is_silent(client)
    client.sendall(b"MIT\n")
    assert is_reset(client)


def test_a_cut_is_of_one_connection_once(proxy: Proxy, client: socket.socket) -> None:
    proxy.cut_at(b"now", when="before")
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=LIMIT) as other:
        client.sendall(b"now\n")
        assert is_reset(client)
        assert ask(other, b"now\n") == b"NOW\n"


def test_heal_takes_back_a_cut_that_waits(proxy: Proxy, client: socket.socket) -> None:
    proxy.cut_at(b"now", when="before")
    proxy.heal()
    assert ask(client, b"now\n") == b"NOW\n"


def test_a_trickle_comes_byte_by_byte_and_whole(proxy: Proxy, client: socket.socket) -> None:
    proxy.trickle(1, "to_client")
    client.sendall(b"x" * 300 + b"\n")
    first = client.recv(301)
    assert len(first) < 301
    assert first + read(client, 301 - len(first)) == b"X" * 300 + b"\n"


def test_what_cannot_be_is_refused(proxy: Proxy) -> None:
    with pytest.raises(ValueError, match="empty"):
        proxy.cut_at(b"")
    with pytest.raises(ValueError, match="answered"):
        proxy.cut_at(b"x", direction="to_client", when="answered")
    with pytest.raises(ValueError, match="at most"):
        proxy.cut_at(b"x" * 5000)
    with pytest.raises(ValueError, match="not a URL"):
        proxy.url("postgresql://app@127.0.0.1:1/x")


@pytest.mark.parametrize(("when", "kept"), [("before", []), ("answered", [(1,)])])
def test_a_commit_whose_answer_is_lost_is_kept(
    postgres_database: Database, when: Literal["before", "answered"], kept: list[tuple[int]]
) -> None:
    postgres_database.execute("CREATE TABLE one (a int); GRANT ALL ON one TO app")
    with (
        Proxy(postgres_database.server.port) as proxy,
        psycopg.connect(proxy.url(postgres_database.url())) as connection,
    ):
        connection.execute("INSERT INTO one VALUES (1)")
        proxy.cut_at(b"COMMIT", when=when)
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
        connection.close()
    assert postgres_database.execute("SELECT a FROM one") == kept


@pytest.mark.anyio
@pytest.mark.parametrize("driver", ["asyncmy", "aiomysql"])
@pytest.mark.parametrize(("when", "kept"), [("before", []), ("answered", [(1,)])])
async def test_a_commit_to_mysql_whose_answer_is_lost_is_kept(
    mysql_database: mysql.Database,
    driver: str,
    when: Literal["before", "answered"],
    kept: list[tuple[int]],
) -> None:
    mysql_database.execute("CREATE TABLE one (a int)")
    with Proxy(mysql_database.server.port) as proxy:
        engine = create_async_engine(proxy.url(mysql_database.url(driver)))
        async with engine.connect() as connection:
            await connection.execute(text("INSERT INTO one VALUES (1)"))
            cut = proxy.cut_at(b"COMMIT", when=when)
            with pytest.raises(DBAPIError):
                await connection.commit()
            assert cut.done.is_set()
            await connection.invalidate()
        await engine.dispose()
    assert mysql_database.execute("SELECT a FROM one") == kept
