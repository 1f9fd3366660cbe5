"""A job and a kind as the command tells them: in lines for a person, and as JSON for a program."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from fastjobs.cli.printing import harmless, readable
from fastjobs.core.describe import describe_interval
from fastjobs.runtime.looking import JobInfo, KindInfo

SHOWN = 400
"""As many characters of a value are shown on a screen, but where all of it is asked for."""
CAP = 10_000
"""How far jobs are counted."""


def counted(number: int, one: str) -> str:
    """`1 job`, `2,300 jobs`."""
    return f"{number:,} {one}{'' if number == 1 else 's'}"


def number_of(number: int) -> str:
    """A number of jobs that were counted, or that there are more than were."""
    return f"{CAP:,}+" if number > CAP else f"{number:,}"


def at(when: datetime) -> str:
    """A moment to the second, in UTC, which no other reader takes for another one."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def kept(keep: timedelta | None, *, one: bool) -> str:
    """How long failed jobs are kept: "for 30 days"."""
    if keep is None:
        it = "it" if one else "them"
        return f"until you run {it} again or delete {it}"
    return f"for {length(keep)}"


def length(duration: timedelta) -> str:
    """In words: "30 days", "12 hours", "1 day and 12 hours"."""
    days, rest = divmod(duration, timedelta(days=1))
    words = [counted(days, "day")] if days else []
    if rest or not days:
        # Less than a day is said as an interval is: "every 1 hour and 30 minutes".
        said = describe_interval(rest).removeprefix("every ")
        words.append(said if said[:1].isdigit() else f"1 {said}")
    return " and ".join(words)


def short(seconds: float) -> str:
    """About how long, in a column: `12s`, `4m`, `3h`, `12d`."""
    for size, unit, until in ((1, "s", 120), (60, "m", 7_200), (3_600, "h", 172_800)):
        if seconds < until:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds // 86_400)}d"


def failed_lines(job: JobInfo) -> str:
    """A failed job in a list: what it was, who pushed it, its value and its error."""
    when = "" if job.failed_at is None else f" at {at(job.failed_at)}"
    told = f"  {harmless(job.id)}  {harmless(job.kind)}, which failed{when} after {counted(job.attempts, 'attempt')}"
    return _listed(told + _pushed_by(job), job, job.error)


def kept_lines(job: JobInfo) -> str:
    """A job that waits or runs, in a list: its value, what it failed with last, and why it's where it is."""
    told = f"  {harmless(job.id)}  {harmless(job.kind)}, pushed at {at(job.pushed_at)}{_pushed_by(job, '')}"
    # A job that is to be tried again has its error in the reason.
    last = None if job.error is None or job.error in job.why else f"last error: {job.error}"
    return _listed(told, job, last, job.why)


def _pushed_by(job: JobInfo, pushed: str = ", pushed") -> str:
    by = "" if job.request_id is None else f"{pushed} by request {harmless(job.request_id)}"
    return by + ("" if job.name is None else f", named {harmless(job.name)}")


def _listed(told: str, job: JobInfo, *more: str | None) -> str:
    lines = [told]
    if job.payload != "null":  # of a kind that has no value
        lines.append(f"      {value(job)}")
    lines += [f"      {harmless(each)}" for each in more if each]
    return "\n".join(lines) + "\n"


def value(job: JobInfo) -> str:
    """The value on one line, as far as it was read, and how long it is where that's not all."""
    # JSON that a queue kept is ASCII: as many characters as bytes.
    cut = len(job.payload) < job.size and len(job.payload.encode("utf-8", "surrogatepass")) < job.size
    return readable(job.payload) + (f"… ({job.size:,} bytes)" if cut else "")


def shown(job: JobInfo) -> str:
    """All that's known of one job."""
    lines = [f"job {harmless(job.id)}  {harmless(job.kind)}, {job.state}: {harmless(job.why)}"]
    lines += [f"  {name:<10} {text}" for name, text in _facts(job)]
    return "\n".join(lines) + "\n"


def _facts(job: JobInfo) -> Iterator[tuple[str, str]]:
    yield "pushed", at(job.pushed_at) + _pushed_by(job, "")
    # A failed one is due no more.
    yield ("due", at(job.due)) if job.failed_at is None else ("failed", at(job.failed_at))
    if job.held_until is not None:
        yield "held until", at(job.held_until)
    yield "attempts", f"{job.attempts}" + (f", of which {job.lost} lost their worker" if job.lost else "")
    if job.unique:
        yield "unique", "it was pushed as the only one of its value to wait"
    if job.behind is not None:
        yield "behind", f"job {harmless(job.behind)}"
    if job.stop_asked:
        yield "stop", "it was asked to stop"
    if job.progress is not None:
        yield "progress", harmless(json.dumps(job.progress, ensure_ascii=False))
    if job.trace_id is not None:
        yield "trace", job.trace_id
    for name, carried in sorted(job.carried.items()):
        yield "carried", f"{harmless(name)}={harmless(carried)}"
    yield "value", value(job)
    if job.error is not None:
        yield "error", harmless(job.error)
    if job.where is not None:
        yield "where", harmless(job.where)


def job_json(job: JobInfo) -> dict[str, Any]:
    """A job for a program. Its value is the JSON text that is kept, which may be cut only where that was asked for."""
    return {
        "id": job.id,
        "kind": job.kind,
        "state": job.state.value,
        "payload": job.payload,
        "size": job.size,
        "due": _iso(job.due),
        "pushed_at": _iso(job.pushed_at),
        "held_until": _iso(job.held_until),
        "failed_at": _iso(job.failed_at),
        "attempts": job.attempts,
        "lost": job.lost,
        "error": job.error,
        "where": job.where,
        "request_id": job.request_id,
        "trace_id": job.trace_id,
        "carried": dict(job.carried),
        "name": job.name,
        "unique": job.unique,
        "stop_asked": job.stop_asked,
        "progress": job.progress,
        "behind": job.behind,
        "why": job.why,
    }


def kind_json(kind: KindInfo) -> dict[str, Any]:
    """A kind's numbers for a program: one over the cap says that there are more."""
    return {**asdict(kind), "cap": CAP}


def _iso(when: datetime | None) -> str | None:
    return None if when is None else when.astimezone(UTC).isoformat().replace("+00:00", "Z")
