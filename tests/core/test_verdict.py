"""What a handler's end means for its job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fastjobs.core.duration import DAY, SECOND
from fastjobs.core.errors import PayloadError, Permanent, Retry, Snooze
from fastjobs.core.job import Job
from fastjobs.core.marks import Done, Fail, GiveBack, TryAgain
from fastjobs.core.options import KindOptions, KindSettings, Predicate, checked
from fastjobs.core.outcome import Outcome
from fastjobs.core.verdict import Cut, Verdict, unreadable, verdict


def a_job(attempts: int = 1) -> Job:
    return Job("7", "k", "null", 0, attempts, 3)


def options(**settings: Any) -> KindOptions:
    return checked("k", KindSettings(**settings))  # type: ignore[typeddict-item]


def ends(
    error: BaseException | None,
    cut: Cut | None = None,
    *,
    attempt: int = 1,
    of_queue: Predicate | None = None,
    **settings: Any,
) -> Verdict:
    return verdict(a_job(attempt), options(**settings), error, cut, 0.0, of_queue)


class OwnPermanent(Permanent):
    pass


class NoAfter(Retry):
    def __init__(self) -> None:
        Exception.__init__(self, "no after")


class SnoozeWithoutAfter(Snooze):
    def __init__(self) -> None:
        Exception.__init__(self, "no after")


def boom() -> ValueError:
    return ValueError("boom")


LAST_ATTEMPT = 10
ANY_END: list[BaseException] = [
    boom(), Permanent("no"), Retry(after=1), Snooze(after=1), SystemExit(3), KeyboardInterrupt(), GeneratorExit(),
    asyncio.CancelledError(), BaseException("x"), ExceptionGroup("g", [boom()]), StopIteration(), MemoryError(),
    RecursionError(),
]  # fmt: skip


def test_one_that_returned_is_done() -> None:
    found = ends(None)
    assert found == Verdict(Done("7", 3), Outcome.DONE)


@pytest.mark.parametrize("attempt", [1, LAST_ATTEMPT, LAST_ATTEMPT + 5])
def test_one_that_returned_at_any_attempt_is_done(attempt: int) -> None:
    assert ends(None, attempt=attempt).outcome is Outcome.DONE


def test_one_that_returned_as_it_was_stopped_is_done() -> None:
    assert ends(None, Cut.STOP).mark == Done("7", 3)


def test_one_that_returned_past_its_timeout_failed_its_attempt() -> None:
    found = ends(None, Cut.TIMEOUT, timeout=30)
    assert found.mark == TryAgain("7", 3, SECOND, "TimeoutError: ran over its timeout of 30 s")
    assert isinstance(found.error, TimeoutError)


@pytest.mark.parametrize("error", [None, *ANY_END], ids=repr)
def test_one_whose_claim_is_gone_is_not_marked(error: BaseException | None) -> None:
    found = ends(error, Cut.LOST, attempt=LAST_ATTEMPT)
    assert found.mark is None
    assert found.outcome is Outcome.RETRIED
    assert not found.owed


@pytest.mark.parametrize("error", ANY_END, ids=repr)
@pytest.mark.parametrize("attempt", [1, LAST_ATTEMPT])
def test_a_cancelled_job_is_removed_whatever_its_handler_raised(error: BaseException, attempt: int) -> None:
    found = ends(error, Cut.CANCEL, attempt=attempt, permanent=Exception)
    assert found == Verdict(Done("7", 3), Outcome.CANCELLED)


def test_one_that_returned_though_its_job_was_cancelled_is_done() -> None:
    assert ends(None, Cut.CANCEL) == Verdict(Done("7", 3), Outcome.DONE)


@pytest.mark.parametrize("error", ANY_END, ids=repr)
@pytest.mark.parametrize("attempt", [1, LAST_ATTEMPT, 10**9])
def test_a_stop_never_fails_a_job_and_gives_its_attempt_back(error: BaseException, attempt: int) -> None:
    found = ends(error, Cut.STOP, attempt=attempt, permanent=Exception)
    assert found.mark == GiveBack("7", 3, after=None, error="stopped with the queue; it runs again")
    assert found.outcome is Outcome.RETRIED
    assert not found.owed


@pytest.mark.parametrize(
    "error", [each for each in ANY_END if not isinstance(each, (Permanent, Retry, Snooze))], ids=repr
)
@pytest.mark.parametrize("cut", [None, Cut.TIMEOUT])
def test_any_other_end_tries_again_and_fails_at_the_last_attempt(
    error: BaseException, cut: Cut | None
) -> None:
    found = ends(error, cut, attempt=LAST_ATTEMPT - 1)
    assert isinstance(found.mark, TryAgain)
    assert found.mark.after == 9**4 * SECOND
    assert found.mark.error == found.text
    assert found.outcome is Outcome.RETRIED
    assert isinstance(found.error, Exception)
    assert not found.owed
    for late in (LAST_ATTEMPT, LAST_ATTEMPT + 1):
        failed = ends(error, cut, attempt=late)
        assert failed.mark == Fail("7", 3, found.text)
        assert failed.outcome is Outcome.FAILED
        assert isinstance(failed.error, Exception)
        assert failed.owed


def test_what_is_no_exception_is_told_by_one() -> None:
    found = ends(SystemExit(3))
    assert isinstance(found.error, RuntimeError)
    assert isinstance(found.error.__cause__, SystemExit)
    assert found.text == "SystemExit: 3"


def test_a_timeout_is_caused_by_what_the_handler_raised_then() -> None:
    error = boom()
    found = ends(error, Cut.TIMEOUT)
    assert isinstance(found.error, TimeoutError)
    assert found.error.__cause__ is error


@pytest.mark.parametrize("cut", [None, Cut.TIMEOUT])
@pytest.mark.parametrize("error", [Permanent("no"), OwnPermanent("no")])
def test_permanent_fails_at_once(error: Exception, cut: Cut | None) -> None:
    found = ends(error, cut)
    assert found.mark == Fail("7", 3, f"{type(error).__name__}: no")
    assert found.outcome is Outcome.FAILED
    assert found.error is error
    assert found.owed


def yes(error: BaseException) -> bool:
    return True


def no(error: BaseException) -> bool:
    return False


def answers(answer: Any) -> Callable[[object], Any]:
    return lambda _: answer


SAY_SO: list[Any] = [
    ValueError, (KeyError, ValueError), [ValueError], {ValueError}, Exception, BaseException, yes, answers(1),
]  # fmt: skip
SAY_NO: list[Any] = [(), KeyError, (KeyError, OSError), no, answers(None)]


@pytest.mark.parametrize("permanent", SAY_SO)
def test_an_error_that_permanent_says_is_one_fails_at_once(permanent: Any) -> None:
    found = ends(boom(), permanent=permanent)
    assert isinstance(found.mark, Fail)
    assert found.owed
    assert found.remark == ""


@pytest.mark.parametrize("permanent", SAY_NO)
def test_an_error_that_it_does_not_say_so_of_tries_again(permanent: Any) -> None:
    found = ends(boom(), permanent=permanent)
    assert isinstance(found.mark, TryAgain)
    assert found.remark == ""


def test_the_queues_permanent_errors_count_beside_the_kinds() -> None:
    assert ends(boom(), permanent=KeyError, of_queue=lambda error: isinstance(error, ValueError)).owed
    assert not ends(boom(), permanent=KeyError, of_queue=lambda error: False).owed


def test_a_timeout_may_be_a_permanent_error() -> None:
    assert ends(None, Cut.TIMEOUT, permanent=TimeoutError).owed
    assert not ends(boom(), Cut.TIMEOUT, permanent=ValueError).owed


@pytest.mark.parametrize("raised", [LookupError("x"), SystemExit(1), KeyboardInterrupt()])
def test_a_predicate_that_raises_is_remarked_and_says_nothing(raised: BaseException) -> None:
    def broken(error: BaseException) -> bool:
        raise raised

    found = ends(boom(), permanent=broken)
    assert isinstance(found.mark, TryAgain)
    assert found.remark.startswith(f"permanent= raised {type(raised).__name__}")
    assert found.text == "ValueError: boom"
    other = ends(boom(), permanent=broken, of_queue=lambda error: True)
    assert other.owed
    assert other.remark.startswith("permanent= raised")


class NoTruth:
    def __bool__(self) -> bool:
        raise ValueError("no truth")


def test_a_predicate_that_answers_no_truth_is_remarked() -> None:
    found = ends(boom(), permanent=answers(NoTruth()))
    assert isinstance(found.mark, TryAgain)
    assert found.remark == "permanent= raised ValueError: no truth"


@pytest.mark.parametrize(("after", "expected"), [(0, 0), (1.5, 1_500_000), (timedelta(days=2), 2 * DAY)])
@pytest.mark.parametrize("cut", [None, Cut.TIMEOUT])
def test_retry_runs_again_after_its_own_wait(after: Any, expected: int, cut: Cut | None) -> None:
    found = ends(Retry("later", after=after), cut, backoff=5)
    assert found.mark == TryAgain("7", 3, expected, "Retry: later")
    assert found.outcome is Outcome.RETRIED


def test_retry_at_the_last_attempt_fails() -> None:
    found = ends(Retry(after=5), attempt=LAST_ATTEMPT)
    assert found.mark == Fail("7", 3, "Retry: asked to run again after 5")
    assert found.owed


def test_retry_is_raised_on_purpose_so_permanent_is_not_asked() -> None:
    found = ends(Retry(after=5), permanent=Exception, of_queue=lambda error: True)
    assert isinstance(found.mark, TryAgain)
    assert found.mark.after == 5 * SECOND


@pytest.mark.parametrize("attempt", [1, LAST_ATTEMPT, 10**9])
@pytest.mark.parametrize("cut", [None, Cut.TIMEOUT])
def test_snooze_is_no_attempt_and_never_fails(attempt: int, cut: Cut | None) -> None:
    found = ends(Snooze(after=60), cut, attempt=attempt, permanent=Exception)
    assert found.mark == GiveBack("7", 3, after=60 * SECOND)
    assert found.outcome is Outcome.HELD_BACK
    assert not found.owed
    assert found.error is None


@pytest.mark.parametrize("after", [-1, float("nan"), 1e305, 10**400, None, "5", object()])
def test_a_wait_that_cannot_be_is_the_default_one_and_remarked(after: Any) -> None:
    retried = ends(Retry("x", after=after), attempt=3)
    assert isinstance(retried.mark, TryAgain)
    assert retried.mark.after == 81 * SECOND
    assert retried.remark.startswith("the after= of its Retry can't be: ValueError: after is")
    snoozed = ends(Snooze("x", after=after), attempt=3)
    assert isinstance(snoozed.mark, GiveBack)
    assert snoozed.mark.after == 81 * SECOND
    assert snoozed.remark.startswith("the after= of its Snooze can't be: ")


def test_a_retry_or_snooze_of_ones_own_that_has_no_after_waits_all_the_same() -> None:
    retried, snoozed = ends(NoAfter()), ends(SnoozeWithoutAfter())
    assert isinstance(retried.mark, TryAgain)
    assert isinstance(snoozed.mark, GiveBack)
    assert retried.mark.after == snoozed.mark.after == SECOND
    assert "AttributeError" in retried.remark
    assert "AttributeError" in snoozed.remark


@pytest.mark.parametrize("raised", [LookupError("x"), SystemExit(1)])
def test_a_backoff_that_raises_is_the_default_one_and_remarked(raised: BaseException) -> None:
    def broken(attempt: int) -> float:
        raise raised

    found = ends(boom(), attempt=2, backoff=broken)
    assert isinstance(found.mark, TryAgain)
    assert found.mark.after == 16 * SECOND
    assert found.remark.startswith(f"its backoff raised {type(raised).__name__}")


@pytest.mark.parametrize("answer", [-1, float("nan"), "5", None])
def test_a_backoff_that_answers_no_duration_is_the_default_one_and_remarked(answer: Any) -> None:
    found = ends(boom(), attempt=2, backoff=answers(answer))
    assert isinstance(found.mark, TryAgain)
    assert found.mark.after == 16 * SECOND
    assert found.remark.startswith("its backoff raised ValueError: the backoff after attempt 2 is")


def test_two_remarks_are_both_made() -> None:
    def broken(_: object) -> Any:
        raise LookupError("x")

    assert ends(boom(), permanent=broken, backoff=broken).remark == (
        "permanent= raised LookupError: x; its backoff raised LookupError: x"
    )


def test_the_millionth_attempt_of_a_kind_waits_a_day() -> None:
    found = ends(boom(), attempt=999_999, attempts=1_000_000)
    assert isinstance(found.mark, TryAgain)
    assert found.mark.after == DAY


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit(9)


def test_an_error_that_cannot_be_told_is_an_end_like_others() -> None:
    found = ends(Unspeakable())
    assert isinstance(found.mark, TryAgain)
    assert found.text == "Unspeakable (its str() raised SystemExit)"


def test_a_payload_that_does_not_fit_fails_at_once_and_owes_no_on_fail() -> None:
    error = PayloadError("kind 'k': at user: Field required", kind="k", field="user")
    found = unreadable(a_job(), error)
    assert found.mark == Fail("7", 3, "PayloadError: kind 'k': at user: Field required")
    assert found.outcome is Outcome.FAILED
    assert found.error is error
    assert not found.owed


def test_an_outcome_is_the_word_for_a_metrics_label() -> None:
    assert [str(each) for each in Outcome] == ["done", "retried", "failed", "held back", "cancelled"]
