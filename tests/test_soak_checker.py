"""The soak's checker: each broken promise is found in a history made by hand, and a sound one passes.

Longer than 300 lines, as each rule has a history of its own for each way to break it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.soak.checking import MOST_LINES, RULES, Violation, check
from tests.soak.counting import count
from tests.soak.history import (
    TABLES,
    Claim,
    Ended,
    Fault,
    History,
    Left,
    Looked,
    Marked,
    Outage,
    Pushed,
    Started,
    read,
)
from tests.soak.logs import LogLine, said

SECOND = 1_000_000
HOLD = 3 * SECOND
FAILED, READY, HELD = 3, 0, 1


def moment(seconds: float) -> int:
    """The monotonic moment, in nanoseconds, of an instant of the store's."""
    return int(seconds * 1e9)


class Story:
    """A history as it's told: the store's now and the moments go together, in seconds."""

    def __init__(self) -> None:
        self.history = History(
            attempts={"quick": 10, "hopeless": 2, "poison": 1}, always_fails=frozenset({"hopeless", "poison"})
        )

    def push(
        self,
        id: str,
        *,
        in_tx: bool = False,
        doomed: bool = False,
        outcome: str | None = "acked",
        row: bool | None = None,
    ) -> None:
        told = id if outcome == "acked" else None
        self.history.pushes.append(Pushed(f"p{id}", in_tx, doomed, outcome, told))
        if in_tx if row is None else row:
            self.history = replace(self.history, orders=self.history.orders | {f"p{id}"})

    def claim(
        self,
        id: str,
        claim: int,
        at: float,
        by: str = "a",
        *,
        attempts: int = 1,
        kind: str = "quick",
        ref: str | None = None,
        exhausted: bool = False,
        started: bool = True,
    ) -> None:
        now = int(at * SECOND)
        until = now if exhausted else now + HOLD
        ref = ref or f"p{id}"
        self.history.claims.append(
            Claim(by, id, claim, kind, ref, attempts, now, until, moment(at), moment(at), exhausted)
        )
        if started and not exhausted:
            self.history.starts.append(Started(by, id, claim, ref, attempts, moment(at)))

    def end(self, id: str, claim: int, at: float, how: str = "ok", by: str = "a") -> None:
        self.history.ends.append(Ended(by, id, claim, how, moment(at)))

    def mark(
        self,
        id: str,
        claim: int,
        at: float,
        what: str = "done",
        answer: str | None = "yes",
        by: str = "a",
    ) -> None:
        until = int(at * SECOND) + HOLD if what == "extend" else 0
        self.history.marks.append(Marked(by, id, claim, what, moment(at), answer, until))

    def run(self, id: str, claim: int, at: float, by: str = "a") -> None:
        """A whole run of a job that works."""
        self.claim(id, claim, at, by)
        self.end(id, claim, at + 0.1, by=by)
        self.mark(id, claim, at + 0.2, by=by)

    def fault(self, process: str, what: str, since: float, until: float = float("inf")) -> None:
        self.history.faults.append(Fault(process, what, since * 1e9, until * 1e9))

    def outage(
        self,
        what: str,
        since: float,
        until: float,
        *,
        up: tuple[str, ...] = (),
        looked: float | None = None,
        lines: int = 0,
    ) -> None:
        """One of the database's; the processes that were up, the next claim, and how often the failing was told."""
        wall = 1_800_000_000.0
        self.history.outages.append(Outage(what, since * 1e9, until * 1e9, 1, wall))
        self.history.ups.update(dict.fromkeys(up, 0.0))
        if looked is not None:
            self.history.looks.append(Looked("f", moment(looked), moment(looked)))
        self.history.log.extend(LogLine("f", wall + 1, "the store failed part=claim") for _ in range(lines))

    def left(self, id: str, state: int, *, kind: str = "quick", attempts: int = 10) -> None:
        self.history.left.append(Left(id, kind, f"p{id}", state, attempts))

    def rules(self) -> set[str]:
        return {violation.rule for violation in check(self.history)}


