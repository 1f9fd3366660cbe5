"""Apps in folders of their own, and the processes that run them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.process import Process
from tests.cli.shop import MODULE, Shop

Run = Callable[..., Process]

HEAD = """
import asyncio, contextlib, logging, os, pathlib, signal, sys, threading, time
import fastjobs
q = fastjobs.Queue(fastjobs.Memory(), grace=0.5)
def say(text):
    print(text, flush=True)
def push(kind):  # the store is in this process's memory
    asyncio.run(kind.push())
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Starts `fastjobs run main:q`, or other words, beside a main.py of this text, and kills what is left of it."""
    begun: list[Process] = []

    def start(text: str, *words: str, **environment: str) -> Process:
        (tmp_path / "main.py").write_text(HEAD + text)
        begun.append(Process(tmp_path, *(words or ("run", "main:q")), **environment))
        return begun[-1]

    yield start
    for each in begun:
        each.kill()


@pytest.fixture
def shop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Shop]:
    """An app on SQLite in the current folder, named by FASTJOBS_QUEUE too, and what is typed there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("FASTJOBS_QUEUE", f"{MODULE}:q")
    yield Shop(tmp_path, monkeypatch, capsys)
    sys.modules.pop(MODULE, None)
