"""Reads a handler's signature: what value it takes, and how it's called."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

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

    A RegistrationError where its value isn't annotated, where it wants more than a value, and for a `Depends`.
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
        extras = getattr(each.annotation, "__metadata__", ())  # Annotated[Session, Depends(get_session)]
        if any(type(extra).__name__ == "Depends" for extra in (each.default, *extras)):
            raise RegistrationError(
                f"{what}: {each.name} of {_name(fn)} is a Depends, and a handler runs outside any request. Open what"
                " it needs in the handler, as in: async with Session() as session: ..."
            )
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


def place_of(fn: object) -> str:
    """The function and where it's written: `welcome (jobs.py:12)`."""
    code = getattr(inspect.unwrap(fn) if callable(fn) else fn, "__code__", None)
    if code is None:
        return _name(fn)
    return f"{_name(fn)} ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})"


def _name(fn: object) -> str:
    return getattr(fn, "__name__", None) or repr(fn)