@pytest.fixture
def sound() -> Story:
    """One of everything that may be."""
    story = Story()
    story.push("1")
    story.run("1", 1, 0)
    story.push("2", in_tx=True)  # its worker is killed, and another's run is done
    story.claim("2", 1, 0)
    story.fault("a", "kill", 1)
    story.run("2", 2, 3, "b")
    story.push("3", in_tx=True, doomed=True, outcome="rolled back", row=False)
    story.push("4", in_tx=True, outcome=None)  # no answer, and kept
    story.run("4", 1, 1, "b")
    story.push("5", in_tx=True, outcome=None, row=False)  # no answer, and not kept
    story.push("6", outcome="refused")
    story.push("7")  # frozen past its hold: its end comes late, and is ignored
    story.claim("7", 1, 5, "b")
    story.fault("b", "freeze", 5, 8.4)
    story.run("7", 2, 8.1, "c")
    story.end("7", 1, 8.4, by="b")
    story.mark("7", 1, 8.4, "done", "lost", "b")
    story.push("8")  # retried, then failed for good
    story.claim("8", 1, 0, "c", kind="hopeless")
    story.end("8", 1, 0.1, "RuntimeError", "c")
    story.mark("8", 1, 0.1, "try again", by="c")
    story.claim("8", 3, 0.4, "c", kind="hopeless", attempts=2)
    story.end("8", 3, 0.5, "RuntimeError", "c")
    story.mark("8", 3, 0.5, "fail", by="c")
    story.left("8", FAILED, kind="hopeless", attempts=2)
    story.history.on_fails.append("8")
    story.push("9")  # it kills its process, and is given up
    story.claim("9", 1, 10, "d", kind="poison")
    story.fault("d", "poison", 10)
    story.fault("d", "death", 10.1)
    story.claim("9", 2, 13, "c", kind="poison", exhausted=True)
    story.left("9", FAILED, kind="poison", attempts=1)
    story.push("10")  # renewed, then put back by a stop
    story.claim("10", 1, 20, "c")
    story.mark("10", 1, 21, "extend", by="c")
    story.fault("c", "stop", 22)
    story.end("10", 1, 23, "CancelledError", "c")
    story.mark("10", 1, 23, "give back", by="c")
    story.run("10", 3, 23.1, "e")
    story.push("11")  # its end was kept, and the process killed before it had the answer
    story.claim("11", 1, 30, "e")
    story.end("11", 1, 30.1, by="e")
    story.mark("11", 1, 30.1, "done", None, by="e")
    return story


def test_a_sound_history_passes_and_is_counted(sound: Story) -> None:
    assert check(sound.history) == []
    counts = count(sound.history)
    assert (counts.acked, counts.rolled_back, counts.unanswered, counts.refused) == (7, 1, 2, 1)
    assert counts.unanswered_kept == 1
    assert dict(counts.repeats) == {"kill": 1, "freeze": 1, "retry": 1, "poison": 1, "stop": 1}
    assert (counts.late_ends, counts.late_renewals) == (1, 0)
    assert (counts.done, counts.failed, counts.faults["kill"]) == (5, 2, 1)


def vanished(story: Story) -> None:
    story.push("20")


def vanished_after_a_claim(story: Story) -> None:
    story.push("20")
    story.claim("20", 1, 0)


def left_ready(story: Story) -> None:
    story.push("20")
    story.left("20", READY, attempts=0)


def left_held(story: Story) -> None:
    story.push("20")
    story.claim("20", 1, 0)
    story.left("20", HELD, attempts=1)


def another_id(story: Story) -> None:
    story.push("20")
    story.claim("21", 1, 0, ref="p20")
    story.end("21", 1, 0)
    story.mark("21", 1, 0)


def ran_though_rolled_back(story: Story) -> None:
    story.push("20", in_tx=True, doomed=True, outcome="rolled back", row=False)
    story.run("20", 1, 0)


def ran_though_refused(story: Story) -> None:
    story.push("20", outcome="refused")
    story.run("20", 1, 0)


def acknowledged_though_rolled_back(story: Story) -> None:
    story.push("20", in_tx=True, doomed=True, row=False)


