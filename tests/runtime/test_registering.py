"""Registering: what may be a kind and a handler, and what an error says of what may not."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Protocol, cast

import fastapi
import pytest
import sqlmodel
import stamina
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession
from typing_extensions import TypedDict

from fastjobs import Kind, Kinds, Memory, Queue, QueueError, RegistrationError
from fastjobs.runtime.kind import KindDecorator
from fastjobs.testing import Clock

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypes

pytestmark = pytest.mark.anyio


class Mail(BaseModel):
    user: int


class HasUser(Protocol):
    user: int


class Paper(TypedDict):
    pages: int


class Depends:
    """As FastAPI's, whose name alone is looked at."""


def a_queue(**settings: Any) -> Queue:
    clock = Clock()
    given: dict[str, Any] = {"store": Memory(clock=clock), "clock": clock, **settings}
    return Queue(**given)


def register(fn: Any, name: str = "k") -> Kind[Any]:
    return cast("Callable[[Any], Kind[Any]]", a_queue().kind(name))(fn)


async def of_mail(mail: Mail) -> None: ...
async def of_nothing() -> None: ...
async def of_error(error: Exception) -> None: ...
async def of_both(mail: Mail, error: Exception) -> None: ...


# Handlers that are kinds.


def with_log(fn: Callable[[Mail], Awaitable[None]]) -> Callable[[Mail], Awaitable[None]]:
    @functools.wraps(fn)
    async def wrapped(mail: Mail) -> None:
        await fn(mail)

    return wrapped


class Handler:
    async def __call__(self, mail: Mail) -> None: ...

    async def method(self, mail: Mail) -> None: ...

    @classmethod
    async def of_class(cls, mail: Mail) -> None: ...

    @staticmethod
    async def of_none(mail: Mail) -> None: ...


async def with_mailer(mailer: object, mail: Mail) -> None: ...
async def with_default(mail: Mail, mailer: object = None) -> None: ...
async def with_keyword(mail: Mail, *, mailer: object = None, **more: object) -> None: ...
async def with_session(mail: Mail, session: AsyncSession | None = None) -> None: ...
async def with_value_default(mail: Mail | None = None) -> None: ...
async def positional(mail: Mail, /) -> None: ...
async def returns(mail: Mail) -> int:
    return 1


TAKES_MAIL: dict[str, Any] = {
    "a function": of_mail,
    "one that returns something": returns,
    "positional only": positional,
    "another parameter with a default": with_default,
    "keywords with a default": with_keyword,
    "a session that other calls of it give": with_session,
    "a partial": functools.partial(with_mailer, object()),
    "a partial by keyword": functools.partial(with_default, mailer=object()),
    "a partial of a callable object": functools.partial(Handler()),
    "a callable object": Handler(),
    "a bound method": Handler().method,
    "a class method": Handler.of_class,
    "a static method": Handler.of_none,
    "a decorated one": with_log(of_mail),
    "stamina.retry under it": stamina.retry(on=OSError, attempts=2)(of_mail),
}


@pytest.mark.parametrize("fn", TAKES_MAIL.values(), ids=TAKES_MAIL.keys())
async def test_a_handler_of_one_annotated_value_is_a_kind(fn: Any) -> None:
    kind = register(fn)
    assert kind.handler is fn
    assert kind.signature.takes_value
    assert await kind.push(Mail(user=1)) is not None


@pytest.mark.parametrize("fn", TAKES_MAIL.values(), ids=TAKES_MAIL.keys())
async def test_its_job_runs(fn: Any) -> None:
    kind = register(fn)
    await kind.push(Mail(user=1))
    assert kind.queue is not None
    assert await kind.queue.drain() == 1


async def test_a_handler_whose_value_has_a_default_takes_it() -> None:
    kind = register(with_value_default)
    assert kind.signature.takes_value
    await kind.push(Mail(user=1))
    await kind.push(None)


def test_a_handler_of_nothing_is_a_kind_without_a_value() -> None:
    kind = register(of_nothing)
    assert not kind.signature.takes_value
    assert kind.codec.empty


def test_a_variable_bound_by_a_default_is_no_value() -> None:
    def bind(number: int) -> Callable[[], Awaitable[None]]:
        async def handler(number=number) -> None: ...  # type: ignore[no-untyped-def]  # pyright: ignore

        return handler

    assert not register(bind(1)).signature.takes_value


