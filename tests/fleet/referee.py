"""The referee: follows what the store did and what the processes saw, and says which promise was broken.

It takes the store's word for nothing but the effects themselves: who holds what, until when, and how often a job was
claimed, it counts on its own. Longer than 300 lines, as the rules read one job's state together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastjobs import Outcome, Ran, Throttle
from fastjobs.store import (
    Cancelled,
    Claimable,
    Claimed,
    Done,
    Extend,
    Fail,
    GiveBack,
    Job,
    Kept,
    Mark,
    NewJob,
    TryAgain,
)
from tests.fleet.record import SECOND, Call, Claim, End, Process, Tracked

LATENCY = SECOND // 4
"""The longest that a call takes, both ways together, where nothing is wrong with it, and some more."""
LIMIT = 10 * SECOND
"""How long the queue waits for a store's answer."""


class Referee:
    """Judges one run. `broken` has what it found; `trace` tells what happened."""

    def __init__(
        self,
        now: Callable[[], int],
        timeouts: Mapping[str, int],
        most: Mapping[str, int],
        began: int,
        rates: Mapping[str, tuple[Throttle, bool]],
        values: int,
    ) -> None:
        """`timeouts`, `most`, the attempts, and `rates`, with whether each is by value, are the kinds', by name.

        `values` is how many lanes a rate by value has.
        """
        self._rates = rates
        self._values = values
        self.now = now
        """The store's clock."""
        self._timeouts = timeouts
        self._most = most
        self._began = began
        self._cancel_themselves = ("hostile",)
        self.paused: set[str] = set()
        """The kinds that are paused just now."""
        self.cancels = 0
        self.jobs: dict[str, Tracked] = {}
        self._keys: dict[tuple[str, bytes], Tracked] = {}
        """The job of each value that waits."""
        self._rated: dict[tuple[str, str], list[Claim]] = {}
        """The claims of each kind with a rate, or of each of its values."""
        self.broken: list[str] = []
        self.trace: list[str] = []
        self.unheard = 0
        """Pushes whose callers can't know whether they're kept."""
        self.late_marks = 0
        self.lapses = 0
        self._done = 0

    def say(self, what: str) -> None:
        """Puts a line in the trace."""
        self.trace.append(f"{(self.now() - self._began) / SECOND:11.6f}  {what}")

    def breach(self, promise: str, what: str) -> None:
        """A promise was broken."""
        self.broken.append(f"{promise}: {what}")
        self.say(f"BROKEN {promise}: {what}")

    # What the store did.

    def pushed(self, by: Process, jobs: Sequence[NewJob], ids: Sequence[str | None]) -> None:
        now = self.now()
        for job, id in zip(jobs, ids, strict=True):
            key = None if job.key is None else (job.kind, job.key)
            waits = None if key is None else self._keys.get(key)
            if waits is not None:
                if id != (waits.id if job.latest else None):
                    self.breach("one job waits for each value", f"{id} beside {waits.id}")
                elif job.latest:
                    waits.due = min(now + job.after, waits.first + (job.at_most or 10**18))
                continue
            if id is None:
                self.breach("a value that doesn't wait is pushed", job.kind)
                continue
            if id in self.jobs:
                self.breach("an id is used once", id)
            rated = self._rates.get(job.kind)
            lane = str(int(job.payload) % self._values) if rated is not None and rated[1] else ""
            tracked = Tracked(id, job.kind, now + job.after, key, lane, now)
            self.jobs[id] = tracked
            if key is not None:
                self._keys[key] = tracked
        self.say(f"{by.name} push {jobs[0].kind} -> {' '.join(str(id) for id in ids)}")

    def claimed(
        self, by: Process, terms: Sequence[Claimable], limit: int, ahead: int, answer: Claimed, call: Call
    ) -> None:
        now = self.now()
        holds = {each.kind: each.hold for each in terms}
        if len(answer.jobs) > limit:
            self.breach("a claim keeps to its limit", f"{len(answer.jobs)} of {limit}")
        for job in answer.jobs:
            tracked = self._claimable(job, by)
            tracked.attempts += 1
            if job.attempts != tracked.attempts:
                self.breach(
                    "each claim is an attempt, and what was given back is none",
                    f"{job.id} has {job.attempts} attempts, and {tracked.attempts} by count",
                )
            if job.attempts > self._most[job.kind]:
                self.breach(
                    "attempts never go over the limit", f"{job.id} claimed for attempt {job.attempts}"
                )
            if now < tracked.due:
                self.breach("no job is claimed before it's due", job.id)
            if job.kind in self.paused:
                self.breach("a paused kind is not claimed", f"{job.id} of {job.kind}")
            if job.claim <= tracked.token:
                self.breach("the claim token only grows", f"{job.id}: {job.claim} after {tracked.token}")
            tracked.token = job.claim
            claim = Claim(
                job.claim, by, now, now + holds[job.kind], holds[job.kind], now, call.began, call.began
            )
            if job.stop_asked is not tracked.cancelled:
                self.breach("a cancel outlives the claim it met", f"{job.id}/{job.claim}")
            if tracked.cancelled:
                claim.stop_asked, claim.is_to_end = now, True
            tracked.claim = tracked.claims[job.claim] = claim
            self._without_key(tracked)
            self._limited(tracked, claim, terms)
        for job in answer.exhausted:
            tracked = self._claimable(job, by)
            if job.attempts < self._most[job.kind]:
                self.breach("a claim fails a job at its limit alone", f"{job.id} after {job.attempts}")
            tracked.token = job.claim + 1
            tracked.claim = None
            self._without_key(tracked)
            tracked.state = "failed"
            tracked.ends.append(End("exhausted", by, now, job.attempts, now, None, call))
        if answer.jobs or answer.exhausted:
            found = " ".join(f"{job.id}/{job.claim}" for job in answer.jobs)
            spent = " ".join(f"{job.id}!" for job in answer.exhausted)
            self.say(f"{by.name} claim {limit} ({ahead} ahead) -> {found} {spent}".rstrip())

    def _without_key(self, tracked: Tracked) -> None:
        if tracked.key is not None and self._keys.get(tracked.key) is tracked:
            del self._keys[tracked.key]

    def _limited(self, tracked: Tracked, claim: Claim, terms: Sequence[Claimable]) -> None:
        """Whether the kind's limits let it be held beside the others."""
        now = self.now()
        held = [
            each
            for each in self.jobs.values()
            if each.kind == tracked.kind and each.held is not None and each.held.until > now
        ]
        if tracked.key is not None and sum(each.key == tracked.key for each in held) > 1:
            self.breach("no two jobs of a value are held at once", tracked.id)
        most = next(each.at_once for each in terms if each.kind == tracked.kind)
        if most is not None and len(held) > most:
            self.breach("no more are held at once than the kind says", f"{len(held)} of {tracked.kind}")
        if tracked.kind in self._rates:
            self._rated.setdefault((tracked.kind, tracked.lane), []).append(claim)

    def _in_rate(self, kind: str, lane: str) -> None:
        """A job of a kind with a rate starts, and with it as many as must not have in one window, or it's in the rate.

        A start counts from its claim; with a rate by value, from some moment between its claim and the start.
        """
        throttle, by_value = self._rates[kind]
        claims = [each for each in self._rated[kind, lane] if each.started is not None]
        claims.sort(key=lambda each: (each.started or 0) if by_value else each.at)
        for first in range(len(claims) - throttle.max):
            some = claims[first : first + throttle.max + 1]
            last = max((each.started or 0) if by_value else each.at for each in some)
            if last - min(each.at for each in some) < throttle.period:
                self.breach("no window of a rate has more than it allows", f"{kind} {lane}".rstrip())

    def heard(self, answer: Claimed) -> None:
        """A claim's answer has come to its process."""
        for job in answer.jobs:
            self.jobs[job.id].claims[job.claim].heard = True

    def marked(
        self,
        by: Process,
        marks: Sequence[Mark],
        answers: Sequence[Kept],
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        call: Call,
    ) -> None:
        """`before` and `after` are the rows' copies, without those that aren't there."""
        now = self.now()
        times = Counter(mark.id for mark in marks)
        if len({(mark.id, mark.claim) for mark in marks}) < len(marks):
            self.breach("each claim is marked once at a time", " ".join(f"{m.id}/{m.claim}" for m in marks))
        for mark, answer in zip(marks, answers, strict=True):
            word = type(mark).__name__
            self.say(f"{by.name} {word} {mark.id}/{mark.claim} -> {answer.name}")
            tracked = self.jobs[mark.id]
            claim = tracked.held
            live = claim is not None and claim.token == mark.claim
            in_hold = live and claim is not None and claim.until > now
            if answer is Kept.STOP and (claim is None or claim.stop_asked is None):
                self.breach("a stop is told of a job that was cancelled", f"{mark.id}/{mark.claim}")
            if answer in (Kept.YES, Kept.STOP):
                if not live or (isinstance(mark, Extend) and not in_hold):
                    self.breach("a late mark changes nothing", f"{word} {mark.id}/{mark.claim} was kept")
                elif claim is not None:
                    self._kept(tracked, claim, mark, call)
                    self._last_report(tracked, claim, mark, after)
            elif answer is Kept.LOST:
                self.late_marks += not isinstance(mark, Extend)
                if live and (in_hold or not isinstance(mark, Extend)):
                    self.breach(
                        "the mark of a claim that has its job is kept", f"{word} {mark.id}/{mark.claim}"
                    )
            if (
                answer in (Kept.LOST, Kept.BUSY)
                and times[mark.id] == 1
                and before.get(mark.id) != after.get(mark.id)
            ):
                self.breach("a mark that isn't kept changes nothing", f"{word} {mark.id}/{mark.claim}")
        for mark, answer in zip(marks, answers, strict=True):
            if (mark.id not in after) != (self.jobs[mark.id].state == "done"):
                what = f"{mark.id} after {type(mark).__name__} -> {answer.name}"
                self.breach("a job is kept until it's done", what)

    def counted(self, rows: int) -> None:
        """How many jobs the store has, asked after each effect."""
        kept = len(self.jobs) - self._done
        if rows != kept:
            self.breach("a push that was kept is kept until its job is done", f"{rows} rows for {kept} jobs")

    def _last_report(self, tracked: Tracked, claim: Claim, mark: Mark, after: Mapping[str, Any]) -> None:
        """Whether what its handler reported last stays with a job that failed."""
        by, now = claim.by, self.now()
        if not isinstance(mark, (TryAgain, Fail)) or claim.reported is None or claim.started is None:
            return
        if after[mark.id].progress == claim.reported or by.was_frozen(claim.started, now):
            return
        if not by.had_trouble("progress", claim.started, now):
            self.breach(
                "the last report stays with a job that fails", f"{tracked.id}: {after[mark.id].progress}"
            )

    def cancelled(self, id: str, answer: Cancelled) -> None:
        """Someone cancelled a job, past all processes."""
        tracked, now = self.jobs[id], self.now()
        self.cancels += 1
        self.say(f"cancel {id} -> {answer.name}")
        claim = tracked.held
        held = claim is not None and claim.until > now
        if answer is Cancelled.REMOVED and not held:
            self._without_key(tracked)
            tracked.state, tracked.claim = "done", None
            self._done += 1
        elif answer is Cancelled.ASKED and claim is not None and held:
            claim.stop_asked = claim.stop_asked or now
            tracked.cancelled = True
        else:
            self.breach("a cancel removes what waits and asks what is held", f"{id} -> {answer.name}")

    def _heard_of(self, tracked: Tracked, claim: Claim) -> None:
        """Its handler has ended: in time, where it was to be stopped."""
        now, by = self.now(), claim.by
        if claim.stop_asked is None or tracked.kind in ("deaf", *self._cancel_themselves):
            return
        since = max(claim.stop_asked, claim.started or 0)
        within = max(by.poll, 2 * SECOND) + SECOND // 2 + 2 * LATENCY
        if (
            now - since > within
            and tracked.held is claim
            and claim.until > now
            and not by.had_trouble("asked", since - SECOND, now)
            and not by.was_frozen(since - SECOND, now)
        ):
            self.breach("a cancel is heard of in time", f"{tracked.id}/{claim.token} of {by.name}")

    def reported(self, job: Job, text: str) -> None:
        """A handler said how far it is."""
        self.jobs[job.id].claims[job.claim].reported = text

    def run_again(self, id: str) -> None:
        """Someone put a failed job back."""
        tracked = self.jobs[id]
        tracked.state, tracked.attempts, tracked.due = "waiting", 0, self.now()
        tracked.cancelled = False
        tracked.token += 1
        self.say(f"run again {id}")

    # What the processes saw.

    def acked(self, ids: Sequence[str | None]) -> None:
        """A push returned."""
        for id in ids:
            if id is not None and id not in self.jobs:
                self.breach("a push that returned is kept", str(id))

    def started(self, by: Process, job: Job) -> None:
        now = self.now()
        self.say(f"{by.name} runs {job.kind} {job.id}/{job.claim}")
        tracked = self.jobs[job.id]
        claim = tracked.claims.get(job.claim)
        if claim is None or claim.by is not by:
            self.breach("a job is run by the process that claimed it", f"{job.id}/{job.claim}")
        elif claim.started is not None:
            self.breach("no claim is run twice", f"{job.id}/{job.claim}")
        elif claim.is_to_end:
            self.breach("a cancelled job never starts again after the answer", f"{job.id}/{job.claim}")
        else:
            claim.started = now
            if job.kind in self._rates:
                self._in_rate(job.kind, tracked.lane)
        tracked.starts.append(now)

    def ended(self, by: Process, job: Job, how: str) -> None:
        self.say(f"{by.name} ended {job.id}/{job.claim}: {how}")
        tracked, now = self.jobs[job.id], self.now()
        claim = tracked.claims[job.claim]
        claim.ended, claim.how = now, how
        self._heard_of(tracked, claim)
        if (
            how == "cancelled"
            and job.kind not in self._cancel_themselves
            and by.stopping_at is None
            and claim.stop_asked is None
            and tracked.held is claim
            and claim.until > now
            and claim.started is not None
            and now < claim.started + self._timeouts[job.kind]
        ):
            self.breach("a handler is cancelled only for a cause", f"{job.id}/{job.claim}")

    def observed(self, by: Process, ran: Ran) -> None:
        self.say(f"{by.name} observed {ran.job} {ran.outcome}")
        if ran.outcome in (Outcome.DONE, Outcome.FAILED, Outcome.CANCELLED):
            self.jobs[ran.job].observed.append((by, ran))

    def told(self, by: Process, id: str) -> None:
        """An on_fail was run."""
        self.say(f"{by.name} on_fail {id}")
        tracked = self.jobs[id]
        tracked.told += 1
        failures = sum(each.outcome != "done" for each in tracked.ends)
        if tracked.told > failures:
            self.breach("on_fail runs once, when the failure is kept", f"{id}: {tracked.told} of {failures}")

    def stopped(self, by: Process) -> None:
        """A stop in order has returned."""
        now = self.now()
        self.say(f"{by.name} has stopped")
        assert by.stopping_at is not None
        by.stopped_at = now
        if by.was_frozen(by.stopping_at, now):
            return
        took = (now - by.stopping_at) / SECOND
        if took > by.grace / SECOND + 1.01:
            self.breach("a stop returns within grace and a second", f"{by.name} took {took:.2f} s")
        if by.had_trouble("mark claim open asked progress", by.stopping_at - by.poll - SECOND, now):
            return
        for tracked in self.jobs.values():
            claim = tracked.held
            if claim is not None and claim.by is by and claim.heard and claim.until > now:
                self.breach("nothing waits for its hold after a clean stop", f"{tracked.id}/{claim.token}")

    # What must be so at the end.

    def finished(self) -> None:
        """All has been healed, and the fleet has had its time."""
        if self.broken:
            return
        for tracked in self.jobs.values():
            if tracked.state == "waiting":
                self.breach("every job ends", f"{tracked.id} ({tracked.kind}) has not")
            for end in tracked.ends:
                self._judge_end(tracked, end)
            if len(tracked.observed) > len(tracked.ends):
                told = ", ".join(f"{by.name} {ran.outcome}" for by, ran in tracked.observed)
                self.breach("each end is observed once", f"{tracked.id}: {told}")

    def _judge_end(self, tracked: Tracked, end: End) -> None:
        outcomes = (Outcome.DONE, Outcome.CANCELLED) if end.outcome == "done" else (Outcome.FAILED,)
        seen = [
            ran
            for by, ran in tracked.observed
            if by is end.by and ran.outcome in outcomes and ran.attempt == end.attempt
        ]
        if not seen and not self._end_went_unseen(end):
            self.breach("each end is observed", f"{tracked.id} {end.outcome} by {end.by.name}")

    def _end_went_unseen(self, end: End) -> bool:
        """Whether there's a reason that nobody was told: its process ended first, or had no answer in time."""
        by, after = end.by, end.at + LATENCY
        if by.killed_at is not None and by.killed_at <= after:
            return True
        if not end.call.troubled and not by.was_frozen(end.at, after):
            return by.stopped_at is not None and by.stopped_at <= after
        if end.mark is None:
            return True  # nobody can ask a claim that gave no answer again
        # The mark is sent again until its hold ends, unless its process ends before.
        until = min(each for each in (end.until, by.killed_at, by.stopped_at) if each is not None)
        return (
            by.had_trouble("mark", until - by.poll - LIMIT // 4, until)
            or by.was_frozen(end.at, until + LATENCY)
            or until - end.at < by.poll + LIMIT + SECOND
        )

    def _claimable(self, job: Job, by: Process) -> Tracked:
        """The job that's claimed, once it's been asked whether it may be."""
        tracked = self.jobs[job.id]
        if tracked.state != "waiting":
            self.breach("a job that has ended is not claimed", job.id)
        held = tracked.held
        if held is not None:
            if held.until > self.now():
                self.breach("no two claims hold a job at once", f"{job.id}: {held.by.name} and {by.name}")
            else:
                self.lapses += 1
                self._lapsed(tracked, held)
        return tracked

    def _lapsed(self, tracked: Tracked, claim: Claim) -> None:
        """A hold ran out, and the job is claimed again: that has a cause, or a promise is broken."""
        by, until = claim.by, claim.until
        if not claim.heard or (by.killed_at is not None and by.killed_at <= until):
            return
        if by.was_frozen(claim.at, until + LATENCY):
            return
        if by.stopped_at is not None and by.stopped_at <= until:
            # What a stop could not put back is judged as it stops.
            return
        if claim.started is not None:
            late = claim.started + self._timeouts[tracked.kind]
            if late <= until and (claim.ended is None or claim.ended > until - LATENCY):
                return  # it went on after its timeout
        if claim.ended is not None and claim.ended <= until:
            # A process counts a hold from when it asked for it, as it can't know when it began.
            told = claim.ended - claim.renewed > LATENCY
            given_up = min(until, (claim.asked if told else claim.before) + claim.hold)
            if by.had_trouble("mark asked progress", given_up - by.poll - SECOND, until):
                return
            if claim.ended > until - LATENCY:
                return
        if by.had_trouble("extend", claim.renewed, until):
            return
        if claim.started is None and by.had_trouble("mark asked", claim.renewed, until):
            return  # it was to be given back, as no worker got to it
        self.breach(
            "a job runs again only for a cause",
            f"{tracked.id}/{claim.token} of {by.name}: its hold ran out, and nothing had kept it from being renewed or"
            " marked",
        )

    def _kept(self, tracked: Tracked, claim: Claim, mark: Mark, call: Call) -> None:
        now, by = self.now(), claim.by
        if isinstance(mark, Extend):
            claim.until, claim.renewed = now + mark.hold, now
            claim.before, claim.asked = claim.asked, call.began
            return
        claim.over = True
        tracked.token = claim.token + 1
        self._ends_a_cancelled_job(tracked, claim, mark, call)
        if isinstance(mark, (TryAgain, Fail)):
            self._stop_is_no_attempt(tracked, claim)
        match mark:
            case Done():
                tracked.state = "done"
                self._done += 1
                tracked.ends.append(End("done", by, now, tracked.attempts, claim.until, mark, call))
            case Fail():
                tracked.state = "failed"
                tracked.ends.append(End("failed", by, now, tracked.attempts, claim.until, mark, call))
            case TryAgain():
                if not tracked.cancelled:
                    tracked.due = now + mark.after
            case GiveBack():
                tracked.attempts -= 1
                if tracked.cancelled:
                    return
                tracked.due = now if mark.after is None else now + mark.after
                if tracked.key is not None:
                    self._keys.setdefault(tracked.key, tracked)
            case _:
                raise AssertionError(mark)

    def _ends_a_cancelled_job(self, tracked: Tracked, claim: Claim, mark: Mark, call: Call) -> None:
        """A job that was cancelled while it was held is not put back, but where its process couldn't know."""
        by, asked = claim.by, claim.stop_asked
        if asked is None or isinstance(mark, Done) or (claim.started is None and tracked.kind in self._rates):
            return
        if asked > call.began - LATENCY or call.troubled:
            return
        if by.had_trouble("asked mark", asked - SECOND, self.now()) or by.was_frozen(asked, self.now()):
            return
        self.breach("a cancelled job is removed", f"{tracked.id}/{claim.token}: {type(mark).__name__}")

    def _stop_is_no_attempt(self, tracked: Tracked, claim: Claim) -> None:
        stopping = claim.by.stopping_at
        if (
            claim.how == "cancelled"
            and stopping is not None
            and claim.started is not None
            and claim.ended is not None
            and claim.ended >= stopping
            and claim.ended < claim.started + self._timeouts[tracked.kind]
        ):
            self.breach("a stop gives the attempt back", f"{tracked.id}/{claim.token} of {claim.by.name}")