def nobody_pushed_it(story: Story) -> None:
    story.run("20", 1, 0)


def two_jobs_of_an_unanswered_push(story: Story) -> None:
    story.push("20", outcome=None)
    story.run("20", 1, 0)
    story.claim("21", 1, 0, ref="p20")
    story.end("21", 1, 0)
    story.mark("21", 1, 0)


def an_id_used_again(story: Story) -> None:
    story.push("20", outcome=None)
    story.push("21", outcome=None)
    story.run("20", 1, 0)
    story.claim("20", 1, 9, "e", ref="p21")


def a_row_without_its_job(story: Story) -> None:
    story.push("20", in_tx=True, outcome=None, row=True)


def a_job_without_its_row(story: Story) -> None:
    story.push("20", in_tx=True, row=False)
    story.run("20", 1, 0)


def a_row_that_was_rolled_back(story: Story) -> None:
    story.push("20", in_tx=True, doomed=True, outcome="rolled back", row=True)


def a_row_of_nobody(story: Story) -> None:
    story.history = replace(story.history, orders=story.history.orders | {"p99"})


def claimed_while_held(story: Story) -> None:
    story.push("20")
    story.claim("20", 1, 0)
    story.run("20", 2, 2.99, "b")


def claimed_while_its_hold_was_extended(story: Story) -> None:
    story.push("20")
    story.claim("20", 1, 0)
    story.mark("20", 1, 1, "extend")
    story.run("20", 2, 3.5, "b")


def claimed_twice_by_one_token(story: Story) -> None:
    story.push("20")
    story.claim("20", 1, 0, started=False)
    story.run("20", 1, 4, "b")


def a_late_end_that_was_kept(story: Story) -> None:
    story.push("20")
    story.claim("20", 1, 0, "a")
    story.run("20", 2, 3.1, "b")
    story.end("20", 1, 3.4)
    story.mark("20", 1, 3.4)


def a_late_end_that_the_tokens_show(story: Story) -> None:
    story.push("20")
    story.claim("20", 1, 0)
    story.end("20", 1, 3)
    story.mark("20", 1, 3, "try again")
    story.run("20", 2, 3.1, "b")


def a_late_renewal_that_was_kept(story: Story) -> None:
    story.push("20")
    story.claim("20", 1, 0)
    story.run("20", 2, 3.1, "b")
    story.mark("20", 1, 3.4, "extend")


def claimed_after_it_was_done(story: Story) -> None:
    story.push("20")
    story.run("20", 1, 0)
    story.run("20", 3, 1, "b")


def ended_twice_by_one_claim(story: Story) -> None:
    story.push("20")
    story.run("20", 1, 0)
    story.mark("20", 1, 0.5)


def done_without_a_run(story: Story) -> None:
    story.push("20")
    story.claim("20", 1, 0, started=False)
    story.mark("20", 1, 0.1)


def done_though_it_raised(story: Story) -> None:
    story.push("20")
    story.claim("20", 1, 0)
    story.end("20", 1, 0.1, "RuntimeError")
    story.mark("20", 1, 0.1)


def lost_to_nobody(story: Story) -> None:
    story.push("20", outcome=None)
    story.claim("20", 1, 0)
    story.end("20", 1, 0.1)
    story.mark("20", 1, 0.1, "done", "lost")


def started_twice_by_one_claim(story: Story) -> None:
    story.push("20")
    story.run("20", 1, 0)
    story.history.starts.append(Started("a", "20", 1, "p20", 1, moment(0.2)))


def started_without_a_claim(story: Story) -> None:
    story.history.starts.append(Started("a", "1", 7, "p1", 1, moment(0.2)))


def more_attempts_than_its_kind_has(story: Story) -> None:
    story.push("20")
    story.claim("20", 21, 0, attempts=11)
    story.end("20", 21, 0)
    story.mark("20", 21, 0)


def given_up_too_soon(story: Story) -> None:
    story.push("20")
    story.claim("20", 3, 0, attempts=2, exhausted=True)
    story.left("20", FAILED)


def failed_too_soon(story: Story) -> None:
    story.push("20")
    story.left("20", FAILED, attempts=9)