async def test_stamina_retries_in_the_process_and_the_queue_sees_one_attempt() -> None:
    queue, ran = a_queue(), list[int]()

    @queue.kind("flaky")
    @stamina.retry(on=OSError, attempts=3, wait_initial=0, wait_jitter=0)
    async def flaky(mail: Mail) -> None:
        ran.append(mail.user)
        if len(ran) < 3:
            raise OSError("no route")

    await flaky.push(Mail(user=7))
    assert await queue.drain() == 1
    assert ran == [7, 7, 7]


# Handlers that are none.


def sync(mail: Mail) -> None: ...
def generator(mail: Mail) -> Generator[int]:
    yield 1


async def async_generator(mail: Mail) -> AsyncGenerator[int]:
    yield 1


async def of_two(mail: Mail, other: Mail) -> None: ...
async def of_self(self: object, mail: Mail) -> None: ...
async def of_keyword(*, mail: Mail) -> None: ...
async def of_depends(mail: Mail, tx: object = Depends()) -> None: ...
def of_depends_in_a_def(mail: Mail, tx: Annotated[Any, fastapi.Depends(of_nothing)]) -> None: ...
async def of_security(mail: Mail, user: int = fastapi.Security(of_nothing)) -> None: ...
async def of_request(request: fastapi.Request) -> None: ...
async def of_websocket(mail: Mail, socket: Annotated[fastapi.WebSocket, "of the app"]) -> None: ...
async def of_response(mail: Mail, response: JSONResponse) -> None: ...
async def of_background(mail: Mail, tasks: fastapi.BackgroundTasks) -> None: ...
async def of_session(mail: Mail, session: AsyncSession) -> None: ...
def of_sqlmodel(mail: Mail, session: sqlmodel.Session) -> None: ...
async def unannotated(mail) -> None: ...  # type: ignore[no-untyped-def]  # pyright: ignore
async def of_anything(*args: object, **kwargs: object) -> None: ...
async def of_type_checking(mail: OnlyForTypes) -> None: ...
async def of_missing_name(mail: functools.Missing) -> None: ...  # type: ignore[name-defined]  # pyright: ignore
async def of_object(it: Depends) -> None: ...


REFUSED: dict[str, tuple[Any, str]] = {
    "not a function": (5, "a handler is a function, not 5"),
    "none": (None, "a handler is a function, not None"),
    "a model": (Mail(user=1), "a handler is a function, not Mail"),
    "a lambda of an unannotated value": (eval("lambda value: None"), "value of <lambda> has no annotation"),
    "a class": (Handler, "a handler is a function, not <class .*Handler'>"),
    "a builtin": (print, "print"),
    "a generator": (generator, "a handler is a function that returns at its end, and generator is a generator"),
    "an async generator": (async_generator, ".* and async_generator is a generator"),
    "two values": (
        of_two,
        "it takes its value, or nothing, and of_two wants mail, other. Several values are one with several fields, as a"
        " pydantic model or a dataclass$",
    ),
    "a self": (
        of_self,
        r"it takes its value, or nothing, and of_self wants self, mail. It's given no self: fastjobs.current_job\(\)",
    ),
    "a keyword": (
        of_keyword,
        r"it takes its value, or nothing, and of_keyword wants mail. The value comes by position: take the \* before"
        " mail out$",
    ),
    "a partial that lacks one": (functools.partial(of_two), ".* wants mail, other"),
    "a Depends": (
        of_depends,
        r"tx of of_depends is a Depends, and a handler runs outside any request. Open what it needs in the handler, as"
        r" in: async with sessions.begin\(\) as session: … \(see docs/guide/sessions.md\)$",
    ),
    "a Depends of a def": (
        of_depends_in_a_def,
        r"tx of of_depends_in_a_def is a Depends, .* as in: with sessions.begin\(\) as session: …",
    ),
    "a Security": (of_security, "user of of_security is a Security, and a handler runs outside any request."),
    "a Request": (of_request, r"request of of_request is a Request, and .* in what the queue carries \(carry=\)$"),
    "a WebSocket": (of_websocket, "socket of of_websocket is a WebSocket, and a handler runs outside any request"),
    "a Response": (of_response, "response of of_response is a JSONResponse, and a handler runs outside any request"),
    "BackgroundTasks": (of_background, "tasks of of_background is a BackgroundTasks, .*: what follows it is a job"),
    "a session": (
        of_session,
        r"session of of_session is an AsyncSession, which nobody gives a handler. Open it in the handler, as in: async",
    ),
    "a session of SQLModel": (of_sqlmodel, "session of of_sqlmodel is a Session, which nobody gives a handler. Open"),
    "no annotation": (unannotated, "mail of unannotated has no annotation.* unannotated\\(mail: WelcomeMail\\)"),
    "*args": (of_anything, "of_anything takes \\*args, which doesn't say what its value is.* functools.wraps"),
    "a name for type checkers alone": (of_type_checking, "of_type_checking is annotated with 'OnlyForTypes'"),
    "a name that a module lacks": (of_missing_name, "the signature of of_missing_name can't be read: AttributeError"),
    "a type without JSON": (of_object, "its value can't be a <class .*Depends'>, as pydantic makes no JSON of it"),
}  # fmt: skip


