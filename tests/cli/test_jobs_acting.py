"""`fastjobs jobs retry`, `cancel` and `delete`: what they do, in which words, and what they exit with."""

from __future__ import annotations

import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
from typing import Any, cast

import pytest

import fastjobs
from fastjobs.cli import acting
from fastjobs.store import Claimable, JobState
from fastjobs.testing import Clock
from tests.cli.process import ROOT
from tests.cli.shop import Shop, fail

GONE = "there's no such job: it's done, was removed, or never was"


def states(shop: Shop) -> dict[str, JobState]:
    """How each job stands that is kept."""

    async def work(app: Any) -> dict[str, JobState]:
        found = [await app.q.job(str(n)) for n in range(1, 20)]
        return {job.id: job.state for job in found if job is not None}

    told: dict[str, JobState] = shop.do(work)
    return told


@pytest.mark.parametrize(
    "words",
    [
        ["jobs", "retry", "2"],
        ["jobs", "shop_of_jobs:q", "retry", "2"],
        ["jobs", "shop_of_jobs.q", "retry", "2", "2"],
        ["jobs", "--app", "", "shop_of_jobs:q", "retry", "2"],
    ],
    ids=" ".join,
)
def test_a_failed_job_is_put_back_whichever_way_its_queue_is_named(shop: Shop, words: list[str]) -> None:
    shop.do(lambda app: fail(app, 2))
    assert shop.typed(*words) == (0, "1 job back to run, as the app's queue finds it.\n", "")
    assert states(shop) == {"1": JobState.FAILED, "2": JobState.WAITING}


@pytest.mark.parametrize(
    "words",
    [
        ["--json", "retry", "1"],
        ["retry", "--json", "1"],
        ["retry", "1", "--json"],
        ["shop_of_jobs:q", "--json", "retry", "1"],
        ["shop_of_jobs:q", "retry", "--json", "1"],
        ["--json", "shop_of_jobs:q", "retry", "1"],
    ],
    ids=" ".join,
)
def test_options_may_stand_anywhere_among_the_words(shop: Shop, words: list[str]) -> None:
    shop.do(fail)
    assert shop.typed("jobs", *words) == (0, '{"run_again": 1, "missed": []}\n', "")


def test_all_or_those_of_a_kind_are_put_back_and_run_from_their_first_attempt(shop: Shop) -> None:
    async def work(app: Any) -> None:
        await fail(app, 3)
        await app.report.push()
        await app.q.drain()

    shop.do(work)
    assert (
        shop.typed("jobs", "retry", "--kind", "report")[1]
        == "1 job back to run, as the app's queue finds it.\n"
    )
    assert [id for id, state in states(shop).items() if state is JobState.WAITING] == ["4"]
    assert shop.typed("jobs", "retry", "all")[1] == "3 jobs back to run, as the app's queue finds them.\n"
    assert set(states(shop).values()) == {JobState.WAITING}
    assert shop.typed("jobs", "retry", "all") == (
        0,
        "0 jobs back to run, as the app's queue finds them.\n",
        "",
    )

    async def attempts(app: Any) -> list[int]:
        return [(await app.q.job(id)).attempts for id in "1234"]

    assert shop.do(attempts) == [0, 0, 0, 0]