def gone_though_it_never_works(story: Story) -> None:
    story.push("20")
    story.claim("20", 1, 0, kind="hopeless")
    story.mark("20", 1, 0, answer=None)


def on_fail_ran_twice(story: Story) -> None:
    story.history.on_fails.append("8")


def on_fail_of_a_job_that_is_done(story: Story) -> None:
    story.history.on_fails.append("1")


def again_for_no_reason(story: Story) -> None:
    story.push("20")
    story.claim("20", 1, 30, "e")
    story.run("20", 2, 33.1, "f")


def killed_after_it_was_claimed_again(story: Story) -> None:
    story.push("20")
    story.claim("20", 1, 30, "e")
    story.run("20", 2, 33.1, "f")
    story.fault("e", "kill", 34)


def given_back_in_the_middle_of_a_run(story: Story) -> None:
    story.push("20")
    story.claim("20", 1, 30, "e")
    story.mark("20", 1, 30.1, "give back", by="e")
    story.run("20", 3, 30.2, "f")


def a_process_that_ended_by_itself(story: Story) -> None:
    story.fault("f", "death", 1)


def a_broken_file(story: Story) -> None:
    story.history = replace(story.history, integrity="row 7 missing from index fastjobs_jobs_ready")


def a_claim_long_after_the_servers_return(story: Story) -> None:
    story.outage("restart", 40, 42, up=("f",), looked=43.2)


def no_claim_since_the_servers_return(story: Story) -> None:
    story.outage("crash", 40, 42, up=("f",))


def a_line_for_each_call_that_failed(story: Story) -> None:
    story.outage("silence", 40, 42, lines=MOST_LINES + 1)


def a_deadlock(story: Story) -> None:
    story.history = replace(story.history, deadlocks=1)


def a_session_left_in_a_transaction(story: Story) -> None:
    story.history = replace(story.history, idle_in_tx=("SELECT 1",))


BROKEN: list[tuple[Callable[[Story], None], str]] = [
    (vanished, "lost"),
    (vanished_after_a_claim, "lost"),
    (left_ready, "lost"),
    (left_held, "lost"),
    (another_id, "lost"),
    (ran_though_rolled_back, "unfounded"),
    (ran_though_refused, "unfounded"),
    (acknowledged_though_rolled_back, "unfounded"),
    (nobody_pushed_it, "unfounded"),
    (two_jobs_of_an_unanswered_push, "unfounded"),
    (an_id_used_again, "unfounded"),
    (a_row_without_its_job, "torn"),
    (a_job_without_its_row, "torn"),
    (a_row_that_was_rolled_back, "torn"),
    (a_row_of_nobody, "torn"),
    (claimed_while_held, "held twice"),
    (claimed_while_its_hold_was_extended, "held twice"),
    (claimed_twice_by_one_token, "held twice"),
    (a_late_end_that_was_kept, "late mark kept"),
    (a_late_end_that_the_tokens_show, "late mark kept"),
    (a_late_renewal_that_was_kept, "late mark kept"),
    (claimed_after_it_was_done, "late mark kept"),
    (ended_twice_by_one_claim, "mark without cause"),
    (done_without_a_run, "mark without cause"),
    (done_though_it_raised, "mark without cause"),
    (lost_to_nobody, "mark without cause"),
    (started_twice_by_one_claim, "started twice"),
    (started_without_a_claim, "started twice"),
    (more_attempts_than_its_kind_has, "attempts"),
    (given_up_too_soon, "attempts"),
    (failed_too_soon, "attempts"),
    (gone_though_it_never_works, "attempts"),
    (on_fail_ran_twice, "attempts"),
    (on_fail_of_a_job_that_is_done, "attempts"),
    (again_for_no_reason, "repeat without cause"),
    (killed_after_it_was_claimed_again, "repeat without cause"),
    (given_back_in_the_middle_of_a_run, "repeat without cause"),
    (a_process_that_ended_by_itself, "death"),
    (a_broken_file, "integrity"),
    (a_claim_long_after_the_servers_return, "slow return"),
    (no_claim_since_the_servers_return, "slow return"),
    (a_line_for_each_call_that_failed, "noisy log"),
    (a_deadlock, "deadlock"),
    (a_session_left_in_a_transaction, "idle in transaction"),
]


