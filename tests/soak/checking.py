"""Checks a history: what was promised of pushes, claims, marks and runs, and whether it was so.

Pure functions of what the processes wrote down and what the tables held in the end. Held twice is said of claims,
never of handlers: a process that was stopped for longer than its hold wakes and goes on. What a killed process did
last may have had its effect and no line; so an unanswered mark may have been kept, and a claim may be missing, which
its job's next claim then follows. Longer than 300 lines, as all that is promised is read in one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from math import inf
from typing import NamedTuple

from tests.soak.history import Claim, History, Outage
from tests.soak.indexed import Indexed

FAILED = 3
"""The state of a job that is kept as failed."""
AFTER_OUTAGE = 1.0
"""Seconds in which what the database's outage did may still be seen."""
MOST_LINES = 12
"""How many lines of a store that fails one process may log for one outage."""


class Violation(NamedTuple):
    """A promise that was broken."""

    rule: str
    what: str


# --- pushes -----------------------------------------------------------------------------------------------------


def lost(of: Indexed) -> Iterator[str]:
    """Each acknowledged push has its one job, which ended done or failed."""
    for push in of.history.pushes:
        if push.outcome != "acked" or push.doomed:
            continue
        id, seen = push.id or "", of.ids.get(push.ref, set())
        if seen != {id}:
            yield f"push {push.ref} was acknowledged as job {id}, and its jobs are {sorted(seen) or 'none'}"
            continue
        row = of.left.get(id)
        if row is not None and row.state != FAILED:
            yield f"job {id} of push {push.ref} is left in state {row.state}"
        elif row is None and not any(
            mark.what == "done" for claim in of.claims[id] for mark in of.ends(claim, "yes", None)
        ):
            yield f"job {id} of push {push.ref} is gone, and nothing said that it's done"


def unfounded(of: Indexed) -> Iterator[str]:
    """No job of a push that was rolled back, refused or never tried; one at most of a push without an answer."""
    pushes = {push.ref: push for push in of.history.pushes}
    for push in of.history.pushes:
        if push.doomed and push.outcome == "acked":
            yield f"push {push.ref} is in what was rolled back, and was acknowledged"
    for ref, ids in of.ids.items():
        tried = pushes.get(ref)
        if tried is None:
            yield f"jobs {sorted(ids)} are of push {ref}, which nobody tried"
        elif tried.doomed or tried.outcome in ("refused", "rolled back"):
            yield f"push {ref} was {'rolled back' if tried.doomed else 'refused'}, and is jobs {sorted(ids)}"
        elif len(ids) > 1:
            yield f"push {ref} is jobs {sorted(ids)}"
    for id, claims in of.claims.items():
        refs = {claim.ref for claim in claims} | ({of.left[id].ref} if id in of.left else set[str]())
        if len(refs) > 1:
            yield f"the id {id} was used for pushes {sorted(refs)}"


def torn(of: Indexed) -> Iterator[str]:
    """A business row and its job are there together, or neither is."""
    for push in of.history.pushes:
        if not push.in_tx:
            continue
        has_row, has_job = push.ref in of.history.orders, push.ref in of.ids
        if has_row != has_job:
            yield f"push {push.ref} has {'a row and no job' if has_row else 'a job and no row'}"
        if has_row and (push.doomed or push.outcome in ("refused", "rolled back")):
            yield f"push {push.ref} was rolled back, and its row is there"
    tried = {push.ref for push in of.history.pushes if push.in_tx}
    for ref in sorted(of.history.orders - tried):
        yield f"the row {ref} is of no push"


# --- claims and marks -------------------------------------------------------------------------------------------


def held_twice(of: Indexed) -> Iterator[str]:
    """No job is claimed before its last claim's hold was over, unless a mark ended that claim."""
    for first, second in of.pairs():
        if first.claim == second.claim:
            yield f"job {first.id} was claimed twice by token {first.claim}"
            continue
        if of.ends(first, "yes", None):
            continue
        extended = [
            mark.until
            for mark in of.marks.get((first.id, first.claim), ())
            if not mark.ends and mark.answer in ("yes", "stop")
        ]
        until = max(first.until, *extended) if extended else first.until
        now: float = second.now
        if of.history.apart is not None:
            # A server's may be made until it's answered: another, asked later, may have put the job back before.
            now += (second.at - second.asked_at) / 1000 + of.history.apart * 1e6
        if now < until:
            yield (
                f"job {first.id} was held by {first.process} (claim {first.claim}) for another"
                f" {(until - now) / 1e6:.3f} s as {second.process} claimed it (claim {second.claim})"
            )


