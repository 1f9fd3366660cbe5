"""Finds what the command is about: `module:queue`, `module:settings.queue`, or what a factory `module:make()` gives.

With dots alone, `package.module.queue`, the longest module that there is comes first. The current folder is where
modules are looked for first, as with `python -m`.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from fastjobs.cli.hosting import App
from fastjobs.cli.mistake import Mistake, Unnamed
from fastjobs.core.errors import QueueError
from fastjobs.runtime.queue import Queue

if TYPE_CHECKING:
    from fastjobs.stores.sql.store import SQLStore

ENVIRONMENT = "FASTJOBS_QUEUE"
APP_ENVIRONMENT = "FASTJOBS_APP"
_NAME = r"[^\W\d]\w*"
_TARGET = re.compile(rf"({_NAME}(?:\.{_NAME})*):({_NAME}(?:\.{_NAME})*)(\(\))?\Z")
_DOTTED = re.compile(rf"({_NAME}(?:\.{_NAME})+)(\(\))?\Z")


@dataclass(frozen=True)
class Target:
    """The queue that a command is about."""

    named: str
    """How it was named."""
    queue: Queue
    app: App | None
    """The app whose lifespan is to be entered around what's asked of the queue, for what it opens."""


def target_of(queue: str | None, app: str | None) -> Target:
    """The queue, and its app where one is named: by the argument, else by FASTJOBS_APP, else by pyproject.toml.

    The app of pyproject.toml goes with the queue that's named there, and with no other.
    """
    named, found = queue_named(queue)
    configured = Path("pyproject.toml")
    named_app = app or os.environ.get(APP_ENVIRONMENT)
    if not named_app and named == _configured(configured, "queue", "app:q"):
        named_app = _configured(configured, "app", "main:app")
    if not named_app:
        return Target(named, found, None)
    hosted = thing(named_app, "an app", "main:app")
    if not callable(hosted):
        raise Mistake(f"{named_app} is no ASGI app but {_kind_of(hosted)}")
    return Target(named, found, cast("App", hosted))


def queue_named(argument: str | None) -> tuple[str, Queue]:
    """The queue and how it was named: by the argument, else by FASTJOBS_QUEUE, else by pyproject.toml.

    Unnamed where nothing names one, and a Mistake where what is named is no queue. What the app raises as it's
    imported comes out.
    """
    named = argument or os.environ.get(ENVIRONMENT) or _configured(Path("pyproject.toml"), "queue", "app:q")
    if not named:
        raise Unnamed(
            f"which queue? It comes first, as module:queue, such as app:q; or name it by {ENVIRONMENT}, or in"
            ' pyproject.toml:  [tool.fastjobs]  queue = "app:q"'
        )
    found = thing(named, "a queue", "app:q")
    if not isinstance(found, Queue):
        raise Mistake(f"{named} is no queue but {_kind_of(found)}{_beside(named, found)}")
    return named, found


def names_something(word: str) -> bool:
    """Whether it's written as a queue is: `app:q`, or `app.q`."""
    return _TARGET.match(word) is not None or _DOTTED.match(word) is not None


def sql_store(named: str, queue: Queue) -> SQLStore:
    """The queue's SQLStore; a Mistake where it has another store, or none yet."""
    from fastjobs.stores.sql.store import SQLStore  # not before it's needed: it loads SQLAlchemy

    try:
        store = queue.store
    except QueueError:
        raise Mistake(
            f"{named} has no store yet: name a queue that has one as it's imported, a function that makes it, as in"
            " app:make(), or the app that gives it one, as in --app module:app"
        ) from None
    if not isinstance(store, SQLStore):
        raise Mistake(
            f"{named} keeps its jobs in {_kind_of(store)}, and this is about an SQLStore's database"
        )
    return store


def thing(named: str, what: str, example: str) -> Any:
    """What `module:attribute`, `module.attribute` or `module:factory()` names."""
    here = os.getcwd()
    if sys.path[:1] not in ([""], [here]):
        sys.path.insert(0, here)
    if parsed := _TARGET.match(named):
        module_name, path, called = parsed.groups()
        if module_name.endswith(".py") and Path(here, module_name).is_file():  # as a file is named
            raise Mistake(f"{module_name} is a file, and a module is named{_instead(named)}")
        module = _imported(module_name, here)
    elif parsed := _DOTTED.match(named):
        module_name, path, module = _longest(parsed[1], here)
        called = parsed[2]
    else:
        raise Mistake(f"{named!r} doesn't name {what}: write module:name, as in {example}{_instead(named)}")
    found: Any = module
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            if (whole := _submodule(module_name, path, here)) is not None:
                dotted = f"{module_name}.{path}"
                raise Mistake(f"{dotted} is a module: write {_queues_of(whole) or f'{dotted}:q'}") from None
            queues = _queues_of(module)
            raise Mistake(f"{module_name} has no {path}{f'; it has {queues}' if queues else ''}") from None
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


def _longest(dotted: str, here: str) -> tuple[str, str, Any]:
    """The longest module that there is of `package.module.name.of.it`, what's left of the dots, and the module."""
    parts = dotted.split(".")
    for n in range(len(parts) - 1, 0, -1):
        try:
            return ".".join(parts[:n]), ".".join(parts[n:]), _imported(".".join(parts[:n]), here)
        except Mistake:
            if n == 1:
                raise
    raise AssertionError("a dotted name has a dot")


def _imported(name: str, here: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        # The module that was named, or a package on the way to it; a module that it imports itself is its own error.
        if missing.name is None or not f"{name}.".startswith(f"{missing.name}."):
            raise
        raise Mistake(f"there is no module {missing.name!r} in {here} or installed") from None


def _submodule(module: str, path: str, here: str) -> ModuleType | None:
    try:
        found: ModuleType = _imported(f"{module}.{path}", here)
    except Mistake:
        return None
    return found


def _queues_of(module: ModuleType) -> str:
    names = cast("dict[str, object]", vars(module))
    return ", ".join(f"{module.__name__}:{each}" for each, value in names.items() if isinstance(value, Queue))


def _beside(named: str, found: object) -> str:
    """The queues that there are where something else was named."""
    module, colon, _ = named.partition(":")
    where = (
        found
        if isinstance(found, ModuleType)
        else sys.modules.get(module if colon else named.rpartition(".")[0])
    )
    queues = "" if where is None else _queues_of(where)
    return f"; there is {queues}" if queues else ""


def _instead(named: str) -> str:
    module, _, rest = named.partition(":")
    if module.endswith(".py") or "/" in module:
        dotted = module.removesuffix(".py").strip("./").replace("/", ".")
        return f"; {dotted}:{rest or 'q'}, perhaps"
    return ""


def _kind_of(found: object) -> str:
    name = type(found).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def _configured(file: Path, key: str, example: str) -> str | None:
    try:
        text = file.read_text("utf-8")
    except OSError:
        return None
    except UnicodeDecodeError as bad:
        raise Mistake(f"{file} can't be read: {bad}") from None
    try:
        tools: object = tomllib.loads(text).get("tool", {})
    except tomllib.TOMLDecodeError as bad:
        raise Mistake(f"{file} can't be read: {bad}") from None
    own: object = cast("dict[str, object]", tools).get("fastjobs", {}) if isinstance(tools, dict) else {}
    if not isinstance(own, dict):
        raise Mistake(f'{file}: [tool.fastjobs] is a table, as in {key} = "{example}", not {own!r}')
    named = cast("dict[str, object]", own).get(key)
    if named is not None and not isinstance(named, str):
        raise Mistake(f'{file}: [tool.fastjobs] {key} is text, as in "{example}", not {named!r}')
    return named