@pytest.mark.parametrize("page", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(("word", "left"), [("retry", 4), ("delete", 0)])
def test_many_are_taken_in_pages_each_job_once(
    shop: Shop, word: str, left: int, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acting, "_PAGE", page)
    shop.do(lambda app: fail(app, 4))
    assert shop.typed("jobs", word, "all", "--json")[1] == (
        '{"run_again": 4, "missed": []}\n' if word == "retry" else '{"deleted": 4, "missed": []}\n'
    )
    assert len(states(shop)) == left


def test_what_fails_anew_while_all_are_put_back_is_left_for_the_next_time(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acting, "_PAGE", 1)
    shop.do(lambda app: fail(app, 3))
    run_again = fastjobs.Queue.run_again

    async def and_fails(self: fastjobs.Queue, *ids: str, **which: Any) -> int:
        put_back = await run_again(self, *ids, **which)
        cast("Clock", self.clock).advance(1)
        await self.drain()
        return put_back

    monkeypatch.setattr(fastjobs.Queue, "run_again", and_fails)
    assert shop.typed("jobs", "retry", "all")[1] == "3 jobs back to run, as the app's queue finds them.\n"
    assert set(states(shop).values()) == {JobState.FAILED}


@pytest.mark.parametrize(("word", "key"), [("retry", "run_again"), ("delete", "deleted")])
def test_jobs_that_have_not_failed_are_left_alone_and_named_with_what_they_are(
    shop: Shop, word: str, key: str
) -> None:
    async def work(app: Any) -> None:
        await fail(app)
        await app.report.push(after=3600)

    shop.do(work)
    code, out, err = shop.typed("jobs", word, "1", "2", "99")
    assert code == 1
    assert (
        out
        == {
            "retry": "1 job back to run, as the app's queue finds it.\n",
            "delete": "1 job deleted.\n",
        }[word]
    )
    assert err == (
        "fastjobs: job 2: it hasn't failed: it waits for its time, 2026-09-28 11:02:03 UTC\n"
        f"fastjobs: job 99: {GONE}\n"
    )
    code, out, err = shop.typed("jobs", word, "99", "--json")
    assert (code, json.loads(out)) == (1, {key: 0, "missed": ["99"]})
    assert shop.typed("jobs", word, "99") == (1, "", f"fastjobs: job 99: {GONE}\n")
    assert "2" in states(shop)


@pytest.mark.parametrize("word", ["retry", "delete"])
def test_a_kind_in_the_place_of_an_id_is_told_with_the_option_that_it_wants(shop: Shop, word: str) -> None:
    shop.do(fail)
    assert shop.typed("jobs", word, "verify-mail") == (
        1,
        "",
        "fastjobs: job verify-mail: there's no such job, as it's a kind: --kind verify-mail means its failed jobs\n",
    )
    assert list(states(shop).values()) == [JobState.FAILED]


def test_failed_jobs_are_deleted_by_id_by_kind_and_all(shop: Shop) -> None:
    async def work(app: Any) -> None:
        await fail(app, 3)
        await app.report.push()
        await app.q.drain()

    shop.do(work)
    assert shop.typed("jobs", "delete", "1") == (0, "1 job deleted.\n", "")
    assert shop.typed("jobs", "delete", "--kind", "report")[1] == "1 job deleted.\n"
    assert set(states(shop)) == {"2", "3"}
    assert shop.typed("jobs", "delete", "all", "--kind", "verify-mail")[1] == "2 jobs deleted.\n"
    assert shop.typed("jobs", "delete", "all") == (0, "0 jobs deleted.\n", "")


class Terminal(io.StringIO):
    """A person at a terminal, who types this."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "nonsense\n", "y", "Y\n", "yes\n"])
@pytest.mark.parametrize("words", [["all"], ["--kind", "verify-mail"]], ids=" ".join)
def test_who_is_at_a_terminal_is_asked_before_many_are_deleted(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, words: list[str], answer: str
) -> None:
    shop.do(lambda app: fail(app, 2))
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    code, out, err = shop.typed("jobs", "delete", *words)
    of = " of verify-mail" if words != ["all"] else ""
    question = f"Delete all 2 failed jobs{of}, in shop_of_jobs:q? They don't come back. [y/N] "
    if answer.strip().lower() in ("y", "yes"):
        assert (code, out, err) == (0, "2 jobs deleted.\n", question)
        assert states(shop) == {}
    else:
        assert (code, out, err) == (1, "", f"{question}fastjobs: nothing was deleted\n")
        assert len(states(shop)) == 2


@pytest.mark.parametrize("words", [["all", "--yes"], ["1", "2"]], ids=" ".join)
def test_nobody_is_asked_who_said_yes_or_named_the_jobs(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    shop.do(lambda app: fail(app, 2))
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert shop.typed("jobs", "delete", *words) == (0, "2 jobs deleted.\n", "")


def test_nobody_is_asked_where_nothing_is_lost(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert shop.typed("jobs", "delete", "all") == (0, "0 jobs deleted.\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
@pytest.mark.parametrize("typed", ["ctrl-c", "n", "y"])
def test_a_real_terminal_is_asked_and_a_ctrl_c_there_deletes_nothing(shop: Shop, typed: str) -> None:
    import pty

    shop.do(fail)
    terminal, inside = pty.openpty()
    command = subprocess.Popen(
        [sys.executable, "-m", "fastjobs", "jobs", "delete", "all"],
        stdin=inside, stdout=inside, stderr=inside, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    os.close(inside)
    told = b""
    try:
        while b"[y/N]" not in told:
            told += os.read(terminal, 1000)
        if typed == "ctrl-c":
            command.send_signal(signal.SIGINT)
        else:
            os.write(terminal, f"{typed}\n".encode())
        while read := read_or_end(terminal):
            told += read
    finally:
        os.close(terminal)
        try:
            code = command.wait(30)
        finally:
            command.kill()
            command.wait()
    assert (code, len(states(shop))) == ((0, 0) if typed == "y" else (1, 1)), told.decode()
    assert b"Traceback" not in told, told.decode()


def read_or_end(terminal: int) -> bytes:
    """What comes from a terminal; nothing at its end, which Linux makes an error."""
    try:
        return os.read(terminal, 1000)
    except OSError:
        return b""


def test_how_far_it_is_is_told_on_a_terminal_alone(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.do(lambda app: fail(app, 3))
    monkeypatch.setattr(acting, "_PAGE", 2)
    assert shop.typed("jobs", "retry", "all")[2] == ""
    shop.do(lambda app: app.q.drain())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code, out, err = shop.typed("jobs", "retry", "all")
    assert (code, out) == (0, "3 jobs back to run, as the app's queue finds them.\n")
    assert err == "\r\x1b[K2 jobs so far\r\x1b[K3 jobs so far\r\x1b[K"


def test_what_was_done_before_the_database_went_away_is_told(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.do(lambda app: fail(app, 3))
    monkeypatch.setattr(acting, "_PAGE", 2)
    failed = fastjobs.Queue.failed

    async def goes_away(self: fastjobs.Queue, **which: Any) -> object:
        if which["after"] is not None:
            raise sqlite3.OperationalError("disk I/O error")
        return await failed(self, **which)

    monkeypatch.setattr(fastjobs.Queue, "failed", goes_away)
    assert shop.typed("jobs", "retry", "all") == (
        1,
        "2 jobs back to run, as the app's queue finds them.\n",
        "fastjobs: the store of shop_of_jobs:q can't be asked: OperationalError: disk I/O error\n",
    )


def test_a_job_that_waits_is_cancelled_and_one_that_runs_asked_to_stop(shop: Shop) -> None:
    async def work(app: Any) -> None:
        await app.report.push()
        await app.store.claim([Claimable(kind="report", hold=60_000_000, attempts=5)], 1)
        await app.report.push()
        await app.report.push()
        await fail(app)

    shop.do(work)
    failed = next(id for id, state in states(shop).items() if state is JobState.FAILED)
    asked = (
        "it runs, and is asked to stop: an async handler is cancelled within seconds, a def in a thread ends where it"
        " looks at current_job().cancelled, and the job is removed"
    )
    left = [id for id, state in states(shop).items() if state is JobState.WAITING]
    assert left == []  # the drain ran them
    code, out, err = shop.typed("jobs", "cancel", "1", failed, "99")
    assert code == 1
    assert out == f"job 1: {asked}\n"
    assert err == (
        f"fastjobs: job {failed}: it has failed, and runs no more: delete removes it\nfastjobs: job 99: {GONE}\n"
    )
    assert "stop       it was asked to stop" in shop.typed("jobs", "show", "1")[1]
    shop.do(lambda app: app.report.push(after=60))
    (waits,) = (id for id, state in states(shop).items() if state is JobState.WAITING)
    assert shop.typed("jobs", "cancel", waits) == (0, f"job {waits}: it waited, and is removed\n", "")
    assert waits not in states(shop)
    code, out, err = shop.typed("jobs", "cancel", "1", waits, "--json")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"id": "1", "cancelled": "asked"},
        {"id": waits, "cancelled": "not there"},
    ]
    assert (code, err) == (1, f"fastjobs: job {waits}: {GONE}\n")


def test_a_cancel_that_meets_someones_transaction_says_so(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(self: fastjobs.Queue, id: str) -> fastjobs.Cancelled:
        return fastjobs.Cancelled.BUSY

    monkeypatch.setattr(fastjobs.Queue, "cancel", busy)
    code, out, err = shop.typed("jobs", "cancel", "1")
    assert (code, out) == (1, "")
    assert err == (
        "fastjobs: job 1: someone's open transaction has it, and nothing was changed: try again in a moment\n"
    )


MISTAKES: dict[str, str] = {
    "42": "what is to become of job 42? Look at it by: fastjobs jobs show 42",
    "shop_of_jobs:q 42": "what is to become of job 42? Look at it by: fastjobs jobs shop_of_jobs:q show 42",
    "retyr 42": "'retyr' is neither a queue, as in app:q, nor one of retry, show, cancel, delete",
    "shop_of_jobs:q retyr": "after the queue comes one of retry, show, cancel, delete, and 'retyr' is none",
    "retry": "retry takes the ids of failed jobs, or all, or --kind, as in: fastjobs jobs retry 42",
    "retry all 42": "retry takes ids or all, not both: all 42",
    "retry 42 --kind report": "retry takes ids or --kind, not both: 42 and report",
    "retry --all": "retry takes no --all: write retry all",
    "retry shop_of_jobs:q 42": "the queue comes first, as in: fastjobs jobs shop_of_jobs:q retry …",
    "retry 42 --yes": "retry takes no --yes",
    "show": "show takes the ids of jobs, as in: fastjobs jobs show 42",
    "shop_of_jobs:q show": "show takes the ids of jobs, as in: fastjobs jobs shop_of_jobs:q show 42",
    "shop_of_jobs:q retry": "retry takes the ids of failed jobs, or all, or --kind, as in: fastjobs jobs shop_of_jobs:q"
    " retry 42",
    "show all": "show takes the ids of jobs, as in: fastjobs jobs show 42",
    "show 1 --all": "show takes no --all",
    "show 1 --whole": "show takes no --whole",
    "cancel": "cancel takes the ids of jobs, as in: fastjobs jobs cancel 42",
    "cancel 1 --kind report": "cancel takes no --kind",
    "delete --waiting report": "delete takes no --waiting",
    "delete all --limit 3": "delete takes no --limit",
    "--kind report --waiting report": "--kind is for failed jobs: --waiting and --held name a kind themselves",
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_what_cant_be_meant_is_a_mistake_that_says_what_to_write(shop: Shop, typed: str) -> None:
    shop.do(fail)
    assert shop.typed("jobs", *typed.split()) == (2, "", f"fastjobs: {MISTAKES[typed]}\n")
    assert states(shop) == {"1": JobState.FAILED}


@pytest.mark.parametrize(
    "typed",
    ["--limit 0", "--limit x", "--all --limit 3", "--waiting a --held b", "--nothing", "retry 1 --nothing 2"],
)
def test_options_that_there_are_none_of_exit_with_2(
    shop: Shop, typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        shop.typed("jobs", *typed.split())
    assert exited.value.code == 2
    assert "usage: fastjobs jobs [queue] [retry|show|cancel|delete [ID ...|all]]" in capsys.readouterr().err
