"""Counts what a history came to, for the table that a run prints."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tests.soak.checking import FAILED, cause, outage_lines, returns
from tests.soak.history import History
from tests.soak.indexed import Indexed


class Counts(NamedTuple):
    """What a run came to."""

    acked: int
    rolled_back: int
    unanswered: int
    refused: int
    unanswered_kept: int
    """Of those without an answer, how many were kept all the same."""
    claims: int
    runs: int
    done: int
    failed: int
    faults: Counter[str]
    repeats: Counter[str]
    """By their cause."""
    late_ends: int
    """Ends of a claim that another had followed, all ignored."""
    late_renewals: int
    outages: Counter[str]
    connections_met: int
    returns: list[float]
    """Seconds from each return of the server to the first claim."""
    returns_each: list[float]
    """As `returns`, for each process that was up and unharmed."""
    most_lines: int
    """The most lines that one process has logged of one outage."""


def count(history: History) -> Counts:
    """The numbers for the table."""
    of = Indexed(history)
    outcomes = Counter("rolled back" if push.doomed else push.outcome for push in history.pushes)
    followed = {(first.id, first.claim) for first, _ in of.pairs()}
    late = Counter(
        mark.ends for mark in history.marks if mark.answer == "lost" and (mark.id, mark.claim) in followed
    )
    return Counts(
        acked=outcomes["acked"],
        rolled_back=outcomes["rolled back"],
        unanswered=outcomes[None],
        refused=outcomes["refused"],
        unanswered_kept=sum(push.outcome is None and push.ref in of.ids for push in history.pushes),
        claims=sum(not claim.exhausted for claim in history.claims),
        runs=len(history.starts),
        done=len({mark.id for mark in history.marks if mark.what == "done" and mark.answer == "yes"}),
        failed=sum(row.state == FAILED for row in history.left),
        faults=Counter(fault.what for fault in history.faults),
        repeats=Counter(cause(of, first, second) or "none" for first, second in of.pairs()),
        late_ends=late[True],
        late_renewals=late[False],
        outages=Counter(outage.what for outage in history.outages),
        connections_met=sum(outage.hit for outage in history.outages),
        returns=sorted(after for _, after in returns(of) if after is not None),
        returns_each=sorted(_returns_each(of)),
        most_lines=max(outage_lines(of).values(), default=0),
    )


def _returns_each(of: Indexed) -> Iterator[float]:
    window = (of.history.poll + 1) * 1e9
    looks: dict[str, list[int]] = defaultdict(list)
    for look in of.history.looks:
        looks[look.process].append(look.at)
    for outage, _ in returns(of):
        for process in of.history.ups:
            after = [at for at in looks[process] if at >= outage.until]
            if after and of.could_work(process, outage.since, outage.until + window):
                yield (min(after) - outage.until) / 1e9