@pytest.mark.parametrize(("breaks", "rule"), BROKEN, ids=[breaks.__name__ for breaks, _ in BROKEN])
def test_the_checker_finds(breaks: Callable[[Story], None], rule: str, sound: Story) -> None:
    breaks(sound)
    assert rule in sound.rules()


def test_every_rule_has_a_history_that_breaks_it() -> None:
    assert {rule for _, rule in BROKEN} == set(RULES)


def test_a_job_given_back_before_it_began_is_no_repeat_of_a_run(sound: Story) -> None:
    sound.push("20")
    sound.claim("20", 1, 30, "e", started=False)
    sound.mark("20", 1, 31, "give back", by="e")
    sound.run("20", 3, 31.1, "f")
    assert check(sound.history) == []
    assert count(sound.history).repeats["not begun"] == 1


def test_a_claim_that_nobody_wrote_down_is_followed_by_the_next(sound: Story) -> None:
    # The process was killed between the claim and its line: its token is missing, and its hold was waited for.
    sound.push("20")
    sound.run("20", 2, 9, "b")
    assert check(sound.history) == []


def test_a_history_is_read_from_what_the_processes_wrote_down_and_the_tables(tmp_path: Path) -> None:
    def write(name: str, *said: list[object], cut: str = "") -> None:
        text = "".join(json.dumps(line) + "\n" for line in said)
        (tmp_path / f"{name}.jsonl").write_text(text + cut)

    write(
        "clients",
        [1, "try", "p1", True, False],
        [2, "try", "p1/inner", True, True],
        [3, "acked", "p1", "7"],
        [4, "try", "p2", False, False],
    )
    write("nemesis", [50, "kill", "app1-1"])
    write(
        "app1-1",
        [10, "claimed", "7", 1, "quick", "p1", 1, 1000, 4000, 9],
        [11, "start", "7", 1, "p1", 1],
        [12, "marking", "7", 1, "extend"],
        [13, "marked", "7", 1, "extend", "yes", 5000],
        [14, "freeze", "7"],
        [15, "woke", "7"],
        [16, "end", "7", 1, "ok"],
        [17, "marking", "7", 1, "done"],
        [18, "marking", "7", 1, "done"],
        [19, "marked", "7", 1, "done", "lost", 0],
        [20, "freeze", "8"],
        cut='[21, "claimed", "8", 1, "qu',
    )
    write("app2-1", [30, "exhausted", "8", 3, "quick", "p2", 1, 2000, 29], [31, "on_fail", "8", "LostWorker"])
    with sqlite3.connect(tmp_path / "app.db") as connection:
        connection.execute("CREATE TABLE fastjobs_jobs (id, kind, payload, state, attempts)")
        connection.execute("INSERT INTO fastjobs_jobs VALUES (8, 'quick', '{\"ref\": \"p2\"}', 3, 1)")
        connection.execute('CREATE TABLE "order" (ref)')
        connection.execute("INSERT INTO \"order\" VALUES ('p1')")
    connection.close()

    history = read(tmp_path, {"quick": 1}, [])

    assert history.pushes == [
        Pushed("p1", True, False, "acked", "7"),
        Pushed("p1/inner", True, True, None),
        Pushed("p2", False, False, None),
    ]
    assert history.claims == [
        Claim("app1-1", "7", 1, "quick", "p1", 1, 1000, 4000, 9, 10),
        Claim("app2-1", "8", 3, "quick", "p2", 1, 2000, 2000, 29, 30, True),
    ]
    assert history.starts == [Started("app1-1", "7", 1, "p1", 1, 11)]
    assert history.ends == [Ended("app1-1", "7", 1, "ok", 16)]
    assert history.marks == [
        Marked("app1-1", "7", 1, "extend", 12, "yes", 5000),
        Marked("app1-1", "7", 1, "done", 18, "lost"),
        Marked("app1-1", "7", 1, "done", 17, None),
    ]
    assert sorted(history.faults) == [
        Fault("app1-1", "freeze", 14, 15),
        Fault("app1-1", "freeze", 20),
        Fault("app1-1", "kill", 50),
    ]
    assert history.on_fails == ["8"]
    assert history.left == [Left("8", "quick", "p2", 3, 1)]
    assert history.orders == {"p1"}
    assert history.integrity == "ok"


