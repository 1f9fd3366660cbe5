"""`fastjobs kinds`: the table of numbers; `fastjobs pause` and `resume`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fastjobs.cli import telling
from fastjobs.store import Claimable, HoldBack
from tests.cli.shop import Shop, fail

MINUTE = 60_000_000


async def busy(app: Any) -> None:
    """Jobs in each state, of each kind."""
    await fail(app, 2)
    await app.index.push(1)
    claimed = await app.store.claim([Claimable(kind="index", hold=MINUTE, attempts=5)], 5)
    await app.index.push(1)
    await app.store.claim([Claimable(kind="index", hold=MINUTE, attempts=5)], 5)  # finds that it has to wait
    assert len(claimed.jobs) == 1
    await app.report.push()
    (job,) = (await app.store.claim([Claimable(kind="report", hold=MINUTE, attempts=5)], 5)).jobs
    await app.store.mark([HoldBack(job.id, job.claim, after=0, kind_for=MINUTE)])
    await app.report.push(after=3600)
    await app.q.pause("verify-mail")
    app.clock.advance(42)


def test_the_kinds_are_told_with_their_numbers_in_columns(shop: Shop) -> None:
    shop.do(busy)
    shop.write("\nclock.advance(42)\n")
    code, out, err = shop.typed("kinds")
    assert (code, err) == (0, "")
    assert out == (
        "kind         waiting  due  oldest  held  parked  failed\n"
        "index              0    0       -     1       1       0\n"
        "report             2    1     42s     0       0       0  held back for 18s\n"
        "verify-mail        0    0       -     0       0       2  paused\n"
    )
    assert shop.typed("kinds", "shop_of_jobs.q")[1] == out


def test_they_are_told_as_json_a_line_each(shop: Shop) -> None:
    shop.do(busy)
    shop.write("\nclock.advance(42)\n")
    code, out, _ = shop.typed("kinds", "--json")
    assert code == 0
    told = [json.loads(line) for line in out.splitlines()]
    assert [each["kind"] for each in told] == ["index", "report", "verify-mail"]
    assert told[1] == {
        "kind": "report",
        "waiting": 2,
        "due": 1,
        "held": 0,
        "parked": 0,
        "failed": 0,
        "oldest": 42.0,
        "held_back": 18.0,
        "paused": False,
        "handled": True,
        "cap": 10_000,
    }


def test_a_kind_without_a_handler_here_is_marked(shop: Shop) -> None:
    shop.do(lambda app: app.report.push())
    shop.typed("kinds")  # it opens the store with all kinds
    shop.write("\nq = fastjobs.Queue(store)\n")
    _, out, _ = shop.typed("kinds")
    index, report = (line for line in out.splitlines() if line.startswith(("index", "report")))
    assert index.endswith("0  no handler here")
    assert report.endswith("0  no handler of it here: its jobs wait for an instance that has one")


def test_a_kind_that_no_job_was_pushed_of_yet_is_there(shop: Shop) -> None:
    assert "\nreport             0    0       -     0       0       0\n" in shop.typed("kinds")[1]
    shop.write("\nq = fastjobs.Queue(fastjobs.SQLStore(engine, prefix='other_'))\n")
    assert shop.typed("kinds") == (0, "shop_of_jobs:q has no kinds, and no job was ever pushed\n", "")
    assert shop.typed("kinds", "--json") == (0, "", "")


def test_a_number_past_the_cap_says_that_there_are_more(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "CAP", 3)
    shop.do(lambda app: fail(app, 5))
    _, out, _ = shop.typed("kinds")
    assert out.splitlines()[-1] == "verify-mail        0    0       -     0       0      3+"
    assert json.loads(shop.typed("kinds", "--json")[1].splitlines()[-1])["failed"] == 4
    assert shop.typed("jobs", "--limit", "1")[1].startswith("3+ jobs failed for good")


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0s"),
        (0.9, "0s"),
        (119, "119s"),
        (120, "2m"),
        (7_199, "119m"),
        (7_200, "2h"),
        (172_800, "2d"),
        (1e7, "115d"),
    ],
)
def test_how_long_is_told_in_one_unit(seconds: float, told: str) -> None:
    assert telling.short(seconds) == told


def test_a_paused_kind_is_not_run_until_it_is_resumed(shop: Shop) -> None:
    async def drained(app: Any) -> int:
        ran: int = await app.q.drain()
        return ran

    shop.do(lambda app: app.report.push())
    code, out, err = shop.typed("pause", "report")
    assert (code, err) == (0, "")
    assert out == (
        "report is paused on all instances: nothing of it starts, what runs goes on, and pushes are kept.\n"
        "Have it start again by: fastjobs resume shop_of_jobs:q report\n"
    )
    assert shop.do(drained) == 0
    assert "  its kind is paused" not in shop.typed("jobs", "show", "1")[1].splitlines()[1:]
    assert "job 1  report, waiting: its kind is paused" in shop.typed("jobs", "show", "1")[1]
    code, out, err = shop.typed("resume", "shop_of_jobs:q", "report")
    assert (code, out, err) == (
        0,
        "report is paused no more: what is due starts, as each instance finds it.\n",
        "",
    )
    assert shop.do(drained) == 1


def test_a_pause_is_told_as_json(shop: Shop) -> None:
    assert shop.typed("pause", "--json", "report") == (0, '{"kind": "report", "paused": true}\n', "")
    assert shop.typed("pause", "report", "--json")[0] == 0  # again
    assert shop.typed("resume", "report", "--json") == (0, '{"kind": "report", "paused": false}\n', "")
    assert shop.typed("resume", "report", "--json")[0] == 0  # one that isn't paused


@pytest.mark.parametrize("word", ["pause", "resume"])
def test_a_kind_that_there_isnt_is_a_mistake_that_names_those_there_are(shop: Shop, word: str) -> None:
    code, out, err = shop.typed(word, "reports")
    assert (code, out) == (2, "")
    assert err == (
        f"fastjobs: shop_of_jobs:q: there is no kind 'reports' to {word}; there are: index, report, verify-mail\n"
    )


@pytest.mark.parametrize("words", [[], ["shop_of_jobs:q", "report", "index"]], ids=" ".join)
def test_one_kind_is_paused_at_a_time(shop: Shop, words: list[str]) -> None:
    assert shop.typed("pause", *words) == (
        2,
        "",
        "fastjobs: pause takes one kind, as in: fastjobs pause app:q mail\n",
    )


@pytest.mark.parametrize("word", ["pause", "resume"])
def test_a_queue_without_a_kind_is_asked_for_the_kind(
    shop: Shop, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FASTJOBS_QUEUE")
    asked = f"fastjobs: which kind? It comes last, as in: fastjobs {word} shop_of_jobs:q mail\n"
    assert shop.typed(word, "shop_of_jobs:q") == (2, "", asked)
    assert shop.typed(word, "mail")[2].startswith("fastjobs: which queue?")


def test_a_word_too_many_is_named_as_one(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    for left, told in (("report", "one word too many: report"), ("--quick", "there is no --quick")):
        with pytest.raises(SystemExit):
            shop.typed("kinds", "shop_of_jobs:q", left)
        assert capsys.readouterr().err.endswith(f"fastjobs kinds: error: {told}\n")


def test_kinds_to_run_without_commas_between_are_asked_for_with_them(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        shop.typed("run", "shop_of_jobs:q", "--kinds", "mail", "report", "letter")
    told = "one word too many: report letter; kinds have commas between, as in: --kinds mail,report,letter\n"
    assert capsys.readouterr().err.endswith(f"fastjobs run: error: {told}")
