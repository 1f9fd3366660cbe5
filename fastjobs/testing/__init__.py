"""For tests of apps and of stores.

`with q.testing() as jobs:` gives a test the `Jobs` of a queue, and `Clock` is a clock that tests move. `StoreSuite`
checks a store's promises and `fixtures` makes pytest fixtures: these two need pytest, and nothing else does.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from fastjobs.testing.clock import Clock
from fastjobs.testing.kit import Jobs
from fastjobs.testing.pushed import Pushed

if TYPE_CHECKING:
    from fastjobs.testing import fixtures
    from fastjobs.testing.suite import StoreSuite

if sys.modules.get("pytest") is not None:
    # The suite's asserts say what they found only if pytest rewrites them, which it does of itself for tests alone.
    import pytest

    pytest.register_assert_rewrite("fastjobs.testing.suite")

__all__ = ["Clock", "Jobs", "Pushed", "StoreSuite", "fixtures"]

_DOORS = {"StoreSuite": "fastjobs.testing.suite", "fixtures": "fastjobs.testing.fixtures"}


def __getattr__(name: str) -> object:
    if name not in _DOORS:
        raise AttributeError(f"module 'fastjobs.testing' has no attribute {name!r}")
    try:
        module = importlib.import_module(_DOORS[name])
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] == "fastjobs":
            raise
        raise ImportError(
            f"fastjobs.testing.{name} needs {missing.name}, which isn't installed: pip install {missing.name}",
            name=missing.name,
        ) from missing
    found: object = getattr(module, name, module)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
