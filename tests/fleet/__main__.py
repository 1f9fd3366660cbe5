"""`python -m tests.fleet --seeds 5000`: plays so many runs; `--seed N` plays one again, and prints what happened.

It exits 1 where a promise was broken. With `--mutant` a fault is put in on purpose, to see that it's found.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.fleet.mutants import MUTANTS
from tests.fleet.world import Played, play, swept

_TOGETHER = 25
"""How many runs a process plays at a time."""
_TOLD = 60
"""How many lines of its trace a failure prints."""
_BY_NAME = {each.__name__: each for each in MUTANTS}


def _play_some(seeds: range, mutant: str | None) -> list[Played]:
    with swept():
        return [_play(seed, mutant) for seed in seeds]


def _play(seed: int, mutant: str | None) -> Played:
    if mutant is None:
        return play(seed)
    made = _BY_NAME[mutant]
    with made():
        return play(seed, MUTANTS[made])


def main(given: Sequence[str] | None = None) -> int:
    """Plays what it's asked to, and answers the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fleet", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many runs (1000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--seed", type=int, help="play this one alone, and print its trace")
    parser.add_argument("--processes", type=int, default=2, help="how many play at once (2)")
    parser.add_argument("--mutant", choices=sorted(_BY_NAME), help="a fault that is put in on purpose")
    asked = parser.parse_args(given)
    if asked.seed is not None:
        played = _play(asked.seed, asked.mutant)
        print("\n".join(played.trace))
        print(f"seed {played.seed}: {_in_words(played)}")
        return bool(played.broken)
    began = time.monotonic()
    totals: Counter[str] = Counter()
    failed = 0
    last = asked.first + asked.seeds
    some = [range(at, min(at + _TOGETHER, last)) for at in range(asked.first, last, _TOGETHER)]
    with ProcessPoolExecutor(asked.processes) as pool:
        for group in pool.map(partial(_play_some, mutant=asked.mutant), some):
            for played in group:
                totals.update(played.counts)
                if played.broken:
                    failed += 1
                    print("\n".join(played.trace[-_TOLD:]))
                    print(f"seed {played.seed}: {_in_words(played)}\n", flush=True)
    said = ", ".join(f"{count:,} {what}" for what, count in totals.items())
    print(f"{asked.seeds:,} runs in {time.monotonic() - began:.0f} s: {said}")
    print(f"{failed:,} broke a promise" if failed else "every promise held")
    return bool(failed)


def _in_words(played: Played) -> str:
    return "; ".join(played.broken) or "every promise held"


if __name__ == "__main__":
    sys.exit(main())