def late(of: Indexed) -> Iterator[str]:
    """A mark of a claim that a later one followed changed nothing."""
    for first, second in of.pairs():
        for mark in of.marks.get((first.id, first.claim), ()):
            if mark.answer not in ("yes", "stop"):
                continue
            # Each mark that ends a claim moves the token on. Where the next claim's is the very next, none had.
            is_next = mark.ends and second.claim == first.claim + 1
            if mark.asked_at > second.at or is_next:
                yield (
                    f"job {first.id}: {mark.what} of claim {first.claim} by {first.process} was kept,"
                    f" though {second.process} had it by claim {second.claim}"
                )
            elif mark.what in ("done", "fail"):
                yield f"job {first.id} was claimed (claim {second.claim}) after it had ended: {mark.what}"


def marks_without_cause(of: Indexed) -> Iterator[str]:
    """A claim is ended once, by what its handler did; and a mark is lost only to a later claim or an earlier mark."""
    hows: dict[tuple[str, int], str] = {(end.id, end.claim): end.how for end in of.history.ends}
    for claim in of.history.claims:
        kept, unanswered = of.ends(claim, "yes"), of.ends(claim, None)
        if len(kept) > 1:
            yield f"job {claim.id}: claim {claim.claim} was ended {len(kept)} times"
        for mark in kept:
            how = hows.get((claim.id, claim.claim), "nothing")
            if (mark.what == "done") != (how == "ok") and mark.what != "give back":
                yield f"job {claim.id}: claim {claim.claim} is marked {mark.what} after {how}"
        if of.ends(claim, "lost") and not (kept or unanswered or of.next_of(claim)):
            yield f"job {claim.id}: the end of claim {claim.claim} was lost, and nobody else had it"


# --- runs -------------------------------------------------------------------------------------------------------


def started_twice(of: Indexed) -> Iterator[str]:
    """Each claim runs its job once, and only a claim does."""
    claimed = {(claim.id, claim.claim) for claim in of.history.claims if not claim.exhausted}
    for (id, claim), times in Counter((start.id, start.claim) for start in of.history.starts).items():
        if times > 1:
            yield f"job {id} was started {times} times by claim {claim}"
        if (id, claim) not in claimed:
            yield f"job {id} was started by claim {claim}, which isn't one"


def attempts(of: Indexed) -> Iterator[str]:
    """No job runs more often than its kind says, and it fails only at its last attempt or for good reason."""
    for claim in of.history.claims:
        most = of.history.attempts[claim.kind]
        if claim.attempts > most or (claim.exhausted and claim.attempts < most):
            said = "given up" if claim.exhausted else "claimed"
            yield f"job {claim.id} was {said} at attempt {claim.attempts} of {most}"
    for row in of.history.left:
        most, fails = of.history.attempts[row.kind], row.kind in of.history.always_fails
        if row.state == FAILED and row.attempts < most and not fails:
            yield f"job {row.id} ({row.kind}) failed at attempt {row.attempts} of {most}"
    for push in of.history.pushes:
        kinds = {claim.kind for claim in of.claims.get(push.id or "", ())}
        if push.outcome == "acked" and kinds & of.history.always_fails and push.id not in of.left:
            yield f"job {push.id} never works, and isn't kept as failed"
    for id, times in Counter(of.history.on_fails).items():
        if times > 1 or id not in of.left:
            yield f"on_fail of job {id} ran {times} times, {'' if id in of.left else 'and it has not failed'}"


def cause(of: Indexed, first: Claim, second: Claim) -> str | None:
    """Why a job was claimed again, by what is written down; None where nothing explains it."""
    own = of.faults[first.process]
    ended = {mark.what for mark in of.ends(first, "yes")}
    if "try again" in ended:
        return "retry"
    over = [fault.what for fault in own if fault.since <= second.at and fault.until >= first.asked_at]
    if "give back" in ended:
        if "stop" in over:
            return "stop"
        # It was claimed ahead, and no worker came free for it: no run of it is repeated.
        return None if (first.id, first.claim) in of.started else "not begun"
    for what in ("kill", "poison", "freeze"):
        if what in over:
            return what
    for outage in of.history.outages:
        # Its renewals and its end had no way to the database, and for a while after it neither.
        if outage.since <= second.at and outage.until + AFTER_OUTAGE * 1e9 >= first.asked_at:
            return "outage"
    for fault in of.history.faults:
        # It may have been stopped in the middle of a write, and nobody else writes then.
        if fault.what == "freeze" and fault.since <= second.at and fault.until >= first.asked_at:
            return "freeze of another"
    if of.ends(first, None):
        return "unanswered"
    return "stall" if "stall" in over else None


