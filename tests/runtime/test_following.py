"""A carrier that follows pushes and runs: what it's told, in which context, and that it ends nothing by an error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from typing import Any

import pytest

from fastjobs import CarryError, Follower, Outcome, Queue, Ran, RegistrationError, Snooze, current_job
from fastjobs.store import Job
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio

step: ContextVar[str] = ContextVar("step", default="outside")


class Told:
    """One push or run, as it's followed."""

    def __init__(self, log: list[Any], what: str) -> None:
        self.log = log
        self.what = what
        self._before = step.get()

    def carry(self, into: MutableMapping[str, str]) -> None:
        into["by"] = self.what

    def begin(self) -> None:
        step.set(self.what)


class ToldPush(Told):
    def end(self, ids: Sequence[str | None] | None, error: BaseException | None) -> None:
        self.log.append((self.what, ids, type(error).__name__ if error else None))
        step.set(self._before)


class ToldRun(Told):
    def end(self, outcome: Outcome | None, error: BaseException | None) -> None:
        self.log.append((self.what, outcome, type(error).__name__ if error else None))


class Follows:
    def __init__(self) -> None:
        self.log: list[Any] = []

    def carry(self, into: MutableMapping[str, str]) -> None:
        raise AssertionError("a push that is followed is asked what it carries by its own carry")

    def restore(self, carried: Mapping[str, str]) -> None:
        step.set("restored " + carried["by"])

    def pushing(self, kind: str, count: int) -> ToldPush:
        return ToldPush(self.log, f"push {count} {kind}")

    def running(self, job: Job, carried: Mapping[str, str], waited: float, *, on_fail: bool) -> ToldRun:
        what = f"{'on_fail' if on_fail else 'run'} {job.kind} {job.attempts}"
        self.log.append((step.get(), dict(carried), waited, current_job().id == job.id))
        step.set(what)
        return ToldRun(self.log, what)

    def unseen(self) -> None:
        step.set("unseen")


NewQueue = Callable[..., Queue]


async def test_it_is_told_of_each_push_and_each_run(new_queue: NewQueue) -> None:
    it: Follower = Follows()
    follows = it
    assert isinstance(follows, Follows)
    queue = new_queue(carry=[follows])
    seen: list[str] = []

    @queue.kind("mail", attempts=2, backoff=0)
    async def mail(user: int) -> None:
        seen.append(step.get())
        if user:
            raise ValueError

    @mail.on_fail
    async def tell(user: int, error: Exception) -> None:
        seen.append(step.get())

    ids = await mail.push_many([0, 1])
    assert step.get() == "outside"
    assert await queue.drain() == 3
    push = "push 2 mail"
    restored = (f"restored {push}", {"by": push}, 0.0, True)
    assert follows.log == [
        (push, ids, None),
        restored, ("run mail 1", Outcome.DONE, None),
        restored, ("run mail 1", Outcome.RETRIED, "ValueError"),
        restored, ("run mail 2", Outcome.FAILED, "ValueError"),
        restored, ("on_fail mail 2", None, None),
    ]  # fmt: skip
    assert seen == ["run mail 1", "run mail 1", "run mail 2", "on_fail mail 2"]


async def test_a_run_that_is_no_failure_has_no_error(new_queue: NewQueue) -> None:
    follows = Follows()
    queue = new_queue(carry=[follows])

    @queue.kind("mail")
    async def mail() -> None:
        raise Snooze("later", after=60)

    await mail.push()
    await queue.drain()
    assert follows.log[-1] == ("run mail 1", Outcome.HELD_BACK, None)


async def test_too_much_to_carry_ends_the_push(new_queue: NewQueue) -> None:
    follows = Follows()

    class Big:
        def carry(self, into: MutableMapping[str, str]) -> None:
            into["a"] = "x" * 5000

        def restore(self, carried: Mapping[str, str]) -> None: ...

    queue = new_queue(carry=[follows, Big()])

    @queue.kind("mail")
    async def mail() -> None: ...

    with pytest.raises(CarryError):
        await mail.push()
    assert follows.log == [("push 1 mail", None, "CarryError")]


async def test_a_carrier_that_is_interrupted_ends_the_push_for_those_who_follow_it(
    new_queue: NewQueue,
) -> None:
    follows = Follows()

    class Interrupted:
        def carry(self, into: MutableMapping[str, str]) -> None:
            raise KeyboardInterrupt

        def restore(self, carried: Mapping[str, str]) -> None: ...

    queue = new_queue(carry=[follows, Interrupted()])

    @queue.kind("mail")
    async def mail() -> None: ...

    with pytest.raises(KeyboardInterrupt):
        await mail.push()
    assert follows.log == [("push 1 mail", None, "KeyboardInterrupt")]


