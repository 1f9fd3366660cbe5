"""Unique jobs: what a kind may ask for, and the key that tells one value's jobs from another's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from fastjobs.core.duration import Seconds, micros
from fastjobs.core.errors import RegistrationError


@dataclass(frozen=True, slots=True)
class Unique:
    """One job waits for each value: `@q.kind("reindex", unique=Unique(latest=True))`. `unique=True` is `Unique()`.

    While a job of the kind waits, a push of an equal value pushes nothing and answers None. Once a worker has the job
    a push is pushed, and may run beside it. A job that waits after a failed attempt has let its value go.
    """

    latest: bool = False
    """A push of a value whose job waits moves that job to the push's own time, earlier or later, and answers its id.
    What the job carries stays its first push's. Default False: it keeps the time of its first push."""
    one_at_a_time: bool = False
    """No two jobs of one value run at once, on all instances together: the next waits for the end of the first, or of
    its hold. Default False."""
    at_most: Seconds | None = None
    """With `latest`: how far pushes may move a job on from the time of its first push, in seconds or a timedelta.
    Default None, no limit: pushes that never stop keep it waiting for ever."""

    def __post_init__(self) -> None:
        for name in ("latest", "one_at_a_time"):
            if not isinstance(getattr(self, name), bool):
                raise RegistrationError(f"Unique: {name} is True or False, not {getattr(self, name)!r}")
        if self.at_most is None:
            return
        if not self.latest:
            raise RegistrationError(
                "Unique: at_most says how far latest pushes may move a job, so it needs latest=True"
            )
        try:
            micros(self.at_most, "at_most", least=1)
        except ValueError as bad:
            raise RegistrationError(f"Unique: {bad}") from None

    @property
    def most(self) -> int | None:
        """`at_most` in microseconds."""
        return None if self.at_most is None else micros(self.at_most, "at_most")


def unique(given: object, what: str) -> Unique | None:
    """What `unique=` of a kind means; a RegistrationError for what it can't be."""
    if given is False or given is None:
        return None
    if given is True:
        return Unique()
    if isinstance(given, Unique):
        return given
    raise RegistrationError(f"{what}: unique is True, False or a Unique(…), not {given!r}")


def canonical_writer() -> Callable[[Any], str]:
    """What writes JSON with sorted keys and no spaces: json's own encoder in C, made once.

    `JSONEncoder.encode` makes it for each call, which takes longer than to write a value. It's no documented part of
    json, so where it isn't there or takes other arguments it's left to that.
    """
    plain = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    make: Callable[..., Callable[[Any, int], Iterable[str]]] | None
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return plain.encode
    text = json.encoder.encode_basestring_ascii
    try:
        parts = make(None, plain.default, text, None, ":", ",", True, False, True)
        parts({"a": 1}, 0)
    except TypeError:
        return plain.encode
    return lambda value: "".join(parts(value, 0))


_canonical = canonical_writer()
_read = json.JSONDecoder().raw_decode
"""A payload has no space before it and nothing behind it, and to make sure of that takes `json.loads` twice as long."""


def key_of(payload: str) -> bytes:
    """The key of a value by its payload: the SHA-256 of its JSON with sorted keys and no spaces.

    It's kept in databases, so it never changes. 1 and 1.0 are two values, and so are texts of other code points.
    """
    return hashlib.sha256(_canonical(_read(payload)[0]).encode("ascii")).digest()


_NO_SCHEMA = ("metadata", "default", "expected")
"""What of a pydantic core schema is no schema, and may have anything in it."""


def unordered(schema: Any) -> str | None:
    """The first type in a pydantic core schema whose JSON has no order of its own: "set" or "frozenset"; else None.

    Two equal sets may give two payloads, so their jobs would have two keys. One that a plain serializer puts in order
    is none: the JSON is that serializer's.
    """
    if isinstance(schema, (list, tuple)):
        found = (unordered(each) for each in cast("list[Any]", schema))
        return next((each for each in found if each), None)
    if not isinstance(schema, Mapping):
        return None
    node = cast("Mapping[str, Any]", schema)
    serializer = node.get("serialization")
    if isinstance(serializer, dict) and cast("dict[str, Any]", serializer).get("type") == "function-plain":
        return None
    kind = node.get("type")
    if isinstance(kind, str) and kind in ("set", "frozenset"):
        return kind
    found = (unordered(part) for name, part in node.items() if name not in _NO_SCHEMA)
    return next((each for each in found if each), None)
