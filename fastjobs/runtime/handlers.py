"""Reads a handler's signature: what value it takes, and how it's called."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast, get_args

from fastjobs.core.errors import RegistrationError


@dataclass(frozen=True, slots=True)
class Signature:
    """What a handler takes."""

    annotation: Any
    """The type of its value; None for a handler without one."""
    takes_value: bool
    is_async: bool
    """Whether it runs on the loop; a plain function runs in a thread."""


def is_async(fn: Callable[..., object]) -> bool:
    """Whether calling it gives something to await."""
    while isinstance(fn, functools.partial):
        fn = cast("functools.partial[object]", fn).func
    if isinstance(fn, type):  # calling it makes an instance, whatever its __call__ is
        return False
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def signature(what: str, fn: Callable[..., object], after_value: int = 0) -> Signature:
    """The signature of a handler, which takes a value or nothing; `after_value` parameters come behind it.

    A RegistrationError where its value isn't annotated, where it wants more than a value, and for what only a request
    could give: a `Depends`, a Request, a session.
    """
    if not callable(fn) or isinstance(fn, type):
        raise RegistrationError(f"{what}: a handler is a function, not {fn!r}")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise RegistrationError(
            f"{what}: a handler is a function that returns at its end, and {_name(fn)} is a generator"
        )
    try:
        parameters = list(inspect.signature(fn, eval_str=True).parameters.values())
    except NameError as unknown:
        raise RegistrationError(
            f"{what}: {_name(fn)} is annotated with {unknown.name!r}, which isn't known where it's defined. With"
            " 'from __future__ import annotations', its types are to be importable names of their module"
        ) from None
    except Exception as bad:  # an annotation that is text may raise anything as it's evaluated
        raise RegistrationError(
            f"{what}: the signature of {_name(fn)} can't be read: {type(bad).__name__}: {bad}"
        ) from None
    for each in parameters:
        why = _of_a_request(each, is_async(fn))
        if why is not None:
            raise RegistrationError(f"{what}: {each.name} of {_name(fn)} is {why}")
    if parameters and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL:
        raise RegistrationError(
            f"{what}: {_name(fn)} takes *{parameters[0].name}, which doesn't say what its value is. A decorator under"
            " it keeps the signature by functools.wraps"
        )
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    wanted = [each for each in parameters if each.default is each.empty and each.kind not in starred]
    if not wanted and not after_value:
        # A value with a default, as a type checker reads it. One without an annotation binds a variable of a loop.
        wanted = [each for each in parameters[:1] if each.kind is not each.KEYWORD_ONLY]
        wanted = [each for each in wanted if each.annotation is not each.empty and each.kind not in starred]
    keywords = [each.name for each in wanted if each.kind is each.KEYWORD_ONLY]
    if keywords or len(wanted) > 1 + after_value or (after_value and len(wanted) < after_value):
        takes = "its value and the error" if after_value else "its value, or nothing"
        raise RegistrationError(
            f"{what}: it takes {takes}, and {_name(fn)} wants {', '.join(each.name for each in wanted) or 'nothing'}"
            f"{'' if after_value else _instead(wanted, keywords)}"
        )
    if len(wanted) <= after_value:
        return Signature(None, False, is_async(fn))
    annotation = wanted[0].annotation
    if annotation is inspect.Parameter.empty and not after_value:
        raise RegistrationError(
            f"{what}: {wanted[0].name} of {_name(fn)} has no annotation. The type says what a value is:"
            f" {_name(fn)}({wanted[0].name}: WelcomeMail)"
        )
    return Signature(annotation, True, is_async(fn))


def _instead(wanted: list[inspect.Parameter], keywords: list[str]) -> str:
    if wanted[0].name == "self":
        return (
            ". It's given no self: fastjobs.current_job() tells it of its job, and of a class it's an instance's method"
            " that is registered"
        )
    if len(wanted) > 1:
        return ". Several values are one with several fields, as a pydantic model or a dataclass"
    return f". The value comes by position: take the * before {keywords[0]} out"


_NUMBERS = (int, float, complex)


def are_apart(one: Any, other: Any) -> bool:
    """Whether two annotations are of values that are surely not of both: classes, neither of which is the other's."""
    open_to_all = (Any, inspect.Parameter.empty)
    if one in open_to_all or other in open_to_all or not (isinstance(one, type) and isinstance(other, type)):
        return False
    if issubclass(one, _NUMBERS) and issubclass(other, _NUMBERS):
        return False  # an int may stand for a float
    try:
        return not (issubclass(one, other) or issubclass(other, one))
    except TypeError:  # of a TypedDict, or of most Protocols, a class can't be told
        return False


_FOLLOW = {"BackgroundTask", "BackgroundTasks"}
_REQUESTS = {"HTTPConnection", "Response", "UploadFile", "SecurityScopes"}
_SESSIONS = {"Session", "AsyncSession", "Connection", "AsyncConnection"}


def _of_a_request(parameter: inspect.Parameter, awaits: bool) -> str | None:
    """What it is and what to do instead, where only a request could give the parameter. Known by names alone."""
    annotation = getattr(parameter.annotation, "__value__", parameter.annotation)  # type Tx = Annotated[…]
    extras = getattr(annotation, "__metadata__", ())  # Annotated[Session, Depends(get_session)]
    opening = f"{'async ' if awaits else ''}with sessions.begin() as session:"
    pattern = f"in the handler, as in: {opening} … (see docs/guide/sessions.md)"
    outside = "and a handler runs outside any request"
    for extra in (parameter.default, *extras):
        if any(cls.__name__ == "Depends" for cls in type(extra).__mro__):
            return f"a {type(extra).__name__}, {outside}. Open what it needs {pattern}"
    if parameter.default is not parameter.empty:
        return None  # the app's own calls may give it, and the queue does without
    for found in (annotation, *get_args(annotation)):  # Annotated[Request, …]
        if not isinstance(found, type):
            continue
        name, bases = found.__name__, set(_names_of(found, "starlette.", "fastapi."))
        if bases & _FOLLOW:
            return f"a {name}, {outside}: what follows it is a job, so push one"
        if bases & _REQUESTS:
            return (
                f"a {name}, {outside}, maybe on another machine. What it needs of the request is to be in its value, or"
                " in what the queue carries (carry=)"
            )
        if _SESSIONS & set(_names_of(found, "sqlalchemy.")):
            a = "an" if name.startswith("Async") else "a"
            return f"{a} {name}, which nobody gives a handler. Open it {pattern}"
    return None


def _names_of(found: type, *packages: str) -> Iterator[str]:
    """The names of its classes that are of these packages."""
    return (cls.__name__ for cls in found.__mro__ if cls.__module__.startswith(packages))


def place_of(fn: object) -> str:
    """The function and where it's written: `welcome (jobs.py:12)`."""
    code = getattr(inspect.unwrap(fn) if callable(fn) else fn, "__code__", None)
    if code is None:
        return _name(fn)
    return f"{_name(fn)} ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})"


def _name(fn: object) -> str:
    return getattr(fn, "__name__", None) or repr(fn)
