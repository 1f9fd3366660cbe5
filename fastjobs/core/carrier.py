"""What a job carries from where it's pushed to where it runs: a few short strings, by name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, MutableMapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any, Protocol, cast

from pydantic_core import from_json

from fastjobs.core.errors import CarryError
from fastjobs.core.job import Job
from fastjobs.core.outcome import Outcome

MOST_BYTES = 4096
MOST_NAMES = 32
_NAME = re.compile(r"[a-z0-9_.-]{1,64}\Z", re.ASCII)
_seen: set[str] = set()
"""Names that are known to be good: an app's pushes have the same few, again and again."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Carrier(Protocol):
    """Takes something from the context a job is pushed in and gives it back to the context it runs in.

    The context is Python's own: both methods read or set context variables. Each run has a fresh context, so
    nothing needs undoing. Both are plain and quick, and may be called in any thread. One that raises loses its own
    part alone, and the error is logged. No token or password belongs in it: it's kept in the database beside the job.

    With `process=True` a handler runs in another process. A carrier restores there too if its class is one of a
    module, is made without arguments, and has set nothing on itself. Another one may name a class that is so, whose
    `restore` does for it there, as its attribute `in_process`.
    """

    def carry(self, into: MutableMapping[str, str]) -> None:
        """Puts what it takes from the current context in `into`, by names of its own ([a-z0-9_.-], 64 at most)."""
        ...

    def restore(self, carried: Mapping[str, str]) -> None:
        """Sets what `carried` has of it in the current context. It has been in the database: check it as a header."""
        ...


class FollowedPush(Protocol):
    """One push that a Follower follows. All three are called in the context of the push, `end` once and last."""

    def carry(self, into: MutableMapping[str, str]) -> None:
        """In place of the Follower's own `carry`."""
        ...

    def begin(self) -> None:
        """The store is about to be asked. What this sets in the context, `end` sets back."""
        ...

    def end(self, ids: Sequence[str | None] | None, error: BaseException | None) -> None:
        """It was answered with the jobs' ids, or it failed with this error. A transaction may still roll back."""
        ...


class FollowedRun(Protocol):
    """One run that a Follower follows. The queue's own log lines about it say its `trace_id`, a str, if it has one."""

    def end(self, outcome: Outcome | None, error: BaseException | None) -> None:
        """The run has ended; called once, in any context, while what it left behind in a thread may go on.

        `outcome` is None of an on_fail. `error` is None where nothing failed, also of a job that was stopped with the
        queue, that was held back, and that was cancelled.
        """
        ...


class Follower(Carrier, Protocol):
    """A carrier that also follows each push and each run from its beginning to its end, as `CarryTrace` does.

    `Queue(carry=…)` takes one for a Follower if it has a `pushing`. The rules are a Carrier's.
    """

    def pushing(self, kind: str, count: int) -> FollowedPush | None:
        """A push of so many jobs begins, in the current context. With None, it's not followed, and `carry` is called.

        The runs of a schedule are not pushed in anyone's context, and are not told of.
        """
        ...

    def running(
        self, job: Job, carried: Mapping[str, str], waited: float, *, on_fail: bool
    ) -> FollowedRun | None:
        """A run begins, in its own fresh context, in which everything is restored: what this sets there is its own.

        `waited` is how many seconds past its time the job was claimed; `on_fail` says that it's not the handler that
        is about to run, but its kind's on_fail. A job that a rate holds back has no run.
        """
        ...

    def unseen(self) -> None:
        """Called in the contexts that the queue's own loops have: what they ask of the store is about no job alone."""
        ...


def packed(carried: Mapping[str, str]) -> str | None:
    """What is carried, as ASCII JSON text; None for nothing. A CarryError says what is over a limit."""
    if not carried:
        return None
    if len(carried) > MOST_NAMES:
        raise CarryError(
            f"a job carries at most {MOST_NAMES} names, and this push would carry {len(carried)}"
        )
    pairs: list[str] = []
    for name, value in carried.items():
        if name not in _seen:
            if not isinstance(name, str) or not _NAME.match(name):
                raise CarryError(f"a carried name is 1 to 64 of a-z 0-9 _ . -, and {name!r:.80} is none")
            if len(_seen) < 256:
                _seen.add(name)
        if not isinstance(value, str):
            raise CarryError(f"carried {name!r} is a string, not a {type(value).__name__}")
        # Most values are short and ASCII, and need no look at each character.
        if not (value.isascii() and value.isprintable()) and _CONTROL.search(value):
            raise CarryError(f"carried {name!r} has control characters, as no header may")
        # As json.dumps does, for half of its time.
        pairs.append(f'"{name}":{encode_basestring_ascii(value)}')
    text = "{" + ",".join(pairs) + "}"
    if len(text) > MOST_BYTES:
        raise CarryError(
            f"a job carries at most {MOST_BYTES} bytes as JSON, and this push would carry {len(text)}"
        )
    return text


def unpacked(text: str | None) -> dict[str, str]:
    """What was carried, as far as it's sound: it has been in the database, where anyone may have written."""
    # In SQLite anything may stand in any column.
    if not text or not isinstance(text, str) or len(text) > MOST_BYTES:
        return {}
    is_simple = text.isascii() and "\\" not in text
    try:
        # The faster one refuses half a character, and what it makes of escapes isn't right in pydantic-core 2.18.
        found: Any = from_json(text) if is_simple else json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict) or len(cast("dict[str, Any]", found)) > MOST_NAMES:
        return {}
    return {
        name: value
        for name, value in cast("dict[str, Any]", found).items()
        if (name in _seen or _NAME.match(name))
        and isinstance(value, str)
        and ((value.isascii() and value.isprintable()) or not _CONTROL.search(value))
    }