@pytest.mark.parametrize(("fn", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_handler_is_refused_and_told_why(fn: Any, told: str) -> None:
    with pytest.raises(RegistrationError, match=f"^kind 'k': {told}"):
        register(fn)


def test_a_type_of_a_function_is_told_to_be_importable() -> None:
    class Local(BaseModel):
        x: int

    async def handler(it: Local) -> None: ...

    with pytest.raises(
        RegistrationError, match=r"handler is annotated with 'Local'.* importable names of their module"
    ):
        register(handler)


# Names.


@pytest.mark.parametrize("name", ["", "a b", "a\n", "é", "x" * 101, None])
def test_a_name_that_no_kind_may_have_is_refused(name: Any) -> None:
    with pytest.raises(RegistrationError, match="a kind's name is 1 to 100"):
        register(of_mail, name)


def test_a_name_that_is_taken_is_refused_and_its_handler_told() -> None:
    queue = a_queue()
    queue.kind("k")(of_mail)
    with pytest.raises(
        RegistrationError, match=r"kind 'k' has a handler already: of_mail \(test_registering\.py"
    ):
        queue.kind("k")(of_nothing)


def test_names_of_another_case_are_other_kinds() -> None:
    queue = a_queue()
    assert queue.kind("k")(of_mail) is not queue.kind("K")(of_mail)


def test_an_option_that_there_is_none_of_is_refused() -> None:
    decorator: Any = a_queue().kind
    with pytest.raises(
        RegistrationError, match="kind 'k': there is no option retries; there are at_once, attempts, backoff"
    ):
        decorator("k", retries=3)(of_mail)


# Kinds of other modules.


async def test_included_kinds_are_the_queues() -> None:
    kinds, queue = Kinds(), a_queue()
    kind = kinds.kind("k", attempts=3)(of_mail)
    queue.include(kinds)
    assert kind.options.attempts == 3
    assert await kind.push(Mail(user=1)) is not None
    assert await queue.drain() == 1


async def test_a_kind_of_no_queue_yet_does_not_push_and_says_what_to_do() -> None:
    kind = Kinds().kind("k")(of_mail)
    told = r"kind 'k' belongs to no queue yet: q\.include\(kinds\) gives it one"
    with pytest.raises(QueueError, match=told):
        await kind.push(Mail(user=1))
    with pytest.raises(QueueError, match=told):
        await kind.push_many([])
    with pytest.raises(QueueError, match=told):
        kind.in_(Memory())


def test_a_name_is_taken_once_among_kinds() -> None:
    kinds = Kinds()
    kinds.kind("k")(of_mail)
    with pytest.raises(RegistrationError, match="kind 'k' has a handler already"):
        kinds.kind("k")(of_mail)


def test_a_name_is_taken_once_in_the_queue_that_includes_them() -> None:
    kinds, queue = Kinds(), a_queue()
    kinds.kind("k")(of_mail)
    queue.kind("k")(of_nothing)
    with pytest.raises(
        RegistrationError, match=r"kind 'k' has a handler already: of_nothing \(test_registering\.py"
    ):
        queue.include(kinds)


def test_kinds_belong_to_one_queue() -> None:
    kinds = Kinds()
    a_queue().include(kinds)
    with pytest.raises(RegistrationError, match="these kinds are in a queue already"):
        a_queue().include(kinds)


def test_kinds_that_are_included_take_no_more() -> None:
    kinds = Kinds()
    a_queue().include(kinds)
    with pytest.raises(RegistrationError, match="kind 'k': a queue has included these kinds already"):
        kinds.kind("k")(of_mail)


# on_fail.


def test_on_fail_gives_its_function_back() -> None:
    kind: Kind[Any] = register(of_mail)
    assert kind.on_fail(of_both) is of_both
    assert kind.failed_takes_value


def test_on_fail_of_a_kind_without_a_value_takes_the_error_alone() -> None:
    kind: Kind[None] = register(of_nothing)
    assert kind.on_fail(of_error) is of_error
    assert not kind.failed_takes_value


async def on_fail_sync(mail: Mail, error: Exception) -> None: ...
async def on_fail_unannotated(mail, error) -> None: ...  # type: ignore[no-untyped-def]  # pyright: ignore
async def on_fail_of_three(mail: Mail, error: Exception, more: int) -> None: ...
async def on_fail_with_default(mail: Mail, error: Exception, more: int = 0) -> None: ...


async def on_fail_of_any(mail: Any, error: Exception) -> None: ...
async def on_fail_of_object(mail: object, error: Exception) -> None: ...
async def on_fail_of_base(mail: BaseModel, error: Exception) -> None: ...
async def on_fail_of_union(mail: Mail | int, error: Exception) -> None: ...
async def on_fail_of_alias(mail: Annotated[Mail, "the mail"], error: Exception) -> None: ...
async def on_fail_of_protocol(mail: HasUser, error: Exception) -> None: ...
async def on_fail_of_int(user: int, error: Exception) -> None: ...


ON_FAILS: list[Any] = [
    of_both, on_fail_unannotated, on_fail_with_default, functools.partial(of_both), on_fail_of_any, on_fail_of_object,
    on_fail_of_base, on_fail_of_union, on_fail_of_alias, on_fail_of_protocol,
]  # fmt: skip


@pytest.mark.parametrize("fn", ON_FAILS)
def test_on_fail_takes_the_value_and_the_error(fn: Any) -> None:
    kind = register(of_mail)
    kind.on_fail(fn)
    assert kind.failed_takes_value


@pytest.mark.parametrize(
    ("fn", "told"),
    [
        (5, "a handler is a function, not 5"),
        (sync, "it takes the value and the error, and <function sync .* takes one alone"),
        (of_nothing, "it takes its value and the error, and of_nothing wants nothing"),
        (of_error, "it takes the value and the error, and <function of_error .* takes one alone"),
        (on_fail_of_three, "it takes its value and the error, and on_fail_of_three wants mail, error, more"),
        (of_depends, "is a Depends"),
        (
            on_fail_of_int,
            "it's given the kind's value, of type Mail, and <function on_fail_of_int .* of type int",
        ),
    ],
)
def test_what_is_no_on_fail_is_refused_and_told_why(fn: Any, told: str) -> None:
    kind = register(of_mail)
    with pytest.raises(RegistrationError, match=f"^on_fail of kind 'k': .*{told}"):
        kind.on_fail(fn)
    assert kind.failed is None


@pytest.mark.parametrize(
    ("value", "taken"),
    [(int, float), (float, int), (Paper, dict), (dict, Paper), (dict[str, int], list), (bool, int)],
)
def test_what_may_be_a_kinds_value_is_let_through_to_its_on_fail(value: Any, taken: Any) -> None:
    def handler(value: Any) -> None: ...

    def on_fail(value: Any, error: Exception) -> None: ...

    handler.__annotations__["value"], on_fail.__annotations__["value"] = value, taken
    register(handler).on_fail(on_fail)


def test_a_kind_has_one_on_fail() -> None:
    kind = register(of_mail)
    kind.on_fail(of_both)
    with pytest.raises(RegistrationError, match="on_fail of kind 'k': it has one already: <function of_both"):
        kind.on_fail(of_both)


# Settings of the queue.


class Half:
    def carry(self, into: object) -> None: ...


class Whole(Half):
    def restore(self, carried: object) -> None: ...


async def in_time(*_: object) -> Any: ...


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("workers", -1, "workers is a whole number from 0"),
        ("workers", True, "not True"),
        ("workers", 1.5, "not 1.5"),
        ("workers", 10_001, "to 10,000, not 10001"),
        ("poll", 0, "poll is at least 0.001 s"),
        ("poll", "1", "poll is seconds or a timedelta"),
        ("grace", -1, "grace is at least 0 s"),
        ("grace", float("inf"), "grace is a number of seconds"),
        ("hold", 0.05, "hold is at least 0.1 s"),
        ("max_payload", 0, "max_payload is a number of bytes, not 0"),
        ("max_payload", True, "not True"),
        ("max_payload", None, "not None"),
        ("observe", 5, "observe= is a function of a Ran, not 5"),
        ("observe", in_time, "observe= is called and not awaited, so it's a plain function"),
        ("permanent", 5, "permanent=: permanent takes exception types or a predicate, not 5"),
        ("permanent", [int], "permanent takes exception types, and <class 'int'> is none"),
        ("carry", Whole(), "carry= is a list of carriers, as in \\[CarryRequestID\\(\\)\\], not <"),
        ("carry", [Whole], "carry= takes carriers, not their classes: Whole\\(\\)"),
        ("carry", [Half()], "carry= takes carriers, with a carry and a restore, and .* is none"),
        ("carry", [Half], "it's a class: make one"),
        ("carry", ["request_id"], "and 'request_id' is none"),
        ("store", object(), "a queue keeps its jobs in a store, such as .* or Memory\\(\\), and <object"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_is_a_registration_error(setting: str, value: Any, told: str) -> None:
    with pytest.raises(RegistrationError, match=told):
        a_queue(**{setting: value})


def test_a_queues_settings_have_defaults() -> None:
    queue = Queue()
    assert (queue.workers, queue.grace, queue.keep_failed) == (4, 10, timedelta(days=30))
    assert queue.max_payload == 256 * 1024
    found = queue._settings
    assert (found.poll, found.hold, found.carry, found.observe, found.permanent) == (
        1,
        120_000_000,
        (),
        None,
        None,
    )


def test_a_decorator_is_what_kind_says_it_is() -> None:
    decorator: KindDecorator = a_queue().kind("k")
    assert isinstance(decorator(of_mail), Kind)


def test_kinds_are_included_all_or_none() -> None:
    queue, kinds, other = Queue(Memory()), Kinds(), Queue(Memory())

    @queue.kind("taken")
    async def taken() -> None: ...

    @kinds.kind("free")
    async def free() -> None: ...

    @kinds.kind("taken")
    async def again() -> None: ...

    with pytest.raises(RegistrationError, match="'taken' has a handler already"):
        queue.include(kinds)
    other.include(kinds)
    with pytest.raises(RegistrationError, match="'free'"):
        other.kind("free")(taken.handler)
    queue.kind("free")(_also_free)


async def _also_free() -> None: ...


def test_a_stores_class_is_no_store() -> None:
    with pytest.raises(RegistrationError, match="such as SQLStore"):
        Queue(Memory)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_depends_in_an_annotation_is_refused_as_one_that_is_a_default(queue: Queue) -> None:
    async def handler(value: int, session: Annotated[int, fastapi.Depends(of_nothing)]) -> None: ...

    with pytest.raises(
        RegistrationError, match="session of handler is a Depends, and a handler runs outside"
    ):
        queue.kind("mail")(handler)  # type: ignore[arg-type]  # pyright: ignore


def test_a_kind_without_its_name_says_what_to_write(queue: Queue) -> None:
    for make in (queue.kind, Kinds().kind):
        with pytest.raises(RegistrationError, match=r'write @q\.kind\("welcome-mail"\)'):

            @make  # type: ignore[arg-type]  # pyright: ignore
            async def mail(value: int) -> None: ...


def test_a_name_that_is_taken_says_by_what(queue: Queue) -> None:
    @queue.kind("mail")
    async def first(value: int) -> None: ...

    with pytest.raises(RegistrationError, match=r"first \(test_registering\.py:\d+\)"):

        @queue.kind("mail")
        async def second(value: int) -> None: ...