def repeats_without_cause(of: Indexed) -> Iterator[str]:
    """A job is claimed again only after a retry, a stop, a kill, or a process that had no time."""
    for first, second in of.pairs():
        if cause(of, first, second) is None:
            yield (
                f"job {first.id} ({first.kind}) was claimed again by {second.process} (claim {second.claim}) after"
                f" {first.process} (claim {first.claim}), and nothing says why"
            )


# --- the processes and the database ---------------------------------------------------------------------------------


def deaths(of: Indexed) -> Iterator[str]:
    """No process ends that wasn't told to."""
    for process, faults in of.faults.items():
        whats = {fault.what for fault in faults}
        if "death" in whats and "poison" not in whats:
            yield f"{process} ended by itself"


def broken(of: Indexed) -> Iterator[str]:
    """The database says that it's whole."""
    if of.history.integrity != "ok":
        yield of.history.integrity


def returns(of: Indexed) -> Iterator[tuple[Outage, float | None]]:
    """For each time that the server was gone, the seconds from its return until a claim
    was answered, and inf where none was; None where no process could ask, for it was gone or frozen itself."""
    for outage in of.history.outages:
        if outage.what not in ("restart", "crash"):
            continue
        firsts = [look.at for look in of.history.looks if look.at >= outage.until]
        after = (min(firsts) - outage.until) / 1e9 if firsts else inf
        until = outage.until + (of.history.poll + 1) * 1e9
        able = [name for name in of.history.ups if of.could_work(name, outage.since, until)]
        yield outage, after if able else None


def slow_returns(of: Indexed) -> Iterator[str]:
    """A claim is answered within a poll and a second of the server's return."""
    for outage, after in returns(of):
        if after is not None and after > of.history.poll + 1:
            yield f"the first claim after a {outage.what} came {after:.2f} s after the server's return"


def noisy(of: Indexed) -> Iterator[str]:
    """A process logs a few lines of an outage, not one for each call that fails."""
    for (process, outage), lines in outage_lines(of).items():
        if lines > MOST_LINES:
            yield f"{process} has logged {lines} lines as the store failed by the {outage.what}"


def outage_lines(of: Indexed) -> Counter[tuple[str, Outage]]:
    """How many lines of a store that fails each process has logged in each outage and the second after it."""
    counts: Counter[tuple[str, Outage]] = Counter()
    for outage in of.history.outages:
        over = outage.wall + (outage.until - outage.since) / 1e9 + AFTER_OUTAGE
        for line in of.history.log:
            if line.is_of_outage and outage.wall <= line.wall <= over:
                counts[line.process, outage] += 1
    return counts


def deadlocked(of: Indexed) -> Iterator[str]:
    """No two statements of the queue wait for each other."""
    if of.history.deadlocks:
        yield f"the server has logged {of.history.deadlocks} deadlocks"


def in_transaction(of: Indexed) -> Iterator[str]:
    """No session is left in a transaction that nobody goes on with."""
    for last in of.history.idle_in_tx:
        yield f"a session was left idle in transaction after: {last}"


RULES: dict[str, Callable[[Indexed], Iterator[str]]] = {
    "lost": lost,
    "unfounded": unfounded,
    "torn": torn,
    "held twice": held_twice,
    "late mark kept": late,
    "mark without cause": marks_without_cause,
    "started twice": started_twice,
    "attempts": attempts,
    "repeat without cause": repeats_without_cause,
    "death": deaths,
    "integrity": broken,
    "slow return": slow_returns,
    "noisy log": noisy,
    "deadlock": deadlocked,
    "idle in transaction": in_transaction,
}
"""Each rule by its name."""


def check(history: History) -> list[Violation]:
    """Every promise that the history shows broken."""
    of = Indexed(history)
    return [Violation(rule, what) for rule, broken in RULES.items() for what in broken(of)]
