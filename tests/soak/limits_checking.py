"""Checks what processes that hammered all limits wrote down: was any limit passed, was anything lost or kept too long.

A claim holds from the moment that its process had the answer, to the moment before its end was asked, or to the end of
its hold: a little less than in truth, so what overlaps did overlap. Rates go by the store's own times.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from fastjobs.core.duration import SECOND
from tests.soak.checking import FAILED, Violation, held_twice, late
from tests.soak.history import Claim, Fault
from tests.soak.indexed import Indexed
from tests.soak.limits_kinds import ALONE, AT_ONCE, FIRST, POLL, RATES, UNIQUE
from tests.soak.recording import SUFFIX, lines

_KEPT = 10 * SECOND
"""How long a store keeps places for whoever took them, before it's told what became of them."""
MORE = 1.0
"""Seconds beside a hold and a poll in which what a killed process had is another's."""


@dataclass
class Told:
    """What pushers and throttles wrote down."""

    pushes: list[tuple[str, str, str, str | None, int, int]] = field(default_factory=list[Any])
    """Outcome, kind, ref, id, and the moments before and after."""
    taken: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    """When places were taken of each throttle, one each, by the store's clock."""
    errors: list[str] = field(default_factory=list[str])


def read_told(folder: Path) -> Told:
    """All that was told. A push of a process that was killed before its answer says nothing."""
    made = Told()
    for file in sorted(folder.glob(f"*{SUFFIX}")):
        asked: dict[tuple[object, object], list[int]] = defaultdict(list)
        said: list[list[Any]] = lines(file)
        for at, what, *rest in said:
            if what == "try":
                asked[rest[0], rest[1]].append(at)
            elif what == "took":
                name, key, count, until = rest
                made.taken[name, key].extend([until - _KEPT] * count)
            elif what == "error":
                made.errors.append(f"{rest[0]}: {rest[1]}")
            else:
                kind, ref, id = rest
                # Two of its tasks may push one value at once: the earlier moment is the safe one.
                made.pushes.append((what, kind, ref, id, min(asked[kind, ref]), at))
    for log in sorted(folder.glob("*.log")):
        text = log.read_text(errors="replace")
        made.errors += [line for line in text.splitlines() if "deadlock" in line.lower()]
    return made


class Spans:
    """Each claim's time, by the monotonic clock."""

    def __init__(self, of: Indexed) -> None:
        self.of = of
        self.by_kind: dict[str, list[tuple[float, float, Claim]]] = defaultdict(list)
        for claims in of.claims.values():
            for claim in claims:
                if not claim.exhausted:
                    self.by_kind[claim.kind].append((claim.at, self.end(claim), claim))

    def end(self, claim: Claim) -> float:
        """The earliest moment at which it may have let its job go."""
        hold = (claim.until - claim.now) * 1000
        until: float = claim.asked_at + hold
        end = inf
        for mark in self.of.marks.get((claim.id, claim.claim), ()):
            if not mark.ends and mark.answer in ("yes", "stop"):
                until = max(until, mark.asked_at + hold)
            elif mark.ends and mark.answer in ("yes", None):
                end = min(end, mark.asked_at)
        return min(end, until)


def most_at_once(spans: Iterable[tuple[float, float, Claim]]) -> int:
    """How many of these overlap at most."""
    edges = [edge for since, until, _ in spans if until > since for edge in ((since, 1), (until, -1))]
    count = most = 0
    for _, step in sorted(edges):
        count += step
        most = max(most, count)
    return most


def fullest(starts: Iterable[int], per: int) -> int:
    """The most of these in any time of so many microseconds; one at its very end is not in it."""
    most, first, ordered = 0, 0, sorted(starts)
    for last, at in enumerate(ordered):
        while at - ordered[first] >= per:
            first += 1
        most = max(most, last - first + 1)
    return most


def at_once(spans: Spans) -> Iterator[str]:
    """No more than so many of a kind are held at once."""
    for kind, limit in AT_ONCE.items():
        if (most := most_at_once(spans.by_kind[kind])) > limit:
            yield f"{most} of {kind!r} were held at once, and {limit} may be"


def one_at_a_time(spans: Spans) -> Iterator[str]:
    """No two of a kind and value are held at once."""
    for kind in ALONE:
        for ref in {claim.ref for _, _, claim in spans.by_kind[kind]}:
            most = most_at_once(each for each in spans.by_kind[kind] if each[2].ref == ref)
            if most > 1:
                yield f"{most} of {kind!r} and {ref!r} were held at once"


def starts_of(spans: Spans, told: Told, kind: str) -> dict[str, list[int]]:
    """When jobs of a kind with a rate started, by what they're counted under."""
    if RATES[kind].by_ref:
        return {key: starts for (name, key), starts in told.taken.items() if name == kind}
    return {"": [claim.now for _, _, claim in spans.by_kind[kind]]}


def rate(spans: Spans, told: Told) -> Iterator[str]:
    """No time of `per`, wherever it begins, has more than `most` starts."""
    for kind, (most, per, _) in RATES.items():
        for key, starts in starts_of(spans, told, kind).items():
            if (found := fullest(starts, per)) > most:
                yield f"{found} of {kind!r} {key} started within {per / 1e6:g} s, and {most} may"


