"""Texts of errors, made safe: for a column (any database), and for one line of a log."""

from __future__ import annotations

import os.path
import re
import sysconfig
import traceback
from types import FrameType

KEPT = 4096
"""The most bytes of an error's text that are kept with its job."""
LOGGED = 1024
"""The most characters of a value on a log line."""

PLACE = "_fastjobs_place"
"""The attribute of an error that another process raised: where it was raised there."""

_KEPT_PLACE = re.compile(r" \[([^\[\]\n]{1,200}:\d+ [^\[\]\n]{1,200})\]\Z")

_OTHERS = (
    *{sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    os.path.dirname(os.path.dirname(__file__)) + os.sep,
    "<",  # "<frozen importlib…>", and what a library made as it ran: "<sqlalchemy generated …>", "<string>"
)

# What breaks a line, moves a terminal's cursor or turns its text round: C0, DEL, C1, line and paragraph
# separators, the bidi controls, zero-width marks and tags, and lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def one_line(text: str, most: int = LOGGED) -> str:
    """The text on one line: what could break it or move a terminal is escaped, and a long one is cut."""
    if len(text) > most:
        text = text[:most] + f"… ({len(text)} characters)"
    return _UNSAFE.sub(lambda found: ascii(found.group())[1:-1], text)


def kept_text(text: str, most: int = KEPT) -> str:
    """The text as every database takes it: no NUL, no lone surrogate, at most `most` bytes, cut at a character."""
    clean = text[: most * 2].replace("\0", "\\x00").encode("utf-8", "backslashreplace")
    if len(clean) <= most and len(text) <= most * 2:
        return clean.decode("utf-8")
    return clean[: most - 3].decode("utf-8", "ignore") + "…"


def error_text(error: BaseException) -> str:
    """`Type: message`, whatever the exception does when it's asked for its text."""
    name = type(error).__name__
    try:
        message = str.__str__(str(error))  # a plain one, of a subclass of str too
    except BaseException as broken:  # a handler's exception may raise anything from its __str__
        return f"{name} (its str() raised {type(broken).__name__})"
    return kept_text(f"{name}: {message}" if message else name)


def error_place(error: BaseException) -> str:
    """Where in the app's code it came from, `file.py:12 function`; else where it was raised, or "".

    Installed packages and the standard library aren't the app's code."""
    if (place := getattr(error, PLACE, None)) is not None:
        return str(place)
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames:
        return ""
    # The innermost line of the app's own code says more than where a library raised.
    own = [each for each in frames if not each[0].f_code.co_filename.startswith(_OTHERS)]
    return _place(*(own or frames)[-1])


def kept_error(text: str, raised: BaseException | None) -> str:
    """The error's text as it's kept with its job: with the place in the app's code behind it, where there is one."""
    place = kept_text(error_place(raised), 200) if raised is not None else ""
    return f"{kept_text(text, KEPT - len(place.encode()) - 3)} [{place}]" if place else text


def error_and_place(kept: str) -> tuple[str, str | None]:
    """What `kept_error` has kept: the error's text, and the place where it was raised, where there is one."""
    found = _KEPT_PLACE.search(kept)
    return (kept, None) if found is None else (kept[: found.start()], found.group(1))


def running_place(frame: FrameType | None, under: str = "") -> str:
    """Where in the app's code a stack is that runs just now, by its innermost frame; else that frame, or "".

    Frames from the file `under` outwards aren't looked at.
    """
    found = frame
    while found is not None and found.f_code.co_filename.startswith(_OTHERS):
        found = found.f_back if found.f_code.co_filename != under else None
    found = found or frame
    return _place(found, found.f_lineno) if found is not None else ""


def _place(frame: FrameType, line: int) -> str:
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{line} {frame.f_code.co_name}"
