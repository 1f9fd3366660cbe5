"""Loads a page's program as a module, as from the folder that a test is in."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from sqlalchemy import MetaData
from sqlalchemy.orm import registry
from sqlmodel import SQLModel

ROOT = Path(__file__).parent.parent.parent
SNIPPETS = ROOT / "docs" / "snippets"


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program `docs/snippets/<name>.py`, anew, and forgotten at the test's end.

    Its tables are in a MetaData of its own: several programs have a `User`.
    """
    monkeypatch.setattr(SQLModel, "metadata", MetaData())
    monkeypatch.setattr(SQLModel, "_sa_registry", registry())
    spec = importlib.util.spec_from_file_location(f"snippet_{Path(name).name}", SNIPPETS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module
