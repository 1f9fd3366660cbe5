"""The programs of the pages on logs, metrics and what became of a request's jobs, each under a real uvicorn."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.registration.demo import free_port, until

pytestmark = pytest.mark.timeout(240)  # processes are started, on a machine with much to do

ROOT = Path(__file__).parents[2]
SNIPPETS = ROOT / "docs" / "snippets"


class Served:
    """A program that serves, its lines, and what it answers."""

    def __init__(self, program: str, folder: Path, arguments: list[str], environment: dict[str, str]) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", f"{program}:app", "--port", str(port), *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": f"{SNIPPETS}{os.pathsep}{ROOT}", "PYTHONUNBUFFERED": "1", **environment},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.lines.append(line.rstrip())

    def answers(self) -> bool:
        assert self._process.poll() is None, self.lines
        try:
            return httpx.get(f"{self.url}/openapi.json", timeout=5).is_success
        except httpx.TransportError:
            return False

    def post(self, path: str, request_id: str) -> dict[str, Any]:
        response = httpx.post(self.url + path, headers={"X-Request-ID": request_id}, timeout=20)
        answer: dict[str, Any] = response.raise_for_status().json()
        return answer

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=20).raise_for_status()

    def wait_for(self, text: str) -> None:
        until(lambda: any(text in line for line in self.lines), f"a line with {text!r}")

    def objects(self, text: str = "") -> list[dict[str, Any]]:
        """The lines that are JSON and have this text, read."""
        return [json.loads(line) for line in self.lines if line.startswith("{") and text in line]

    def one(self, text: str) -> dict[str, Any]:
        (found,) = self.objects(text)
        return found

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()


@contextlib.contextmanager
def serving(program: str, folder: Path, *arguments: str, **environment: str) -> Generator[Served]:
    served = Served(program, folder, list(arguments), environment)
    try:
        until(served.answers, f"{program} serves")
        yield served
    finally:
        served.stop()


def test_the_json_program_has_each_field_by_itself_in_all_lines_also_uvicorns(tmp_path: Path) -> None:
    with serving("json_logs", tmp_path) as served:
        job = served.post("/register", "abc-1")["job"]
        served.wait_for("a job failed for good")
        served.wait_for("POST /register")
    route, handler = served.one("registering"), served.one("to user 7")
    failed, access = served.one("a job failed for good"), served.one("POST /register")
    nothing = {"kind": None, "job": None, "attempt": None}
    its_own = {"kind": "welcome-mail", "job": job, "attempt": 1}
    assert {each["request_id"] for each in (route, handler, failed, access)} == {"abc-1"}
    for line, has in ((route, nothing), (access, nothing), (handler, its_own), (failed, its_own)):
        assert {name: line[name] for name in its_own} == has
    assert failed["err"] == "ConnectionRefusedError: the mail server is down"
    assert failed["levelname"] == "ERROR"
    assert all(line.startswith("{") for line in served.lines), served.lines


def test_the_structlog_program_binds_the_tenant_in_the_job_and_has_one_form_for_all_lines(
    tmp_path: Path,
) -> None:
    with serving("structlog_app", tmp_path) as served:
        job = served.post("/acme/register", "abc-1")["job"]
        served.wait_for("a job failed for good")
    about = {"request_id": "abc-1", "tenant": "acme", "level": "info"}
    assert served.one('"registering"') == {"event": "registering", **about}
    its_own = {"kind": "welcome-mail", "job": job, "attempt": 1}
    assert served.one('"sending"') == {"event": "sending", "user": 7, **about, **its_own}
    failed = served.one("a job failed for good")
    assert {name: failed[name] for name in its_own} == its_own
    assert (failed["request_id"], failed["level"]) == ("abc-1", "error")


def page(served: Served) -> dict[str, float]:
    lines = [each for each in served.get("/metrics").text.splitlines() if each and not each.startswith("#")]
    return {name: float(value) for name, _, value in (each.rpartition(" ") for each in lines)}


def test_the_metrics_program_tells_of_its_runs_and_of_the_store_at_the_first_scrape(tmp_path: Path) -> None:
    with serving("metrics", tmp_path) as served:
        assert page(served)['fastjobs_jobs_waiting{kind="welcome-mail"}'] == 0
        served.post("/register", "abc-1")
        until(lambda: page(served).get(DONE) == 1, "the run is counted")
        assert page(served)['fastjobs_pushed_total{kind="welcome-mail"}'] == 1


DONE = 'fastjobs_runs_total{kind="welcome-mail",outcome="done"}'


def test_the_metrics_program_with_several_workers_tells_at_each_of_what_all_have_done(tmp_path: Path) -> None:
    kept = tmp_path / "prometheus"
    kept.mkdir()
    with serving("metrics", tmp_path, "--workers", "2", PROMETHEUS_MULTIPROC_DIR=str(kept)) as served:
        pushed = itertools.count(1)
        last = 0

        def both_have_worked() -> bool:
            # One of them may have started long before the other.
            nonlocal last
            last = next(pushed)
            served.post("/register", f"abc-{last}")
            return len({each.name.rpartition("_")[2] for each in kept.glob("*.db")}) >= 2

        until(both_have_worked, "both processes count")
        until(lambda: page(served).get(DONE) == last, "all runs are counted")
        for _ in range(6):  # whichever worker answers
            found = page(served)
            assert found[DONE] == last
            assert found['fastjobs_pushed_total{kind="welcome-mail"}'] == last
            assert found['fastjobs_jobs_waiting{kind="welcome-mail"}'] == 0


def test_the_opentelemetry_program_exports_the_metrics(tmp_path: Path) -> None:
    with serving("otel_metrics", tmp_path, OTEL_METRIC_EXPORT_INTERVAL="200") as served:
        served.post("/register", "abc-1")
        served.wait_for("messaging.process.duration")
        served.wait_for("fastjobs.jobs.waiting")
    names = set(re.findall(r'"name": "([a-z_.]+)"', "\n".join(served.lines)))
    assert {"fastjobs.runs", "fastjobs.waited", "messaging.client.sent.messages"} <= names
    assert {f"fastjobs.jobs.{each}" for each in ("waiting", "due", "held", "parked", "failed")} <= names


def test_the_support_route_tells_a_requests_failed_jobs_and_no_others(tmp_path: Path) -> None:
    with serving("what_happened", tmp_path) as served:
        job = served.post("/register", "abc-1")["job"]
        served.post("/register", "abc-10")
        until(lambda: bool(served.get("/support/requests/abc-10").json()), "both have failed")
        until(lambda: bool(served.get("/support/requests/abc-1").json()), "both have failed")
        (told,) = served.get("/support/requests/abc-1").json()
        assert served.get("/support/requests/abc-2").json() == []
    assert (told["job"], told["kind"]) == (job, "welcome-mail")
    assert told["error"] == "ConnectionRefusedError: the mail server is down"
    assert told["why"].startswith("it failed for good at")


@pytest.mark.parametrize(
    "program", ["json_logs", "structlog_app", "metrics", "otel_metrics", "what_happened"]
)
def test_the_program_is_imported_with_no_effect_but_on_its_own_process(program: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import {program}"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": f"{SNIPPETS}{os.pathsep}{ROOT}"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
    assert list(tmp_path.iterdir()) == []
