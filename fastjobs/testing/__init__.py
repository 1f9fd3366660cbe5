"""For tests: a clock that they move."""

from __future__ import annotations

from fastjobs.testing.clock import Clock

__all__ = ["Clock"]