class Broken(Follows):
    """Raises wherever it's asked to."""

    def __init__(self, where: str, raised: BaseException) -> None:
        super().__init__()
        self.where = where
        self.raised = raised

    def _at(self, where: str) -> None:
        if where == self.where:
            raise self.raised

    def pushing(self, kind: str, count: int) -> Any:
        self._at("pushing")
        broken = self

        class Push(ToldPush):
            def carry(self, into: MutableMapping[str, str]) -> None:
                broken._at("its carry")
                super().carry(into)

            def begin(self) -> None:
                broken._at("its begin")

            def end(self, ids: Any, error: BaseException | None) -> None:
                broken._at("its end")

        return Push(self.log, "push")

    def carry(self, into: MutableMapping[str, str]) -> None:
        into["by"] = "itself"

    def running(self, job: Job, carried: Mapping[str, str], waited: float, *, on_fail: bool) -> Any:
        self._at("running")
        broken = self

        class Run(ToldRun):
            def end(self, outcome: Outcome | None, error: BaseException | None) -> None:
                broken._at("a run's end")

        return Run(self.log, "run")

    def restore(self, carried: Mapping[str, str]) -> None: ...

    def unseen(self) -> None:
        self._at("unseen")


@pytest.mark.parametrize(
    "raised", [LookupError("no"), asyncio.CancelledError("no")], ids=["error", "cancelled"]
)
@pytest.mark.parametrize(
    "where", ["pushing", "its carry", "its begin", "its end", "running", "a run's end", "unseen"]
)
async def test_whatever_it_raises_its_push_is_kept_and_its_job_runs_and_is_done(
    new_queue: NewQueue,
    clock: Clock,
    seen: list[Ran],
    caplog: pytest.LogCaptureFixture,
    where: str,
    raised: BaseException,
) -> None:
    queue = new_queue(carry=[Broken(where, raised), Broken("nowhere", LookupError())])

    @queue.kind("mail")
    async def mail() -> None: ...

    async with queue.running():
        assert await mail.push() is not None
        await clock.pass_time(1, turns=30)
        assert [ran.outcome for ran in seen] == [Outcome.DONE]
    told = [line for line in caplog.messages if line.startswith("a carrier failed")]
    assert told
    assert all(f'carrier=Broken err="{type(raised).__name__}: no"' in line for line in told)


@pytest.mark.parametrize("raised", [asyncio.CancelledError(), SystemExit(1)], ids=repr)
@pytest.mark.parametrize("where", ["running", "a run's end"])
async def test_what_is_no_exception_ends_no_worker(
    new_queue: NewQueue, clock: Clock, seen: list[Ran], where: str, raised: BaseException
) -> None:
    queue = new_queue(carry=[Broken(where, raised)], workers=1)

    @queue.kind("mail")
    async def mail(user: int) -> None: ...

    async with queue.running():
        await mail.push_many([1, 2, 3])
        await clock.pass_time(1, turns=30)
        assert [ran.outcome for ran in seen] == [Outcome.DONE] * 3


async def test_one_that_does_not_follow_a_push_is_asked_what_it_carries(new_queue: NewQueue) -> None:
    class Declines(Follows):
        def pushing(self, kind: str, count: int) -> Any:
            return None

        def carry(self, into: MutableMapping[str, str]) -> None:
            into["by"] = "itself"

        def running(self, job: Job, carried: Mapping[str, str], waited: float, *, on_fail: bool) -> Any:
            return None

    queue = new_queue(carry=[Declines()])
    carried: list[object] = []

    @queue.kind("mail")
    async def mail() -> None:
        carried.append(dict(current_job().carried))

    await mail.push()
    await queue.drain()
    assert carried == [{"by": "itself"}]


@pytest.mark.parametrize("missing", ["running", "unseen"])
def test_half_a_follower_is_refused(new_queue: NewQueue, missing: str) -> None:
    half = Follows()
    setattr(half, missing, None)
    with pytest.raises(RegistrationError, match=f"a pushing for a Follower, and .* has no {missing}"):
        new_queue(carry=[half])


def test_an_async_one_is_refused(new_queue: NewQueue) -> None:
    class Late(Follows):
        async def running(self, *args: Any, **kwargs: Any) -> Any: ...  # type: ignore[override]  # pyright: ignore

    with pytest.raises(
        RegistrationError, match="carry, restore, pushing, running and unseen are called and not"
    ):
        new_queue(carry=[Late()])
