"""Three processes on one store, in a hundred storms: no promise is broken in any, and each fault put in is found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.fleet.mutants import MUTANTS, Mutant
from tests.fleet.world import (
    BUSY,
    CALM,
    CANCELS,
    DEPLOYS,
    FAILING,
    FROZEN,
    LIMITED,
    TIMELY,
    Focus,
    play,
    swept,
)

SEEDS = 100
TOGETHER = 10
ENOUGH = 80
"""A fault is found within so many runs."""


@pytest.fixture(autouse=True, scope="module")
def remains_swept() -> Generator[None]:
    with swept():
        yield


@pytest.mark.parametrize("first", range(0, SEEDS, TOGETHER))
def test_no_promise_is_broken_whatever_dies_freezes_or_fails(first: int) -> None:
    totals: Counter[str] = Counter()
    for seed in range(first, first + TOGETHER):
        played = play(seed)
        told = "\n".join(played.trace[-60:])
        assert not played.broken, (
            f"{told}\n{played.broken}\nseed {seed}; again, in full: python -m tests.fleet --seed {seed}"
        )
        totals.update(played.counts)
    # A storm that hit nobody would prove nothing.
    assert min(totals.values()) > 0, totals
    assert totals["jobs"] > 30 * TOGETHER


@pytest.mark.parametrize(
    "focus",
    [BUSY, CALM, CANCELS, DEPLOYS, FAILING, FROZEN, LIMITED, TIMELY],
    ids=["busy", "calm", "cancels", "deploys", "failing", "frozen", "limited", "timely"],
)
def test_nothing_is_found_where_no_fault_is_put_in(focus: Focus) -> None:
    assert [play(seed, focus).broken for seed in range(3)] == [[]] * 3


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_fault_that_is_put_in_is_found(mutant: Mutant) -> None:
    for seed in range(ENOUGH):
        with mutant():
            if play(seed, MUTANTS[mutant]).broken:
                return
    pytest.fail(f"{mutant.__doc__} And none of {ENOUGH} runs showed it")


def test_a_seed_plays_the_same_run_in_every_process() -> None:
    ours = play(3).trace
    script = "from tests.fleet.world import play; print('\\n'.join(play(3).trace))"
    for hashed in ("1", "2"):
        theirs = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hashed, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
            timeout=50,
        )
        assert theirs.stdout.splitlines() == ours


def test_another_seed_plays_another_run() -> None:
    assert play(4).trace != play(5).trace
