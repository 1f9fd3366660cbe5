"""What `make demo` runs: the registration app under uvicorn, its mail server down at first, and a kill -9.

Everything is real: HTTP to the app, SMTP from it, SIGKILL to its process. Each step says what it expects and checks
it; the exit code is 0 where all was so. In a terminal the app serves on until Ctrl-C.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 30.0
"""How many seconds anything that is waited for may take."""
COLOURS = sys.stdout.isatty() and "NO_COLOR" not in os.environ


class Unexpected(Exception):
    """Something wasn't as the demo says."""


# --- what is printed ----------------------------------------------------------------------------------------------


def coloured(code: str, text: str) -> str:
    return f"\033[{code}m{text}\033[0m" if COLOURS else text


def heading(text: str) -> None:
    print(f"\n{coloured('1;36', f'== {text}')}", flush=True)


def say(text: str) -> None:
    print(f"   {text}", flush=True)


def good(text: str) -> None:
    print(f"   {coloured('32', 'ok')} {text}", flush=True)


def expect(so: bool, text: str) -> None:
    if not so:
        raise Unexpected(text)
    good(text)


# --- the mail server ----------------------------------------------------------------------------------------------


class Inbox:
    """A mail server's handler: keeps what it gets, and knows nobody at nowhere.example."""

    def __init__(self) -> None:
        self.mails: list[Message] = []

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address.endswith("@nowhere.example"):
            return "550 no such user here"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        content = envelope.content
        mail = message_from_bytes(content if isinstance(content, bytes) else str(content).encode())
        self.mails.append(mail)
        text = str(mail.get_payload()).strip()
        print(coloured("33", f"   mail | to {mail['To']}, {mail['Message-ID']}: {text}"), flush=True)
        return "250 OK"

    def addresses(self) -> list[str]:
        return sorted(str(mail["To"]) for mail in self.mails)


# --- the app's process --------------------------------------------------------------------------------------------


class App:
    """The app under uvicorn, in a process of its own, whose lines are printed as they come."""

    def __init__(self, port: int, environment: dict[str, str]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.lines: list[str] = []
        command = [sys.executable, "-m", "uvicorn", "examples.registration.app:app", "--port", str(port)]
        self.process = subprocess.Popen(
            [*command, "--log-level", "warning"],
            cwd=ROOT,
            env={**os.environ, **environment, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # a Ctrl-C is the demo's, which then stops the app
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.lines.append(line.rstrip())
                print(coloured("2", f"   app  | {line.rstrip()}"), flush=True)

    def wait_until_it_serves(self) -> None:
        until(lambda: self.lives() and self.answers(), "the app serves")

    def lives(self) -> bool:
        if self.process.poll() is not None:
            raise Unexpected(f"the app has ended with {self.process.returncode}")
        return True

    def answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/people", timeout=5).is_success
        except httpx.TransportError:
            return False

    def wait_for(self, pattern: str, times: int = 1) -> None:
        until(
            lambda: self.lives() and sum(bool(re.search(pattern, line)) for line in self.lines) >= times,
            f"a line with {pattern!r}",
        )

    def get(self, path: str) -> Any:
        return httpx.get(self.url + path, timeout=10).raise_for_status().json()

    def post(self, path: str, **body: object) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=10)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def stop(self) -> None:
        """Stops it as a supervisor does: SIGTERM, and SIGKILL where that isn't heard."""
        self.process.terminate()
        try:
            self.process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()


def until(so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not so():
        if time.monotonic() > end:
            raise Unexpected(f"waited {PATIENCE:g} s in vain: {what}")
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextlib.contextmanager
def mail_server(inbox: Inbox, port: int) -> Generator[None]:
    controller = Controller(inbox, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield
    finally:
        controller.stop()


# --- what is shown ------------------------------------------------------------------------------------------------


def show(database_url: str, ending: contextlib.ExitStack) -> App:
    """The whole of it, on this database, which is new; answers the app, which serves on until `ending` ends."""
    port, smtp_port = free_port(), free_port()
    environment = {"DATABASE_URL": database_url, "SMTP_PORT": str(smtp_port)}
    inbox = Inbox()

    heading("1. An app with jobs in its own database; its mail server is down")
    app = App(port, environment)
    ending.callback(lambda: app.stop())
    app.wait_until_it_serves()
    good(f"it serves at {app.url}, its people and its jobs are in one database")

    heading("2. Two people register; each registration and its welcome mail are one transaction")
    requests: list[str] = []
    for name, email in (("Ada", "ada@example.org"), ("Grace", "grace@example.org")):
        response = app.post("/register", name=name, email=email)
        requests.append(response.headers.get("x-request-id", "none"))
        said = f"POST /register {name}: {response.status_code} {response.text}"
        expect(response.status_code == 200, f"{said}, request {requests[-1]}")

    heading(
        "3. Mallory's card is declined after the mail was pushed: she and the mail are rolled back together"
    )
    response = app.post("/register", name="Mallory", email="mallory@example.org", card="stolen")
    expect(response.status_code == 402, f"POST /register Mallory: {response.status_code} {response.text}")
    names = [person["name"] for person in app.get("/people")]
    expect(names == ["Ada", "Grace"], f"GET /people: {', '.join(names)}")

    heading("4. The mail server refuses connections, so the jobs are retried")
    app.wait_for("will run again.*kind=welcome-mail", times=4)
    retried = [line for line in app.lines if "will run again" in line]
    ids = {id for id in requests if any(f"request_id={id}" in line for line in retried)}
    expect(ids == set(requests), "the lines have the IDs of the requests that pushed the jobs")

    heading("5. The mail server comes up, and the mails are sent")
    ending.enter_context(mail_server(inbox, smtp_port))
    until(lambda: all(person["welcomed"] for person in app.get("/people")), "both are welcomed")
    expect(
        inbox.addresses() == ["ada@example.org", "grace@example.org"], "one mail each, and none to Mallory"
    )

    heading("6. An address that isn't there: trying again won't mend it, so the job fails at once")
    app.post("/register", name="Nobody", email="nobody@nowhere.example")
    app.wait_for("has no welcome mail, tell support")
    good("its on_fail has run")

    heading("7. kill -9 in the middle of a job")
    id = app.post("/reports").json()["id"]
    app.wait_for(f"report {id}: attempt 1, step 2")
    app.kill()
    good(f"the app's process was killed at step 2 of 4 ({app.process.returncode})")

    heading("8. The app starts again; what held the job is gone in three seconds, and it runs again")
    app = App(port, environment)
    app.wait_until_it_serves()
    until(lambda: app.get(f"/reports/{id}")["finished_at_attempt"] is not None, "the report is done")
    attempt = app.get(f"/reports/{id}")["finished_at_attempt"]
    expect(attempt == 2, f"the report is done, at attempt {attempt}")
    expect(len(inbox.mails) == 2, "and no mail was sent twice")
    return app


def told_to_end(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(1)


def main() -> int:
    for ending_signal in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending_signal, told_to_end)
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="fastjobs-demo-") as folder, contextlib.ExitStack() as ending:
            app = show(f"sqlite+aiosqlite:///{folder}/app.db", ending)
            heading(f"All of it was so, in {time.monotonic() - began:.0f} s")
            if sys.stdin.isatty() and sys.stdout.isatty():
                say(f"The app serves on at {app.url}/docs until Ctrl-C")
                app.process.wait()
            say("Stopping the app: it gives its jobs their grace")
    except KeyboardInterrupt:
        print("\n   stopped", flush=True)
    except Unexpected as wrong:
        print(f"\n   {coloured('1;31', 'NOT SO')} {wrong}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
