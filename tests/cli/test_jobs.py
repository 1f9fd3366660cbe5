"""`fastjobs jobs`: what it lists, page for page, and what it tells of one job."""

from __future__ import annotations

import json
from typing import Any

import pytest

import fastjobs
from fastjobs.cli import listing
from fastjobs.cli.command import main
from fastjobs.core.request_id import current
from fastjobs.store import Claimable
from tests.cli.shop import Shop, fail

WHEN = "2026-09-28 10:02:03 UTC"


def test_failed_jobs_are_told_with_their_request_their_value_and_their_error(shop: Shop) -> None:
    async def work(app: Any) -> None:
        token = current.set("SCK2WDZAHS33MHC2HQCFU7KWMK")
        await app.verify.push(app.Mail(user=7, email="ann@example.com"))
        current.reset(token)
        await app.q.drain()

    shop.do(work)
    expected = f"""\
1 job failed for good, and is kept for 30 days:

  1  verify-mail, which failed at {WHEN} after 2 attempts, pushed by request SCK2WDZAHS33MHC2HQCFU7KWMK
      {{"user":7,"email":"ann@example.com"}}
      ConnectionRefusedError: smtp.example.com:587: connection refused
"""
    assert shop.typed("jobs") == (0, expected, "")
    assert shop.typed("jobs", "shop_of_jobs:q") == (0, expected, "")
    assert shop.typed("jobs", "shop_of_jobs.q") == (0, expected, "")


def test_they_are_told_the_latest_first_and_those_of_a_kind_alone_where_one_is_named(shop: Shop) -> None:
    async def work(app: Any) -> None:
        await fail(app)
        app.clock.advance(60)
        await app.report.push()
        await app.q.drain()

    shop.do(work)
    code, out, _ = shop.typed("jobs")
    assert code == 0
    assert out.startswith("2 jobs failed for good, and are kept for 30 days:\n\n  2  report, which failed at")
    assert out.index("  2  report") < out.index("  1  verify-mail")
    # A kind that has no value has no line for it.
    assert "after 1 attempt\n      Permanent: no data\n" in out
    _, out, _ = shop.typed("jobs", "--kind", "report")
    assert out.startswith("1 job of report failed for good, and is kept for 30 days:\n\n  2  report")
    assert "verify-mail" not in out


@pytest.mark.parametrize(
    ("keep", "told"),
    [
        ("3600", "for 1 hour"),
        ("86400", "for 1 day"),
        ("86400 * 1.5", "for 1 day and 12 hours"),
        ("None", "until you run it again or delete it"),
    ],
)
def test_it_says_for_how_long_they_are_kept(shop: Shop, keep: str, told: str) -> None:
    shop.do(fail)
    shop.write(f"\nq = fastjobs.Queue(store, keep_failed={keep})\n")
    assert shop.typed("jobs")[1].startswith(f"1 job failed for good, and is kept {told}:\n")


async def _of_requests(app: Any) -> None:
    for request, user in (("abc-1", 1), ("abc-10", 2), ("abc-1", 3), (None, 4)):
        token = current.set(request)
        await app.verify.push(app.Mail(user=user, email="ann@example.com"))
        current.reset(token)


