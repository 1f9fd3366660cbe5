"""How a table of contestants is described, run round by round, and printed."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Found = dict[str, Any]
ROOT = Path(__file__).parent.parent.parent


class NotRun(Exception):
    """A contestant that can't run here, and why."""


@dataclass(frozen=True)
class Row:
    name: str
    count: int
    title: str
    command: tuple[str, str]
    """Its module and its name there: `python -m MODULE NAME COUNT PLACE` prints what it found, a line of JSON."""
    python: Callable[[], str] = field(default=lambda: sys.executable)
    """What runs it. It raises NotRun where there is none."""
    optional: bool = False
    """True for others' queues: one that fails is a row that says so, and the rest goes on."""
    seconds: float = 900
    """It's stopped after so long."""


@dataclass(frozen=True)
class Ratio:
    """One contestant's figure by another's, within each round."""

    key: str
    one: str
    other: str
    words: str
    beside: tuple[str, str] | None = None
    """Two whose ratio, of the same figure, divides this one."""
    less: bool = False
    """The difference instead of the ratio."""


@dataclass(frozen=True)
class Table:
    title: str
    rows: tuple[Row, ...]
    columns: tuple[tuple[str, str, str], ...]
    """What is found, its column's title, and how it's written."""
    ratios: tuple[Ratio, ...] = ()
    rounds: int | None = None


@dataclass(frozen=True)
class Ground:
    """Where contestants run: `about` says what it is, and `place` makes an empty place, removed after one run."""

    about: str
    place: Callable[[], AbstractContextManager[str]]


RATE = ("rate", "a second", ",.0f")
CPU = ("cpu_us", "CPU µs each", ".1f")


def run(row: Row, ground: Ground, share: float) -> Found:
    """One run in a process of its own, of a share of the count."""
    python = row.python()
    with ground.place() as place:
        try:
            done = subprocess.run(
                [python, "-m", *row.command, str(scaled(row, share)), place],
                capture_output=True,
                text=True,
                check=False,
                cwd=ROOT,
                timeout=row.seconds,
            )
        except subprocess.TimeoutExpired:
            raise _failed(row, f"it took over {row.seconds:.0f} s") from None
    if done.returncode:
        raise _failed(row, done.stderr.strip() or f"it ended with {done.returncode}")
    seen: Found = json.loads(done.stdout.splitlines()[-1])
    if not seen.get("once", True):
        raise SystemExit(f"{row.name} did not run each job exactly once")
    return seen


def scaled(row: Row, share: float) -> int:
    """The row's count, or a share of it. Sixteen divides it, as some contestants are sixteen."""
    return row.count if share == 1 else max(int(row.count * share) // 16, 1) * 16


def _failed(row: Row, why: str) -> BaseException:
    if not row.optional:
        return SystemExit(f"{row.name} failed:\n{why}")
    return NotRun("not installed" if "No module named" in why else why.splitlines()[-1][:200])


def run_table(name: str, table: Table, ground: Ground, rounds: int, share: float) -> None:
    """Runs each contestant in turn, round by round, and prints the table."""
    seen: dict[str, list[Found]] = {row.name: [] for row in table.rows}
    without: dict[str, str] = {}
    rounds = min(table.rounds or rounds, rounds)
    for number in range(rounds):
        for row in table.rows:
            if row.name in without:
                continue
            try:
                seen[row.name].append(run(row, ground, share))
            except NotRun as error:
                without[row.name] = str(error)
        print(f"{name}: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    show(table, seen, without, share)


def spread(values: Sequence[float], form: str) -> str:
    """Least, median, most; one value alone."""
    if len(values) == 1:
        return format(values[0], form)
    return " / ".join(format(each, form) for each in (min(values), statistics.median(values), max(values)))


def show(table: Table, seen: dict[str, list[Found]], without: dict[str, str], share: float) -> None:
    """Prints the table, and its ratios."""
    print(f"\n| {table.title} | n | {' | '.join(title for _, title, _ in table.columns)} |")
    print("|---" * (len(table.columns) + 2) + "|")
    for row in table.rows:
        found = seen[row.name]
        cells = [
            spread([each[key] for each in found], form) if found and key in found[0] else "–"
            for key, _, form in table.columns
        ]
        title = row.title + (f" (not run: {without[row.name]})" if row.name in without else "")
        print(f"| {title} | {scaled(row, share):,} | {' | '.join(cells)} |")
    print()
    for ratio in table.ratios:
        pairs = [each for each in _ratios(ratio, seen) if each is not None]
        if pairs:
            print(f"fastjobs: {spread(pairs, '.2f')} {ratio.words}")
    sys.stdout.flush()


def _ratios(ratio: Ratio, seen: dict[str, list[Found]]) -> list[float | None]:
    names = (ratio.one, ratio.other, *(ratio.beside or ()))
    answers: list[float | None] = []
    for found in zip(*(seen[name] for name in names), strict=False):
        figures = [each.get(ratio.key) for each in found]
        if None in figures or 0 in figures[1:]:
            answers.append(None)
        elif ratio.less:
            answers.append(figures[0] - figures[1])
        elif ratio.beside is None:
            answers.append(figures[0] / figures[1])
        else:
            answers.append(figures[0] / figures[1] / (figures[2] / figures[3]))
    return answers
