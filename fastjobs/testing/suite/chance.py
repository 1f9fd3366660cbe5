"""Choices of the suite's races and histories: the same ones each time, from a clock's seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from fastjobs.testing.clock import Clock

T = TypeVar("T")


class Chance:
    """As `random.Random`, with what the suite needs of it."""

    def __init__(self, seed: int) -> None:
        self.random = Clock(seed=seed).random

    def randint(self, least: int, most: int) -> int:
        return least + int(self.random() * (most - least + 1))

    def choice(self, among: Sequence[T]) -> T:
        return among[int(self.random() * len(among))]

    def sample(self, among: Sequence[T], count: int) -> list[T]:
        """So many of them, in any order."""
        left = list(among)
        return [left.pop(int(self.random() * len(left))) for _ in range(count)]
