"""An async function where the queue calls and doesn't await is refused as the app is set up, in whatever form it is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from fastjobs import Memory, Queue, RegistrationError


async def told(_: object) -> None: ...


class Tells:
    async def __call__(self, _: object) -> None: ...

    async def tell(self, _: object) -> None: ...


class AsyncCarry:
    async def carry(self, into: object) -> None: ...

    def restore(self, carried: object) -> None: ...


class AsyncRestore:
    def carry(self, into: object) -> None: ...

    async def restore(self, carried: object) -> None: ...


FORMS = [told, functools.partial(told), Tells(), Tells().tell]


@pytest.mark.parametrize("fn", FORMS, ids=["function", "partial", "callable", "method"])
def test_an_async_observe_is_refused(fn: Callable[..., Any]) -> None:
    with pytest.raises(RegistrationError, match="not an async one"):
        Queue(Memory(), observe=fn)


@pytest.mark.parametrize("carrier", [AsyncCarry(), AsyncRestore()], ids=lambda each: type(each).__name__)
def test_an_async_carrier_is_refused(carrier: Any) -> None:
    with pytest.raises(RegistrationError, match="are called and not awaited"):
        Queue(Memory(), carry=[carrier])


@pytest.mark.anyio
@pytest.mark.parametrize("fn", FORMS, ids=["function", "partial", "callable", "method"])
async def test_an_async_on_crash_is_refused(fn: Callable[..., Any]) -> None:
    with pytest.raises(RegistrationError, match="not an async one"):
        async with Queue(Memory()).running(on_crash=fn):
            pass
