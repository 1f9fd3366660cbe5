"""For tests of apps and of stores: a clock that they move, and the suite that checks a store's promises.

It needs pytest; nothing else of fastjobs imports it.
"""

from __future__ import annotations

import pytest

# The suite's asserts say what they found only if pytest rewrites them, which it does of itself for tests alone.
pytest.register_assert_rewrite("fastjobs.testing.suite")

from fastjobs.testing.clock import Clock  # noqa: E402
from fastjobs.testing.suite import StoreSuite  # noqa: E402

__all__ = ["Clock", "StoreSuite"]