def named_once(of: Indexed) -> Iterator[str]:
    """A name has one job, ever: each is kept taken for longer than the run."""
    ids: dict[str, set[str]] = defaultdict(set)
    for claim in of.history.claims:
        if claim.kind == "named":
            ids[claim.ref].add(claim.id)
    for name, its in ids.items():
        if len(its) > 1:
            yield f"{name!r} is jobs {sorted(its)}"


def lost(of: Indexed, told: Told) -> Iterator[str]:
    """What was pushed ended, what was rolled back never ran, and who was told that one waits was told the truth."""
    done = {mark.id for mark in of.history.marks if mark.what == "done" and mark.answer in ("yes", None)}
    last: dict[tuple[str, str], float] = {}
    for claim in of.history.claims:
        last[claim.kind, claim.ref] = max(last.get((claim.kind, claim.ref), 0), claim.at)
    for what, kind, ref, id, since, _ in told.pushes:
        if what == "rolled back":
            if kind in ("plain", "three", "one", "paced", "each") and (kind, ref) in last:
                yield f"{kind!r} {ref} was rolled back, and ran"
        elif id is None:
            # A name's job may have ended before; one of a key was waiting then, so it was claimed after.
            if kind in UNIQUE and last.get((kind, ref), 0) < since:
                yield f"a push of {kind!r} {ref!r} was told that one waits, and none ran after it"
        elif id not in done:
            row = of.left.get(id)
            if row is None or row.state != FAILED:
                yield f"job {id} of {kind!r} {ref!r} was {'left' if row else 'lost'}"
    for row in of.history.left:
        if row.state != FAILED:
            yield f"job {row.id} of {row.kind!r} {row.ref!r} is left in state {row.state}"


def freed(spans: Spans, kills: Iterable[Fault], hold: float) -> Iterator[tuple[float, str]]:
    """For each job that a killed process held: after how many seconds it, or the next of its value, was claimed."""
    of = spans.of
    by_ref: dict[tuple[str, str], list[float]] = defaultdict(list)
    for claim in of.history.claims:
        by_ref[claim.kind, claim.ref].append(claim.at)
    for kill in kills:
        for kind in FIRST:
            for _, end, claim in spans.by_kind[kind]:
                marks = of.marks.get((claim.id, claim.claim), ())
                if claim.process != kill.process or end <= kill.since or any(mark.ends for mark in marks):
                    continue
                if kind in ALONE:
                    nexts = [at for at in by_ref[kind, claim.ref] if at > kill.since]
                else:
                    later = of.next_of(claim)
                    nexts = [later.at] if later else []
                seconds = (min(nexts) - kill.since) / 1e9 if nexts else inf
                yield seconds, f"job {claim.id} of {kind!r} {claim.ref!r}"


def check(
    of: Indexed, told: Told, sampled: Mapping[str, int], hold: float, deadlocks: int
) -> tuple[list[Violation], dict[str, object]]:
    """What was broken, and what there was to see."""
    spans = Spans(of)
    found = [Violation("at once", what) for what in at_once(spans)]
    found += [Violation("one at a time", what) for what in one_at_a_time(spans)]
    found += [Violation("rate", what) for what in rate(spans, told)]
    found += [
        Violation("unique", f"{count} waited of {what}") for what, count in sampled.items() if count > 1
    ]
    found += [Violation("named once", what) for what in named_once(of)]
    found += [Violation("lost", what) for what in lost(of, told)]
    found += [Violation("held twice", what) for what in held_twice(of)]
    found += [Violation("late mark kept", what) for what in late(of)]
    found += [Violation("error", what) for what in told.errors]
    if deadlocks:
        found.append(Violation("deadlock", f"the server broke {deadlocks}"))
    after = list(freed(spans, of.history.faults, hold))
    bound = hold + POLL + MORE
    found += [
        Violation("freed late", f"{what} came {seconds:.2f} s after the kill")
        for seconds, what in after
        if seconds > bound
    ]
    outcomes = Counter(
        what if id or what != "pushed" else "there already" for what, _, _, id, _, _ in told.pushes
    )
    rates = {
        kind: max(
            (fullest(each, RATES[kind].per) for each in starts_of(spans, told, kind).values()), default=0
        )
        for kind in RATES
    }
    return found, {
        "pushes": json.dumps(outcomes),
        "claims": json.dumps(Counter(claim.kind for claim in of.history.claims)),
        "marks": json.dumps(Counter(mark.answer for mark in of.history.marks)),
        "most at once": json.dumps({kind: most_at_once(spans.by_kind[kind]) for kind in AT_ONCE}),
        "most in a rate's time": json.dumps(rates),
        "kills": len(of.history.faults),
        "held by the killed": len(after),
        "freed after": f"{max((seconds for seconds, _ in after), default=0):.2f} s at most, {bound:g} may be",
        "deadlocks": deadlocks,
    }
