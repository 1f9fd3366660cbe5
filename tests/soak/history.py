"""What happened, read from the files and the tables, as values that the checker goes through."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from tests.soak.kinds import POLL
from tests.soak.logs import LogLine, said
from tests.soak.recording import SUFFIX, lines

CLIENTS = "clients"
NEMESIS = "nemesis"
DATABASE = "database"
APART = 0.1
"""A process takes the middle of a round trip for the time at which the server looked at its clock."""
TABLES = "tables.json"
"""What a server's tables held in the end; a SQLite file is there to be read."""


class Pushed(NamedTuple):
    """A push that a client tried."""

    ref: str
    in_tx: bool
    """A business row of the same ref goes with it."""
    doomed: bool
    """It's in a transaction, or a savepoint, that is rolled back on purpose."""
    outcome: str | None
    """"acked", "rolled back", "refused" (nothing was sent), or None where no answer came, or an error."""
    id: str | None = None


class Claim(NamedTuple):
    """A job that a claim answered. An exhausted one counts as claimed, and holds nothing."""

    process: str
    id: str
    claim: int
    kind: str
    ref: str
    attempts: int
    now: int
    until: int
    """The end of its hold as it was claimed, in Unix microseconds by the store's clock."""
    asked_at: int
    """The moment before it was asked: its now is of then, and a process may be frozen between the two."""
    at: int
    exhausted: bool = False


class Marked(NamedTuple):
    """A mark that was asked."""

    process: str
    id: str
    claim: int
    what: str
    asked_at: int
    answer: str | None
    """None where the process had no answer: the mark may be kept or not."""
    until: int = 0
    """An extended hold's end."""

    @property
    def ends(self) -> bool:
        """Whether it ends its claim."""
        return self.what != "extend"


class Started(NamedTuple):
    """A handler that was called."""

    process: str
    id: str
    claim: int
    ref: str
    attempt: int
    at: int


class Ended(NamedTuple):
    """A handler that returned ("ok") or raised (the exception's name)."""

    process: str
    id: str
    claim: int
    how: str
    at: int


class Fault(NamedTuple):
    """What was done to a process, or came over it."""

    process: str
    what: str
    """"kill", "freeze", "stop", "poison", "stall", or "death" for one that nobody had ordered."""
    since: float
    until: float = inf


class Outage(NamedTuple):
    """What was done to the database's server, or on the way to it. Moments are the monotonic clock's."""

    what: str
    """"restart", "crash", "termination", or the kind of cut."""
    since: float
    until: float
    """When it was over: a server took connections again, a silence ended."""
    hit: int
    """How many connections it met, where that is known."""
    wall: float
    """The Unix time, in seconds, at which it began: the logs go by that."""


class Looked(NamedTuple):
    """A claim that was answered, with jobs or none."""

    process: str
    asked_at: int
    at: int


class Left(NamedTuple):
    """A row of the jobs' table, at the end."""

    id: str
    kind: str
    ref: str
    state: int
    attempts: int


@dataclass(frozen=True)
class History:
    """All of it. Moments are nanoseconds by the machine's monotonic clock."""

    attempts: Mapping[str, int]
    """How often a job of each kind may run."""
    always_fails: frozenset[str] = frozenset()
    """The kinds whose jobs never end done."""
    pushes: list[Pushed] = field(default_factory=list[Pushed])
    claims: list[Claim] = field(default_factory=list[Claim])
    marks: list[Marked] = field(default_factory=list[Marked])
    starts: list[Started] = field(default_factory=list[Started])
    ends: list[Ended] = field(default_factory=list[Ended])
    on_fails: list[str] = field(default_factory=list[str])
    """The ids of jobs whose on_fail was called."""
    faults: list[Fault] = field(default_factory=list[Fault])
    left: list[Left] = field(default_factory=list[Left])
    orders: frozenset[str] = frozenset()
    """The refs of the business rows."""
    integrity: str = "ok"
    outages: list[Outage] = field(default_factory=list[Outage])
    looks: list[Looked] = field(default_factory=list[Looked])
    ups: dict[str, float] = field(default_factory=dict[str, float])
    """When each process of the app was up."""
    deadlocks: int = 0
    """As the server's log has them."""
    broken: int = 0
    """How many deadlocks a server has broken of whose nature it is to have some, by its log."""
    given_up: Counter[int] = field(default_factory=Counter[int])
    """How many statements such a server gave up for others' sake, to be tried again, by the number of the error."""
    idle_in_tx: tuple[str, ...] = ()
    """What each session that was left in a transaction, with nothing under way, had done last."""
    apart: float | None = None
    """How many seconds the processes may differ in what they have measured of a server's time. None where there is no
    server: a file's claims are made at the very time that they tell."""
    poll: float = POLL
    """How often the app's processes ask, in seconds."""
    log: list[LogLine] = field(default_factory=list[LogLine])
    """What the queue said in the app's logs."""