def test_a_requests_jobs_are_listed_alone_where_its_id_is_given(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_PAGE", 1)
    monkeypatch.setattr(listing, "_PAGE_WHOLE", 1)

    async def failed(app: Any) -> None:
        await _of_requests(app)
        await app.q.drain()
        await _of_requests(app)

    shop.do(failed)
    code, out, _ = shop.typed("jobs", "--request", "abc-1")
    assert code == 0
    assert out.startswith(
        "2 jobs of request abc-1 failed for good, and are kept for 30 days:\n\n  3  verify-mail"
    )
    assert [line.split()[0] for line in out.splitlines() if "which failed at" in line] == ["3", "1"]
    _, out, _ = shop.typed("jobs", "--request", "abc-1", "--limit", "1")
    assert out.startswith(
        "jobs of request abc-1 failed for good, and are kept for 30 days. The latest 1:\n\n  3  "
    )
    assert out.endswith("There are more: --limit 10 lists as many, and --all lists all.\n")
    _, out, _ = shop.typed("jobs", "--request", "abc-1", "--all", "--json")
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["3", "1"]
    _, out, _ = shop.typed("jobs", "--request", "abc-10", "--waiting", "verify-mail")
    assert out.startswith("1 job of verify-mail of request abc-10 waits:\n\n  6  verify-mail")
    assert shop.typed("jobs", "--request", "abc-2") == (
        0,
        "no job of request abc-2 has failed for good\n",
        "",
    )
    assert shop.typed("jobs", "--request", "abc-2", "--json") == (0, "", "")


def test_what_is_no_requests_id_is_a_mistake(shop: Shop) -> None:
    code, out, err = shop.typed("jobs", "--request", "abc 1\x1b[2J")
    assert (code, out) == (2, "")
    assert "--request is the ID of a request" in err
    assert "\x1b" not in err
    code, _, err = shop.typed("jobs", "retry", "1", "--request", "abc-1")
    assert (code, "retry takes no --request" in err) == (2, True)


def test_where_there_are_more_than_are_listed_it_says_how_many_and_how_to_see_them(shop: Shop) -> None:
    shop.do(lambda app: fail(app, 5))
    code, out, _ = shop.typed("jobs", "--limit", "2")
    assert code == 0
    assert out.startswith(
        "5 jobs failed for good, and are kept for 30 days. The latest 2:\n\n  5  verify-mail"
    )
    assert out.count("which failed at") == 2
    assert out.endswith("\n\nThere are more: --limit 20 lists as many, and --all lists all.\n")
    _, out, _ = shop.typed("jobs", "--limit", "5")
    assert out.startswith("5 jobs failed for good, and are kept for 30 days:\n")
    assert out.count("which failed at") == 5
    assert "There are more" not in out


def test_a_hundred_are_listed_where_nothing_is_said(shop: Shop) -> None:
    shop.do(lambda app: fail(app, 101))
    _, out, _ = shop.typed("jobs")
    assert out.count("which failed at") == 100
    assert out.startswith("101 jobs failed for good, and are kept for 30 days. The latest 100:\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["jobs", "--limit", "many"], "argument --limit: a whole number, not 'many'"),
        (["jobs", "--limit", "0"], "argument --limit: from 1, not 0"),
        (["run", "--workers", "2.5"], "argument --workers: a whole number, not '2.5'"),
        (["run", "--workers", "10001"], "argument --workers: from 1 to 10,000, not 10001"),
    ],
)
def test_a_number_that_is_none_is_told_with_what_is_one(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("page", [1, 2, 5, 6, 7, 100])
@pytest.mark.parametrize("words", [["--all"], ["--limit", "6"], ["--limit", "7"]], ids=" ".join)
def test_all_are_listed_once_whatever_pages_they_are_read_in(
    shop: Shop, page: int, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.do(lambda app: fail(app, 6))
    monkeypatch.setattr(listing, "_PAGE", page)
    monkeypatch.setattr(listing, "_PAGE_WHOLE", page)
    code, out, _ = shop.typed("jobs", *words)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines() if "which failed" in line] == list("654321")
    assert "There are more" not in out
    assert out.startswith("6 jobs failed for good, and are kept for 30 days:\n")
    _, out, _ = shop.typed("jobs", *words, "--json")
    assert [json.loads(line)["id"] for line in out.splitlines()] == list("654321")


def test_a_long_value_is_cut_on_a_screen_and_whole_where_that_is_asked_for(shop: Shop) -> None:
    email = "x" * 2000
    shop.do(lambda app: fail(app, email=email))
    size = len(f'{{"user":1,"email":"{email}"}}')
    _, out, _ = shop.typed("jobs")
    (line,) = (line for line in out.splitlines() if '"user":1' in line)
    assert line == f'      {{"user":1,"email":"{email}'[: 6 + 400] + f"… ({size:,} bytes)"
    assert email in shop.typed("jobs", "--whole")[1]
    assert email in shop.typed("jobs", "show", "1")[1]
    assert json.loads(json.loads(shop.typed("jobs", "--json")[1])["payload"])["email"] == email


def test_letters_are_letters_though_the_value_is_kept_in_ascii(shop: Shop) -> None:
    shop.do(lambda app: fail(app, email="Zoë \\u0041 \\\\ 📬 東京\u3000\u2028\u202e\x1b\x7f"))
    _, out, _ = shop.typed("jobs")
    told = r'"email":"Zoë \\u0041 \\\\ 📬 東京' + "\u3000" + r'\u2028\u202e\u001b\x7f"}'
    assert told in out


def test_nothing_failed_is_a_line_and_no_error(shop: Shop) -> None:
    assert shop.typed("jobs") == (0, "no job has failed for good\n", "")
    assert shop.typed("jobs", "--kind", "report") == (0, "no job of report has failed for good\n", "")
    assert shop.typed("jobs", "--waiting", "report") == (0, "no job of report waits\n", "")
    assert shop.typed("jobs", "--held", "report") == (0, "no job of report runs\n", "")
    assert shop.typed("jobs", "--json") == (0, "", "")


@pytest.mark.parametrize(
    "words",
    [
        ["--kind", "reports"],
        ["--waiting", "reports"],
        ["--held", "reports"],
        ["--json", "--kind", "reports"],
        ["retry", "--kind", "reports"],
        ["delete", "--kind", "reports"],
    ],
    ids=" ".join,
)
def test_a_kind_that_there_isnt_is_a_mistake_and_not_a_list_of_none(shop: Shop, words: list[str]) -> None:
    told = "fastjobs: there is no kind 'reports'; there are: index, report, verify-mail\n"
    assert shop.typed("jobs", *words) == (2, "", told)


def test_jobs_of_a_kind_that_has_no_handler_here_are_listed(shop: Shop) -> None:
    async def work(app: Any) -> None:
        await app.report.push()
        await app.q.drain()

    shop.do(work)
    shop.write("\nq = fastjobs.Queue(store)\n")
    assert "  1  report, which failed" in shop.typed("jobs", "--kind", "report")[1]


def test_jobs_that_wait_are_told_with_the_reason(shop: Shop) -> None:
    async def work(app: Any) -> None:
        await app.verify.push(app.Mail(user=1, email="a@example.com"), after=3600)
        await app.verify.push(app.Mail(user=2, email="b@example.com"), name="second")
        await app.report.push()

    shop.do(work)
    code, out, _ = shop.typed("jobs", "--waiting", "verify-mail")
    assert code == 0
    assert (
        out
        == f"""\
2 jobs of verify-mail wait:

  2  verify-mail, pushed at {WHEN}, named second
      {{"user":2,"email":"b@example.com"}}
      it is due since {WHEN}, and waits for a free worker, or for a process that runs its kind

  1  verify-mail, pushed at {WHEN}
      {{"user":1,"email":"a@example.com"}}
      it waits for its time, 2026-09-28 11:02:03 UTC
"""
    )
    _, out, _ = shop.typed("jobs", "--waiting", "verify-mail", "--limit", "1")
    assert out.startswith("2 jobs of verify-mail wait. The 1 due first:\n\n  2  verify-mail")
    told = [
        json.loads(line) for line in shop.typed("jobs", "--waiting", "verify-mail", "--json")[1].splitlines()
    ]
    assert [(each["id"], each["state"], each["due"]) for each in told] == [
        ("2", "waiting", "2026-09-28T10:02:03Z"),
        ("1", "waiting", "2026-09-28T11:02:03Z"),
    ]


def test_a_job_that_failed_before_tells_its_error_once(shop: Shop) -> None:
    shop.write("\n@q.kind('later', backoff=60)\nasync def later() -> None: raise ValueError('not yet')\n")

    async def work(app: Any) -> None:
        await app.later.push()
        await app.q.drain()

    shop.do(work)
    assert shop.typed("jobs", "--waiting", "later")[1].count("ValueError: not yet") == 1


def test_jobs_that_run_are_told_and_those_that_are_parked_behind_them_counted(shop: Shop) -> None:
    async def work(app: Any) -> None:
        await app.index.push(1)
        claimable = Claimable(kind="index", hold=60_000_000, attempts=5)
        await app.store.claim([claimable], 1)
        await app.index.push(1)
        await app.store.claim([claimable], 1)  # finds that it has to wait for the first

    shop.do(work)
    _, out, _ = shop.typed("jobs", "--held", "index")
    assert (
        out
        == f"""\
1 job of index runs:

  1  index, pushed at {WHEN}
      1
      it runs: attempt 1, held until 2026-09-28 10:03:03 UTC
"""
    )
    behind = "1 waits for another of its value, which runs (one at a time)"
    assert shop.typed("jobs", "--waiting", "index")[1] == f"no job of index waits; {behind}\n"
    _, out, _ = shop.typed("jobs", "show", "2")
    assert out.startswith(
        "job 2  index, parked: it waits for job 1 of the same value, which runs (one at a time)\n"
    )
    assert "\n  behind     job 1\n" in out


def test_one_job_is_shown_with_all_that_is_known_of_it(shop: Shop) -> None:
    async def work(app: Any) -> None:
        token = current.set("abc-1")
        await app.verify.push(app.Mail(user=1, email="a@example.com"), name="welcome-1")
        current.reset(token)
        await app.q.drain()

    shop.do(work)
    code, out, err = shop.typed("jobs", "show", "1")
    assert (code, err) == (0, "")
    assert (
        out
        == f"""\
job 1  verify-mail, failed: it failed for good at {WHEN}, after 2 attempts
  pushed     {WHEN} by request abc-1, named welcome-1
  failed     {WHEN}
  attempts   2
  carried    request_id=abc-1
  value      {{"user":1,"email":"a@example.com"}}
  error      ConnectionRefusedError: smtp.example.com:587: connection refused
  where      shop_of_jobs.py:21 verify
"""
    )
    told = json.loads(shop.typed("jobs", "--json", "show", "1")[1])
    assert told == {
        "id": "1",
        "kind": "verify-mail",
        "state": "failed",
        "payload": '{"user":1,"email":"a@example.com"}',
        "size": 34,
        "due": "2026-09-28T10:02:03Z",
        "pushed_at": "2026-09-28T10:02:03Z",
        "held_until": None,
        "failed_at": "2026-09-28T10:02:03Z",
        "attempts": 2,
        "lost": 0,
        "error": "ConnectionRefusedError: smtp.example.com:587: connection refused",
        "where": "shop_of_jobs.py:21 verify",
        "request_id": "abc-1",
        "trace_id": None,
        "carried": {"request_id": "abc-1"},
        "name": "welcome-1",
        "unique": False,
        "stop_asked": False,
        "progress": None,
        "behind": None,
        "why": f"it failed for good at {WHEN}, after 2 attempts",
    }


def test_of_several_jobs_those_that_are_there_are_shown_and_the_others_named(shop: Shop) -> None:
    shop.do(fail)
    code, out, err = shop.typed("jobs", "show", "1", "99", "x")
    assert code == 1
    assert out.startswith("job 1  verify-mail, failed: ")
    gone = "there's no such job: it's done, was removed, or never was"
    assert err == f"fastjobs: job 99: {gone}\nfastjobs: job x: {gone}\n"


def test_each_page_is_written_before_the_next_is_read(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.do(lambda app: fail(app, 5))
    monkeypatch.setattr(listing, "_PAGE", 2)
    told: list[str] = []
    failed = fastjobs.Queue.failed

    async def read(self: fastjobs.Queue, **which: Any) -> list[fastjobs.JobInfo]:
        page = await failed(self, **which)
        told.append(f"read {len(page)}")
        return page

    def write(text: str) -> None:
        told.append(f"wrote {text.count('which failed')}")

    monkeypatch.setattr(fastjobs.Queue, "failed", read)
    monkeypatch.setattr(listing, "out", write)
    shop.typed("jobs", "--all")
    assert told == ["read 2", "wrote 2", "read 2", "wrote 2", "read 1", "wrote 1"]


COUNTS_NOTHING = """
class Plain(fastjobs.SQLStore):
    extras = fastjobs.SQLStore.extras & ~fastjobs.Extra.COUNTS
store = Plain(engine, clock=clock)
q = fastjobs.Queue(store, clock=clock)
q.kind("verify-mail")(verify.handler)
"""


def test_on_a_store_that_counts_nothing_failed_jobs_are_listed_and_acted_on_all_the_same(shop: Shop) -> None:
    shop.do(lambda app: fail(app, 3))
    shop.write(COUNTS_NOTHING)
    head = "jobs failed for good, and are kept for 30 days. The latest 2:\n\n  3  verify-mail"
    assert shop.typed("jobs", "--limit", "2")[1].startswith(head)
    assert shop.typed("jobs", "--kind", "reports")[:2] == (0, "no job of reports has failed for good\n")
    assert shop.typed("jobs", "retry", "1", "99") == (
        1,
        "1 job back to run, as the app's queue finds it.\n",
        "fastjobs: job 99: there's no failed job of this id\n",
    )
    assert shop.typed("jobs", "delete", "all") == (0, "2 jobs deleted.\n", "")
    for words in (["kinds"], ["jobs", "show", "1"], ["jobs", "--waiting", "verify-mail"]):
        code, out, err = shop.typed(*words)
        assert (code, out) == (2, "")
        assert "needs a store with COUNTS, and Plain has" in err
