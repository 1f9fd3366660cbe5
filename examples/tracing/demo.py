"""What `make tracing` runs: the app under uvicorn, its jobs in another process, and a receiver that prints the traces.

Everything is real: HTTP, OTLP, two processes on one database. Each step says what it expects and checks it; the exit
code is 0 where all was so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from examples.registration.demo import Unexpected, expect, free_port, heading, say, until
from examples.tracing.receiver import Receiver, receiving
from examples.tracing.waterfall import waterfall

ROOT = Path(__file__).parent.parent.parent
WELCOMED = [
    "POST /register",
    "send welcome-mail",
    "process welcome-mail",
    "smtp",
    "process welcome-mail",
    "smtp",
]
"""What the trace of each request has at least, once its job has ended."""


class Process:
    """A process of the app's, whose lines are kept, and printed where that's asked for."""

    def __init__(self, command: list[str], environment: dict[str, str], name: str, shown: bool) -> None:
        self.lines: list[str] = []
        self._name, self._shown = name, shown
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env={**os.environ, **environment, "OTEL_SERVICE_NAME": name, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.lines.append(line.rstrip())
                if self._shown:
                    print(f"   {self._name:<6} | {line.rstrip()}", flush=True)

    def lives(self) -> bool:
        """True; Unexpected where it has ended."""
        if self._process.poll() is not None:
            raise Unexpected(f"{self._name} has ended with {self._process.returncode}: {self.lines[-20:]}")
        return True

    def stop(self) -> None:
        """Stops it as a supervisor does."""
        self._process.terminate()
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()


class Running:
    """The app that runs, and where its spans come."""

    def __init__(
        self, url: str, receiver: Receiver, processes: list[Process], environment: dict[str, str]
    ) -> None:
        self.url = url
        self.receiver = receiver
        self.processes = processes
        self._environment = environment

    @property
    def lines(self) -> list[str]:
        """What its processes have logged."""
        return [line for each in self.processes for line in each.lines]

    def post(self, path: str, email: str, request_id: str) -> str:
        """Sends a request of this ID; answers its job's id."""
        headers = {"X-Request-ID": request_id}
        response = httpx.post(self.url + path, json={"email": email}, headers=headers, timeout=20)
        job: str = response.raise_for_status().json()["job"]
        return job

    def trace_of(self, request_id: str) -> str:
        """The id of the trace that the request's push is in, once that has come."""

        def found() -> list[str]:
            about = "messaging.message.conversation_id"
            return [each.trace_id for each in self.receiver.spans if each.attributes.get(about) == request_id]

        until(
            lambda: all(each.lives() for each in self.processes) and bool(found()), f"a trace of {request_id}"
        )
        return found()[0]

    def command(self, *words: str) -> str:
        """What `fastjobs …` prints."""
        return subprocess.run(
            [sys.executable, "-m", "fastjobs", *words],
            cwd=ROOT, env={**os.environ, **self._environment}, capture_output=True, text=True, check=True, timeout=60,
        ).stdout  # fmt: skip


@contextmanager
def running(database_url: str, *, apart: bool = True, shown: bool = False) -> Generator[Running]:
    """The app, serving; with `apart` its jobs run in a process of their own."""
    with receiving() as receiver, ExitStack() as ending:
        port = free_port()
        environment = {
            "DATABASE_URL": database_url,
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",  # milliseconds; five seconds by default
            "RUN_JOBS": "no" if apart else "yes",
        }
        processes: list[Process] = []

        def start(command: list[str], name: str) -> None:
            processes.append(Process(command, environment, name, shown))
            ending.callback(processes[-1].stop)

        start(["uvicorn", "examples.tracing.app:app", "--port", str(port), "--log-level", "warning"], "web")
        url = f"http://127.0.0.1:{port}"
        until(lambda: processes[0].lives() and _answers(url), "the app serves")
        if apart:
            start(["fastjobs", "run", "examples.tracing.app:q"], "worker")
            until(lambda: processes[1].lives() and _runs(processes[1]), "the worker runs jobs")
        yield Running(url, receiver, processes, environment)


def _runs(worker: Process) -> bool:
    return any("fastjobs: running" in line for line in worker.lines)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/openapi.json", timeout=5).is_success
    except httpx.TransportError:
        return False


def show(database_url: str) -> None:
    """The whole of it, on this database, which is new."""
    heading("A web process that only pushes, a worker process, and a receiver of OTLP")
    with running(database_url, shown=True) as app:
        say(f"spans are received at {app.receiver.url}")
        heading("Ada registers: the mail server refuses her mail once")
        job = app.post("/register", "ada@example.org", "req-ada")
        trace = app.trace_of("req-ada")
        spans = app.receiver.wait_for(trace, WELCOMED)
        print(f"\n{waterfall(spans)}", flush=True)
        expect({each.service for each in spans} == {"web", "worker"}, "one trace goes through both processes")
        runs = [each for each in spans if each.name == "process welcome-mail"]
        (send,) = [each for each in spans if each.name == "send welcome-mail"]
        expect(all(each.parent_id == send.span_id for each in runs), "both runs are children of the push")
        expect(
            [each.failed for each in runs] == [True, False],
            "the first attempt failed, the second one is done",
        )
        expect(
            all(each.attributes.get("messaging.message.id") == job for each in runs), f"both are of job {job}"
        )
        heading("What happened to request req-ada? Its log lines, from both processes")
        for line in _lines(app, "req-ada"):
            say(line)
        expect(
            all(trace in line for line in _lines(app, "req-ada") if "job -" not in line), "they say its trace"
        )
        heading("Nobody registers at an address that isn't there: the job fails for good")
        failed = app.post("/register", "nobody@nowhere.example", "req-nobody")
        lost = app.trace_of("req-nobody")
        app.receiver.wait_for(lost, WELCOMED)
        until(lambda: any("failed for good" in line for line in app.lines), "the job has failed")
        told = app.command("jobs", "examples.tracing.app:q", "show", failed)
        print(told, flush=True)
        expect("req-nobody" in told and lost in told, "the failed job says its request and its trace")


def _lines(app: Running, request_id: str) -> list[str]:
    return [each for each in app.lines if request_id in each]


def main() -> int:
    """Shows it on a new SQLite file; answers the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            show(f"sqlite+aiosqlite:///{Path(folder) / 'app.db'}")
        except Unexpected as unexpected:
            print(f"not as expected: {unexpected}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