def test_a_history_on_a_server_is_read_with_what_its_outages_did(tmp_path: Path) -> None:
    def write(name: str, *said: list[object]) -> None:
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in said))

    write("clients", [1, "try", "p1", False, False])
    write("database", [500, "crash", 400, 3, 1_795_969_000.5])
    write("app1-1", [10, "up"], [30, "looked", 20])
    (tmp_path / "app1-1.log").write_text(
        "2026-11-29 16:16:42,242 WARNING fastjobs: the store failed, and is asked again part=claim err=x\n"
        "Traceback (most recent call last):\n"
        "2026-11-29 16:16:43,000 WARNING fastjobs: a job failed, and will run again kind=quick\n"
        "2026-11-29 16:16:43,000 ERROR uvicorn.error: part=none of ours\n"
    )
    kept = {
        "jobs": [["8", "quick", '{"ref": "p1"}', 3, 1]],
        "orders": ["p1"],
        "integrity": "ok",
        "deadlocks": 2,
        "idle_in_tx": ["SELECT 1"],
    }
    (tmp_path / TABLES).write_text(json.dumps(kept))

    history = read(tmp_path, {"quick": 1}, [])

    assert history.left == [Left("8", "quick", "p1", 3, 1)]
    assert history.orders == {"p1"}
    assert (history.deadlocks, history.idle_in_tx) == (2, ("SELECT 1",))
    assert history.outages == [Outage("crash", 400, 500, 3, 1_795_969_000.5)]
    assert history.looks == [Looked("app1-1", 20, 30)]
    assert history.ups == {"app1-1": 10}
    assert [line.is_of_outage for line in history.log] == [True, False]
    assert history.log == list(said(tmp_path / "app1-1.log"))


@pytest.mark.parametrize(
    ("fault", "is_slow"),
    [("none", True), ("kill", False), ("freeze", False)],
)
def test_a_server_that_is_back_waits_for_no_process_that_is_gone(
    fault: str, is_slow: bool, sound: Story
) -> None:
    a_claim_long_after_the_servers_return(sound)
    if fault != "none":
        sound.fault("f", fault, 41, 44 if fault == "freeze" else float("inf"))
    assert ("slow return" in sound.rules()) is is_slow
    assert count(sound.history).returns == ([pytest.approx(1.2)] if is_slow else [])


@pytest.mark.parametrize(("took", "is_over"), [(0.2, False), (0.45, True)])
def test_on_a_server_a_claim_is_made_at_some_time_until_its_answer(
    took: float, is_over: bool, sound: Story
) -> None:
    # A third process, which was asked later, put the job back as its hold was over, and left it for this one.
    sound.push("20")
    sound.claim("20", 1, 30, "e")
    sound.fault("e", "kill", 31)
    sound.run("20", 2, 32.5, "f")
    *others, claim = sound.history.claims
    claims = [*others, claim._replace(at=moment(32.5 + took))]
    sound.history = replace(sound.history, claims=claims, apart=0.1)
    assert (check(sound.history) == []) is is_over


def test_a_job_that_could_not_be_renewed_in_an_outage_is_claimed_again_for_a_cause(sound: Story) -> None:
    sound.push("20")
    sound.claim("20", 1, 30, "e")
    sound.outage("silence", 31, 34.5)
    sound.run("20", 2, 35, "f")
    assert check(sound.history) == []
    assert count(sound.history).repeats["outage"] == 1


def test_a_violation_says_what_was_broken_in_words(sound: Story) -> None:
    claimed_while_held(sound)
    assert Violation(
        "held twice", "job 20 was held by a (claim 1) for another 0.010 s as b claimed it (claim 2)"
    ) in (check(sound.history))
