"""The files of the pages about deploying: they parse, name what the app has, and kill nothing before its time."""

from __future__ import annotations

import ast
import configparser
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient

from fastjobs.cli.command import main as fastjobs_command
from tests.docs.programs import ROOT, SNIPPETS, load

FILES = SNIPPETS / "deploying"
GRACE = 10
"""The app's own, and a second is the queue's."""
REQUESTS = 15
WEB = [
    "uvicorn",
    "main:app",
    "--host",
    "HOST",
    "--port",
    "8000",
    "--timeout-graceful-shutdown",
    str(REQUESTS),
]
JOBS = ["fastjobs", "run", "main:q", "--workers", "8"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the app's file of SQLite comes to be."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def hosted(command: list[str]) -> list[str]:
    return [{"127.0.0.1": "HOST", "0.0.0.0": "HOST"}.get(word, word) for word in command]


class Unit(configparser.ConfigParser):
    def optionxform(self, optionstr: str) -> str:
        return optionstr  # systemd's words have capitals


def unit(name: str) -> Unit:
    parsed = Unit(strict=False, interpolation=None)
    parsed.read(FILES / name)
    return parsed


@pytest.mark.parametrize(
    ("name", "command", "least"),
    [("shop.service", WEB, REQUESTS + GRACE + 1), ("shop-jobs.service", JOBS, GRACE + 1)],
)
def test_a_unit_stops_in_order_before_it_is_killed(
    name: str, command: list[str], least: int, folder: Path
) -> None:
    service = unit(name)["Service"]
    program, *words = service["ExecStart"].split()
    assert hosted([program.rpartition("/")[2], *words]) == command
    assert int(service["TimeoutStopSec"]) > least
    assert (service["KillMode"], service["Restart"]) == ("mixed", "always")
    assert unit(name)["Unit"]["StartLimitIntervalSec"] == "0"
    if analyze := shutil.which("systemd-analyze"):
        copy = folder / name
        copy.write_text((FILES / name).read_text().replace(program, shutil.which("true") or "/bin/true"))
        verified = subprocess.run([analyze, "verify", copy], capture_output=True, text=True, timeout=50)
        assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


def test_the_image_runs_the_server_itself_and_no_shell() -> None:
    lines = (FILES / "Dockerfile").read_text().splitlines()
    (command,) = (line.removeprefix("CMD ") for line in lines if line.startswith("CMD "))
    assert hosted(json.loads(command)) == WEB
    assert any(line.startswith("USER ") for line in lines)


def test_compose_waits_for_requests_and_jobs() -> None:
    services: dict[str, Any] = yaml.safe_load((FILES / "compose.yaml").read_text())["services"]
    assert services["jobs"]["command"] == JOBS
    assert services["jobs"]["environment"] == services["web"]["environment"]
    assert seconds(services["web"]["stop_grace_period"]) > REQUESTS + GRACE + 1
    assert seconds(services["jobs"]["stop_grace_period"]) > GRACE + 1
    assert all(
        services[name]["depends_on"]["db"]["condition"] == "service_healthy" for name in ("web", "jobs")
    )
    ast.parse(services["web"]["healthcheck"]["test"][-1])
    assert "/ready" in services["web"]["healthcheck"]["test"][-1]


def seconds(text: str) -> int:
    found = re.fullmatch(r"(\d+)s", text)
    assert found is not None
    return int(found[1])


def test_kubernetes_waits_for_requests_and_jobs_and_asks_for_readiness_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    documents: list[dict[str, Any]] = list(yaml.safe_load_all((FILES / "kubernetes.yaml").read_text()))
    pods = {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in documents}
    web, jobs = pods["shop"], pods["shop-jobs"]
    (container,) = web["containers"]
    before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert web["terminationGracePeriodSeconds"] > before + REQUESTS + GRACE + 1
    assert jobs["terminationGracePeriodSeconds"] > GRACE + 1
    assert hosted(container["args"]) == WEB
    assert jobs["containers"][0]["args"] == JOBS
    module = load("deploying/main", monkeypatch)
    routes = {route.path for route in module.app.routes}
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert {container[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe")} <= routes
    for each in documents:
        if each["kind"] == "Deployment":
            assert each["spec"]["selector"]["matchLabels"] == each["spec"]["template"]["metadata"]["labels"]


def test_gunicorn_waits_for_requests_and_jobs() -> None:
    settings: dict[str, Any] = {}
    exec((FILES / "gunicorn.conf.py").read_text(), settings)
    assert settings["graceful_timeout"] > REQUESTS + GRACE + 1
    assert settings["worker_class"] == "uvicorn_worker.UvicornWorker"


def test_the_commands_of_the_pages_are_ones_that_fastjobs_has(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each page's `fastjobs …` on a line of its own is understood: what it says of a wrong one isn't said."""
    text = "\n".join(page.read_text() for page in (ROOT / "docs" / "deploying").glob("*.md"))
    blocks: list[str] = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`(fastjobs [^`\n]*)`", text)
    found = {line.split("|")[0].strip() for line in lines if line.startswith("fastjobs ")}
    assert "fastjobs run main:q --workers 8" in found
    for line in found:
        words = line.split()[1:]
        with pytest.raises(SystemExit) as ended:
            fastjobs_command([*words, "--help"])
        assert ended.value.code == 0, line


def test_the_app_is_ready_while_its_queue_is_well_and_alive_in_any_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHOP_WORKERS", "2")
    module = load("deploying/main", monkeypatch)
    assert (module.q.workers, module.q.grace) == (2, GRACE)
    with TestClient(module.app) as client:
        assert client.get("/ready").status_code == 200
        assert client.get("/live").json() == {"alive": True}
    stopped = TestClient(module.app)
    assert stopped.get("/ready").status_code == 503
    assert stopped.get("/live").status_code == 200
