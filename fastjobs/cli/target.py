"""Finds what the command is about: `module:queue`, `module:settings.queue`, or what a factory `module:make()` gives.

The current folder is where modules are looked for first, as with `python -m`.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fastjobs.cli.mistake import Mistake
from fastjobs.core.errors import QueueError
from fastjobs.runtime.queue import Queue

if TYPE_CHECKING:
    from fastjobs.stores.sql.store import SQLStore

ENVIRONMENT = "FASTJOBS_QUEUE"
_TARGET = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_][\w.]*)(\(\))?\Z")


def queue_named(argument: str | None) -> tuple[str, Queue]:
    """The queue and how it was named: by the argument, else by FASTJOBS_QUEUE, else by pyproject.toml.

    A Mistake where nothing names one, or what is named is no queue. What the app raises as it's imported comes out.
    """
    named = argument or os.environ.get(ENVIRONMENT) or _configured(Path("pyproject.toml"))
    if not named:
        raise Mistake(
            f"which queue? Name it as module:queue, as in: fastjobs run app:q; or by {ENVIRONMENT}, or in"
            ' pyproject.toml:  [tool.fastjobs]  queue = "app:q"'
        )
    found = thing(named, "a queue", "app:q")
    if not isinstance(found, Queue):
        raise Mistake(f"{named} is no queue but {_kind_of(found)}")
    return named, found


def sql_store(named: str, queue: Queue) -> SQLStore:
    """The queue's SQLStore; a Mistake where it has another store, or none yet."""
    from fastjobs.stores.sql.store import SQLStore  # not before it's needed: it loads SQLAlchemy

    try:
        store = queue.store
    except QueueError:
        raise Mistake(
            f"{named} has no store yet: name a queue that has one as it's imported, or a function that makes it, as in"
            " app:make()"
        ) from None
    if not isinstance(store, SQLStore):
        raise Mistake(
            f"{named} keeps its jobs in {_kind_of(store)}, and this is about an SQLStore's database"
        )
    return store


def thing(named: str, what: str, example: str) -> Any:
    """What `module:attribute`, or `module:factory()`, names."""
    parsed = _TARGET.match(named)
    if parsed is None:
        raise Mistake(f"{named!r} doesn't name {what}: write module:name, as in {example}{_instead(named)}")
    module_name, path, called = parsed.groups()
    here = os.getcwd()
    if sys.path[:1] not in ([""], [here]):
        sys.path.insert(0, here)
    module = _imported(module_name, here)
    found: Any = module
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            names = cast("dict[str, object]", vars(module))
            queues = [each for each, value in names.items() if isinstance(value, Queue)]
            hint = f"; it has {', '.join(f'{module_name}:{each}' for each in queues)}" if queues else ""
            raise Mistake(f"{module_name} has no {path}{hint}") from None
    if not called:
        if inspect.isfunction(found) and what == "a queue":
            raise Mistake(f"{named} is a function: call it by {named}()")
        return found
    if not callable(found):
        raise Mistake(f"{module_name}:{path} is not a function but {_kind_of(found)}: leave out the ()")
    made = found()
    if inspect.iscoroutine(made):
        made.close()
        raise Mistake(f"{named} is an async function, and what makes {what} is a plain one")
    return made


def _imported(name: str, here: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        # The module that was named, or a package on the way to it; a module that it imports itself is its own error.
        if missing.name is None or not f"{name}.".startswith(f"{missing.name}."):
            raise
        raise Mistake(f"there is no module {missing.name!r} in {here} or installed") from None


def _instead(named: str) -> str:
    module, _, rest = named.partition(":")
    if module.endswith(".py") or "/" in module:
        dotted = module.removesuffix(".py").strip("./").replace("/", ".")
        return f"; {dotted}:{rest or 'q'}, perhaps"
    return ""


def _kind_of(found: object) -> str:
    return f"a {type(found).__name__}"


def _configured(file: Path) -> str | None:
    try:
        text = file.read_text("utf-8")
    except OSError:
        return None
    try:
        tools = tomllib.loads(text).get("tool", {})
    except tomllib.TOMLDecodeError as bad:
        raise Mistake(f"{file} can't be read: {bad}") from None
    named: object = cast("dict[str, Any]", tools).get("fastjobs", {}).get("queue")
    if named is not None and not isinstance(named, str):
        raise Mistake(f'{file}: [tool.fastjobs] queue is text, as in "app:q", not {named!r}')
    return named
