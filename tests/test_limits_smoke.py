"""A short hammering of all limits in the ordinary run, and what its check sees where there's something to see."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.databases.postgres import Database
from tests.soak.history import Claim, Fault, History, Left, Marked
from tests.soak.indexed import Indexed
from tests.soak.limits_app import prepare
from tests.soak.limits_checking import Spans, Told, check, freed, fullest, lost, most_at_once
from tests.soak.limits_stores import CAUGHT_BY, break_database

ROOT = Path(__file__).parent.parent
SECOND = 1_000_000_000
HOLD = 2.0


def hammered(options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.soak.limits", *options.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.timeout(110)
def test_no_limit_is_passed_as_processes_are_killed() -> None:
    ran = hammered("--seconds 2.5 --processes 3 --kills 2 --hold 1.5")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "kills: 2" in ran.stdout


@pytest.mark.timeout(110)
@pytest.mark.parametrize("control", ["no-count", "no-rate"])
def test_a_limit_that_is_taken_out_is_missed(control: str) -> None:
    ran = hammered(f"--seconds 0.5 --processes 3 --kills 0 --control {control}")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "the control was caught" in ran.stdout


@pytest.mark.parametrize("control", CAUGHT_BY)
def test_each_control_finds_what_it_takes_out_of_the_functions(
    control: str, postgres_database: Database
) -> None:
    asyncio.run(prepare(postgres_database.url("asyncpg")))
    break_database(control, postgres_database.url(), None)


@pytest.mark.parametrize(
    ("dialect", "made"),
    [
        ("sqlite", "from fastjobs.stores.sql.dialects.sqlite.database import make_keyed as make"),
        ("mysql", "from fastjobs.stores.sql.dialects.mysql.database import make_statements as make"),
    ],
)
@pytest.mark.parametrize("control", ["no-lock", "no-index", "no-names"])
def test_each_control_finds_what_it_takes_out_of_the_statements(
    control: str, dialect: str, made: str
) -> None:
    # In a process of its own, which it leaves broken.
    lines = (
        f"from tests.soak.limits_stores import broken_here; broken_here({control!r}, {dialect!r})",
        f"{made}; from fastjobs.stores.sql.tables import make_tables; make(make_tables(dialect={dialect!r}))",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=ROOT, check=True, timeout=50)


def claim(
    at: float, *, kind: str = "turn", id: str = "1", token: int = 1, ref: str = "key 1", process: str = "p0-0"
) -> Claim:
    """One that was answered so many seconds after the beginning."""
    moment, now = int(at * SECOND), int(at * 1e6)
    return Claim(process, id, token, kind, ref, 1, now, now + int(HOLD * 1e6), moment, moment)


def done(at: float, *, id: str = "1", token: int = 1, answer: str | None = "yes") -> Marked:
    return Marked("p0-0", id, token, "done", int(at * SECOND), answer)


def history(*claims: Claim, marks: tuple[Marked, ...] = (), left: tuple[Left, ...] = ()) -> Indexed:
    return Indexed(History({}, claims=list(claims), marks=list(marks), left=list(left)))


def rules(of: Indexed, told: Told | None = None, sampled: dict[str, int] | None = None) -> set[str]:
    found, _ = check(of, told or Told(), sampled or {}, HOLD, 0)
    return {each.rule for each in found}


def test_two_that_follow_each_other_are_not_held_at_once() -> None:
    one, two = claim(1), claim(1.5, id="2")
    assert rules(history(one, two, marks=(done(1.4), done(1.6, id="2")))) == set()
    assert rules(history(one, two, marks=(done(1.51), done(1.6, id="2")))) == {"one at a time"}
    # What had no end is over with its hold.
    assert rules(history(one, claim(1 + HOLD, id="2"))) == set()
    assert rules(history(one, claim(0.9 + HOLD, id="2"))) == {"one at a time"}


def test_an_extended_hold_goes_on() -> None:
    longer = Marked("p0-0", "1", 1, "extend", 2 * SECOND, "yes", 0)
    assert rules(history(claim(1), claim(3.5, id="2"), marks=(longer,))) == {"one at a time"}


def test_more_at_once_than_may_be_are_seen() -> None:
    claims = [claim(1 + n / 10, kind="three", id=str(n), ref=str(n)) for n in range(4)]
    assert rules(history(*claims[:3])) == set()
    assert rules(history(*claims)) == {"at once"}
    spans = Spans(history(*claims))
    assert most_at_once(spans.by_kind["three"]) == 4


def test_a_windows_end_is_not_in_it() -> None:
    assert fullest([0, 5, 10], 10) == 2
    assert fullest([0, 5, 9], 10) == 3
    assert fullest([], 10) == 0


def test_a_name_has_one_job() -> None:
    one, two = claim(1, kind="named", ref="a"), claim(2, kind="named", ref="a", id="2")
    assert rules(history(one)) == set()
    assert rules(history(one, two)) == {"named once"}


def test_two_that_wait_of_one_value_are_seen() -> None:
    assert rules(history(), sampled={"turn key 1": 1}) == set()
    assert rules(history(), sampled={"turn key 1": 2}) == {"unique"}


def test_a_push_that_is_lost_left_or_belied_is_seen() -> None:
    pushed = ("pushed", "turn", "key 1", "1", 1 * SECOND, 2 * SECOND)
    assert list(lost(history(claim(2), marks=(done(3),)), Told([pushed]))) == []
    assert len(list(lost(history(claim(2)), Told([pushed])))) == 1
    left = history(left=(Left("1", "turn", "key 1", 0, 0),))
    assert len(list(lost(left, Told([pushed])))) == 2
    waits = ("pushed", "turn", "key 1", None, 5 * SECOND, 6 * SECOND)
    assert len(list(lost(history(claim(2), marks=(done(3),)), Told([waits])))) == 1
    assert list(lost(history(claim(5.5), marks=(done(6),)), Told([waits]))) == []
    back = ("rolled back", "plain", "x", "1", 1 * SECOND, 2 * SECOND)
    assert len(list(lost(history(claim(2, kind="plain", ref="x"), marks=(done(3),)), Told([back])))) == 1


def test_what_a_killed_process_held_is_anothers_in_time() -> None:
    kill = Fault("p0-0", "kill", 1.5 * SECOND)
    after = claim(3.2, id="2", process="p1-0")
    assert [seconds for seconds, _ in freed(Spans(history(claim(1), after)), [kill], HOLD)] == [1.7]
    of = history(claim(1), claim(6, id="2", process="p1-0"))
    of.history.faults.append(kill)
    assert rules(of) == {"freed late"}
    # It had ended.
    assert list(freed(Spans(history(claim(1), after, marks=(done(1.2),))), [kill], HOLD)) == []


def test_an_error_of_a_caller_and_a_deadlock_are_told() -> None:
    assert rules(history(), Told(errors=["turn: DeadlockDetected"])) == {"error"}
    assert {each.rule for each in check(history(), Told(), {}, HOLD, 1)[0]} == {"deadlock"}
