"""`fastjobs schedules app:q`: what runs when, and which run was pushed last; `… run-now NAME` pushes one now."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from zoneinfo import ZoneInfo

from fastjobs.cli.asking import check_file, entered, outcome
from fastjobs.cli.mistake import Mistake
from fastjobs.cli.parsing import QUEUE, Commands, add_app, target_typed
from fastjobs.cli.printing import out
from fastjobs.core.duration import moment
from fastjobs.core.schedule import upcoming
from fastjobs.core.text import error_text, one_line
from fastjobs.runtime.queue import Queue
from fastjobs.runtime.scheduling import Scheduled
from fastjobs.runtime.waiting import limited
from fastjobs.store import Extra, supports
from fastjobs.stores.memory import Memory

_NEXT = 5
"""How many runs to come are told."""


def add(commands: Commands) -> None:
    """Adds `schedules` to the command's words."""
    parser = commands.add_parser(
        "schedules",
        help="tell what runs when, or run one now",
        usage="fastjobs schedules [queue] [run-now NAME] [option ...]",
        description="Tells of each schedule its kind, its times in words and in its zone, the run that was pushed last,"
        f" and the next {_NEXT} after now. It needs the app's database. Changes of the zone's clock are marked."
        " With `run-now NAME` it pushes a job as a run of that schedule does, due at once; its next run stays.",
    )
    parser.take_words(
        "[queue] [run-now NAME]", f"the queue as {QUEUE}. Then run-now and a schedule's name, to run it now"
    )
    parser.add_argument("--json", action="store_true", help="as JSON, one object for each schedule")
    add_app(parser)
    parser.set_defaults(order=_order)


def _order(typed: argparse.Namespace) -> int:
    words: list[str] = list(typed.words)
    name: str | None = None
    if "run-now" in words:
        at = words.index("run-now")
        if at != len(words) - 2:
            raise Mistake(
                "run-now takes the name of one schedule, as in: fastjobs schedules app:q run-now nightly"
            )
        name, words = words[at + 1], words[:at]
    if len(words) > 1:
        raise Mistake(f"one queue at a time, and run-now NAME or nothing after it, not {' '.join(words[1:])}")
    target = target_typed(typed, words[0] if words else None)
    named, queue = target.named, target.queue
    if not queue.schedules and name is None:
        out("[]\n" if typed.json else f"{named} has no schedules\n")
        return 0
    found = None if name is None else _named(named, queue, name)

    async def asked() -> int:
        async with entered(target):
            check_file(queue)
            if found is None:
                return await _tell(queue, as_json=typed.json)
            if isinstance(queue.store, Memory):
                raise Mistake(
                    f"{named} keeps its jobs in a Memory, which ends with this command: a job pushed here would never"
                    " run"
                )
            return await _run_now(queue, found)

    return outcome(target, asked)


async def _tell(queue: Queue, *, as_json: bool) -> int:
    store = queue.store
    assert supports(store, Extra.SCHEDULES)  # a queue with schedules takes no other
    async with queue.running(run=False):
        now = moment(await limited(store.now(), "the time"))
        lasts = await limited(store.runs([each.name for each in queue.schedules]), "the last runs")
    told = [_told(each, lasts.get(each.name), now) for each in queue.schedules]
    if as_json:
        out(json.dumps(told, indent=2) + "\n")
    else:
        out("\n".join(_lines(each) for each in told))
    return 1 if any("error" in each for each in told) else 0


def _named(named: str, queue: Queue, name: str) -> Scheduled:
    found = next((each for each in queue.schedules if each.name == name), None)
    if found is None:
        has = ", ".join(each.name for each in queue.schedules) or "none"
        raise Mistake(f"{named} has no schedule {name!r}; it has {has}")
    return found


async def _run_now(queue: Queue, found: Scheduled) -> int:
    async with queue.running(run=False):
        (id,) = await queue.push([found.job])
    if id is None:
        out(f"a job of {found.job.kind} with this value waits already, and nothing was pushed\n")
    else:
        out(f"pushed {id} kind={found.job.kind}\n")
    return 0


def _told(each: Scheduled, last: int | None, now: datetime) -> dict[str, Any]:
    zone = _zone(each)
    told: dict[str, Any] = {
        "name": each.name,
        "kind": each.job.kind,
        "schedule": one_line(repr(each.schedule)),
        "words": _words(each),
        "zone": zone.key,
        "missed": each.missed,
        "jitter": each.jitter / 1_000_000,
        "last": None if last is None else _utc(moment(last)),
    }
    try:
        runs = upcoming(each.schedule, _NEXT, now)
    except Exception as error:  # an app's own schedule may raise anything
        return {**told, "next": [], "error": error_text(error)}
    before = now
    found: list[dict[str, Any]] = []
    for run in runs:
        here = run.astimezone(zone)
        change = _shift(before, run, zone)
        found.append({"at": _utc(run), "local": here.isoformat(), "clock_change": change})
        before = run
    return {**told, "next": found}


def _zone(each: Scheduled) -> ZoneInfo:
    named = getattr(each.schedule, "zone", None)
    try:
        return ZoneInfo(named) if isinstance(named, str) else ZoneInfo("UTC")
    except (KeyError, ValueError, OSError):  # of a schedule of the app's own, where it's any text
        return ZoneInfo("UTC")


def _words(each: Scheduled) -> str:
    describe = getattr(each.schedule, "describe", None)
    if not callable(describe):
        return one_line(repr(each.schedule))
    try:
        return one_line(str(cast("Callable[[], object]", describe)()))
    except Exception as error:
        return error_text(error)


def _shift(before: datetime, after: datetime, zone: ZoneInfo) -> str | None:
    """How the zone's clock changed between the two: "+1:00" where it went an hour forward."""
    one, two = before.astimezone(zone).utcoffset(), after.astimezone(zone).utcoffset()
    if one is None or two is None or one == two:
        return None
    minutes = abs(two - one) // timedelta(minutes=1)
    return f"{'+' if two > one else '-'}{minutes // 60}:{minutes % 60:02}"


def _utc(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _lines(told: dict[str, Any]) -> str:
    more = "" if told["missed"] == "once" else f" missed={told['missed']}"
    more += f" jitter={told['jitter']:g}s" if told["jitter"] else ""
    lines = [f"{told['name']}  kind={told['kind']} zone={told['zone']}{more}", f"  {told['words']}"]
    # Mostly a time to come, as a run is pushed ahead: so it's the run's, and not that of its push.
    lines.append(f"  last pushed {'none' if told['last'] is None else 'the run of ' + told['last']}")
    if "error" in told:
        lines.append(f"  failed: {told['error']}")
    elif not told["next"]:
        lines.append("  no run is left")
    for run in told["next"]:
        here = datetime.fromisoformat(run["local"])
        change = f"  (the clock has changed by {run['clock_change']} h)" if run["clock_change"] else ""
        lines.append(f"  next  {here:%a %Y-%m-%d %H:%M:%S%z}  {run['at']}{change}")
    return "\n".join(lines) + "\n"
