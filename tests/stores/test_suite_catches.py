"""The suite names the promise that a store breaks: each store of `faulty` fails the test that tells its fault.

The suite's tests are called here as they are, without a pytest of their own for each store, so that it's quick.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from sqlalchemy import StaticPool, create_engine

from fastjobs.core.job import NewJob
from fastjobs.store import Places, Run, Store, Throttled
from fastjobs.stores.memory import Memory
from fastjobs.testing import Clock, StoreSuite
from fastjobs.testing.suite.done_in import DoneIn
from fastjobs.testing.suite.keys_in_transactions import KeysInTransactions
from fastjobs.testing.suite.lifecycle import Lifecycle
from fastjobs.testing.suite.looks_in_transactions import LooksInTransactions
from fastjobs.testing.suite.transactions import Transactions
from fastjobs.testing.suite.ways import WAYS, App
from tests.stores import faulty_looking, faulty_schedules
from tests.stores.faulty_keys import FAULTS, TRANSACTION_FAULTS

assert faulty_schedules.FAULTS is faulty_looking.FAULTS is FAULTS, "their stores are in the one list"


class Suite(StoreSuite):
    """The suite to call, with less patience: a store in memory answers at once."""

    time_limit = 2
    heard_within = 0.2
    histories = 60

    async def writes(self, store: Store) -> int | None:
        assert isinstance(store, Memory)
        return hash(repr((store._rows, store._counters._taken, store._paused)))


def cases(subject: type, *, without: Sequence[type] = ()) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """The subject's tests with their names as pytest says them, and what they are parametrized with."""
    for name, test in inspect.getmembers(subject, inspect.iscoroutinefunction):
        if not name.startswith("test_") or any(hasattr(each, name) for each in without):
            continue
        marks: list[pytest.Mark] = [
            each for each in getattr(test, "pytestmark", []) if each.name == "parametrize"
        ]
        choices: list[list[tuple[str, dict[str, Any]]]] = []
        for each in marks:
            ids = each.kwargs["ids"]
            names = [str(ids(value)) for value in each.args[1]] if callable(ids) else list[str](ids)
            choices.append(
                [(id, {each.args[0]: value}) for id, value in zip(names, each.args[1], strict=True)]
            )
        for chosen in itertools.product(*choices):
            ids = "-".join(id for id, _ in chosen)
            values = {key: value for _, more in chosen for key, value in more.items()}
            yield (f"{name}[{ids}]" if ids else name), test, values


def failing(
    store: type[Memory], wanted: Sequence[tuple[str, Any, dict[str, Any]]]
) -> dict[str, BaseException]:
    """The tests that fail with the store, by name."""

    async def run() -> dict[str, BaseException]:
        failed: dict[str, BaseException] = {}
        for name, test, values in wanted:
            clock = Clock()
            made = store(clock=clock)
            given: dict[str, Any] = {"store": made, "other": made, "clock": clock, **values}
            if {"app", "either"} & set(inspect.signature(test).parameters):
                engine = create_engine("sqlite://", poolclass=StaticPool)
                given["app"] = given["either"] = App(WAYS[0], engine)
                await given["app"].set_up()
            names = list(inspect.signature(test).parameters)[1:]
            try:
                await test(Suite(), **{each: given[each] for each in names})
            except pytest.skip.Exception:
                pass
            except (Exception, pytest.fail.Exception) as broken:
                failed[name] = broken
            finally:
                if "app" in given:
                    given["app"].sync_engine.dispose()
        return failed

    return asyncio.run(run())


_IN_A_TRANSACTION = (Transactions, KeysInTransactions, DoneIn, LooksInTransactions)
PLAIN = list(cases(Suite, without=_IN_A_TRANSACTION))
IN_A_TRANSACTION = [case for subject in _IN_A_TRANSACTION for case in cases(subject)]


def test_a_sound_store_passes() -> None:
    assert failing(Memory, [*PLAIN, *IN_A_TRANSACTION]) == {}


def test_no_two_subjects_have_a_test_of_one_name() -> None:
    """One would hide the other in the suite."""
    names = Counter(
        name for subject in StoreSuite.__mro__[1:] for name in vars(subject) if name.startswith("test_")
    )
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    ("store", "told"), [pytest.param(*each, id=f"{each[0].__name__}-{each[1][5:]}") for each in FAULTS]
)
def test_a_broken_promise_is_named(store: type[Memory], told: str) -> None:
    (case,) = (case for case in PLAIN if case[0] == told)
    assert list(failing(store, [case])) == [told]


@pytest.mark.parametrize(
    ("store", "told"),
    [pytest.param(*each, id=f"{each[0].__name__}-{each[1][5:]}") for each in TRANSACTION_FAULTS],
)
def test_a_broken_promise_of_a_transaction_is_named(store: type[Memory], told: str) -> None:
    cases = [case for case in IN_A_TRANSACTION if case[0].partition("[")[0] == told]
    assert {name.partition("[")[0] for name in failing(store, cases)} == {told}


def test_every_test_can_fail() -> None:
    """With a store that keeps nothing, only the tests of what is empty pass, and those of extras are skipped."""

    class Nothing(Memory):
        async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
            return [str(n) for n, _ in enumerate(jobs)]

        async def push_run(self, run: Run) -> bool:
            return True

        async def take(self, asked: Sequence[Throttled]) -> list[Places]:
            return [Places(each.name, each.key, (), self._clock.now(), 1) for each in asked]

    of_lifecycle = {*vars(Lifecycle), *(name for name, _, _ in PLAIN if "registered_kind" in name)}
    passing = {name for name, _, _ in PLAIN} - set(failing(Nothing, PLAIN)) - of_lifecycle
    assert passing == {
        "test_a_batch_of_no_marks_is_answered_by_none",
        "test_a_claim_tells_the_stores_now",
        "test_a_claim_that_finds_nothing_writes_nothing",
        "test_a_look_at_the_runs_writes_nothing",
        "test_a_push_of_no_jobs_answers_no_ids",
        "test_next_in_is_none_while_no_job_of_these_kinds_waits",
        "test_the_stores_now_is_its_claims_now",
    }


def test_a_store_that_hangs_fails_its_tests_in_time() -> None:
    class Hangs(Memory):
        async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
            await asyncio.Event().wait()
            return []

    class Impatient(StoreSuite):
        time_limit = 0.01

    with pytest.raises(TimeoutError):
        asyncio.run(Impatient().test_a_job_with_no_time_is_due_at_once(Hangs()))