def read(folder: Path, attempts: Mapping[str, int], always_fails: Iterable[str]) -> History:
    """The history that a run has left in its folder. Its processes have ended."""
    is_file = not (folder / TABLES).exists()
    left = _tables(folder / "app.db") if is_file else _kept(folder / TABLES)
    made = History(attempts=attempts, always_fails=frozenset(always_fails), **left)
    for log in sorted(folder.glob("app*.log")):
        made.log.extend(said(log))
    for file in sorted(folder.glob(f"*{SUFFIX}")):
        process = file.name.removesuffix(SUFFIX)
        if process == CLIENTS:
            _clients(made, lines(file))
        elif process == NEMESIS:
            _nemesis(made, lines(file))
        elif process == DATABASE:
            made.outages.extend(
                Outage._make((what, since, at, *rest)) for at, what, since, *rest in _any(lines(file))
            )
        else:
            _app(made, process, lines(file))
    return made


def _clients(made: History, said: list[list[Any]]) -> None:
    tried: dict[str, Pushed] = {}
    for _, what, ref, *rest in said:
        if what == "try":
            in_tx, doomed = rest
            tried[ref] = Pushed(ref, in_tx, doomed, None)
        else:
            tried[ref] = tried[ref]._replace(outcome=what, id=rest[0] if rest else None)
    made.pushes.extend(tried.values())


def _nemesis(made: History, said: list[list[Any]]) -> None:
    made.faults.extend(Fault(process, what, at) for at, what, process in said)


def _app(made: History, process: str, said: list[list[Any]]) -> None:
    asked: dict[tuple[str, int, str], list[int]] = {}
    frozen: list[float] = []
    for at, what, *rest in said:
        match what:
            case "claimed":
                made.claims.append(Claim._make((process, *rest, at, False)))
            case "exhausted":
                made.claims.append(Claim._make((process, *rest[:-1], rest[-2], rest[-1], at, True)))
            case "marking":
                id, claim, word = rest
                asked.setdefault((id, claim, word), []).append(at)
            case "marked":
                id, claim, word, answer, until = rest
                # The latest that was asked: those before had no answer, and no later one is asked meanwhile.
                asked_at = asked[id, claim, word].pop()
                made.marks.append(Marked(process, id, claim, word, asked_at, answer, until))
            case "looked":
                made.looks.append(Looked(process, rest[0], at))
            case "given up":
                made.given_up[rest[0]] += 1
            case "up":
                made.ups[process] = at
            case "start":
                made.starts.append(Started._make((process, *rest, at)))
            case "end":
                made.ends.append(Ended._make((process, *rest, at)))
            case "on_fail":
                made.on_fails.append(rest[0])
            case "freeze":
                frozen.append(at)
            case "woke":
                made.faults.append(Fault(process, "freeze", frozen.pop(), at))
            case "poisoned":
                made.faults.append(Fault(process, "poison", at))
            case "stalled":
                made.faults.append(Fault(process, "stall", at - rest[0] * 1e9, at))
            case _:
                raise ValueError(f"{process} has written down {what!r}, which nobody reads")
    made.faults.extend(Fault(process, "freeze", at) for at in frozen)
    for (id, claim, word), moments in asked.items():
        made.marks.extend(Marked(process, id, claim, word, moment, None) for moment in moments)


def _any(said: list[list[Any]]) -> list[list[Any]]:
    return said


def _kept(file: Path) -> dict[str, Any]:
    kept = json.loads(file.read_text())
    return {
        "left": [
            Left(id, kind, json.loads(payload)["ref"], *rest) for id, kind, payload, *rest in kept["jobs"]
        ],
        "orders": frozenset(kept["orders"]),
        "integrity": kept["integrity"],
        "apart": APART,
        "deadlocks": kept["deadlocks"],
        "broken": kept.get("broken", 0),
        "idle_in_tx": tuple(kept["idle_in_tx"]),
    }


def _tables(file: Path) -> dict[str, Any]:
    connection = sqlite3.connect(file)
    try:
        jobs = connection.execute(
            "SELECT CAST(id AS TEXT), kind, payload, state, attempts FROM fastjobs_jobs"
        ).fetchall()
        return {
            "left": [Left(id, kind, json.loads(payload)["ref"], *rest) for id, kind, payload, *rest in jobs],
            "orders": frozenset(ref for (ref,) in connection.execute('SELECT ref FROM "order"')),
            "integrity": ", ".join(line for (line,) in connection.execute("PRAGMA integrity_check")),
        }
    finally:
        connection.close()
