"""What crosses between the app and a process of its own that runs a handler: as JSON alone.

The function is named by the app's code, which registered it, and found again by import. Nothing that was in the
database has a say in what is imported or called.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from fastjobs.core.carrier import Carrier
from fastjobs.core.errors import RegistrationError, Retry, Snooze
from fastjobs.core.text import PLACE, error_place, error_text

Reference = tuple[str, str]
"""A function's module, and its name there."""


def reference(what: str, fn: Callable[..., object]) -> Reference:
    """How a process finds the function; a RegistrationError where it couldn't."""
    if not isinstance(fn, types.FunctionType):
        raise RegistrationError(f"{what}: with process=True a handler is a function of a module, not {fn!r}")
    name = fn.__qualname__
    if "<" in name:
        raise RegistrationError(
            f"{what}: with process=True a handler is a function that another process can import, and {name} is made"
            " inside of something else. Define it in its module"
        )
    return fn.__module__, name


def found(at: Reference) -> Callable[..., Any]:
    """The function there, or the handler of the Kind that stands in its place; a RegistrationError for neither."""
    module, name = at
    it: Any = importlib.import_module(module)
    for part in name.split("."):
        it = getattr(it, part, None)
    it = getattr(it, "handler", it)
    if not isinstance(it, types.FunctionType):
        raise RegistrationError(f"process=True: {module}.{name} is no handler, as another process imports it")
    return it


def stand_in(carrier: Carrier) -> Reference | None:
    """Where a process finds the class that restores for this carrier; None where it could make none of it."""
    named: object = getattr(carrier, "in_process", None)
    kind = type(carrier) if named is None else named
    if not isinstance(kind, type) or "<" in kind.__qualname__:
        return None
    if named is None and getattr(carrier, "__dict__", None):
        return None  # made without what it has here, it would restore something else
    try:
        inspect.signature(kind).bind()
    except (TypeError, ValueError):
        return None
    return kind.__module__, kind.__qualname__


def made(at: Reference) -> Carrier:
    """A new one of the class there."""
    it: Any = importlib.import_module(at[0])
    for part in at[1].split("."):
        it = getattr(it, part)
    return cast("Carrier", it())


def told(error: BaseException) -> dict[str, Any]:
    """An error as JSON: the names of its types, its arguments as far as they're plain, and its texts."""
    try:
        message = str.__str__(str(error))
    except BaseException:  # a handler's exception may raise anything from its __str__
        message = error_text(error)
    after: Any = getattr(error, "after", None) if isinstance(error, (Retry, Snooze)) else None
    return {
        "types": [
            ("__main__" if each.__module__ == "__mp_main__" else each.__module__, each.__qualname__)
            for each in type(error).__mro__
            if issubclass(each, BaseException)
        ],
        "name": type(error).__name__,
        "args": _plain(error.args),
        "message": message[:10_000],
        "after": after.total_seconds() if hasattr(after, "total_seconds") else _plain(after),
        "place": error_place(error),
    }


def untold(told: dict[str, Any]) -> BaseException:
    """The error again: of its own type where the app has that loaded, or of the nearest that it has.

    It has its arguments and its text, not its attributes.
    """
    message = cast("str", told["message"])
    for depth, (module, name) in enumerate(told["types"]):
        kind: Any = sys.modules.get(module)
        for part in name.split("."):
            kind = getattr(kind, part, None)
        if not (isinstance(kind, type) and issubclass(kind, BaseException)) or kind is Exception:
            continue
        text = message if not depth else f"{told['name']}: {message}"
        try:
            error = _made(kind, told["args"] or [message], text)
        except Exception:  # noqa: S112 - a type whose __new__ wants something else: the next will do
            continue
        if isinstance(error, (Retry, Snooze)):
            error.after = told["after"]
        break
    else:
        error = Exception(message if told["name"] == "Exception" else f"{told['name']}: {message}")
    setattr(error, PLACE, told["place"])
    return error


def _made(kind: type[BaseException], args: list[Any], text: str) -> BaseException:
    """An error of this type and text, without its __init__: that may want anything."""
    error = kind.__new__(kind, *args)
    with suppress(Exception):  # its __str__ may read what its __init__ would have set
        if str(error) == text:
            return error

    def says(self: BaseException) -> str:
        return text

    spoken = type(kind.__name__, (kind,), {"__str__": says, "__module__": kind.__module__})
    return cast("BaseException", spoken.__new__(spoken, *args))


def _plain(value: object) -> Any:
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return None
