"""What the command writes: whatever its output is, and whatever the texts are that came from the database.

Others may have written those: a job's error is anyone's text. So what could break a line, move a terminal's cursor,
turn its text round or give it an order is escaped (CWE-150), on a terminal and elsewhere, as a file is looked at too.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from typing import TextIO

# A JSON text's escapes: of a pair of surrogates, of one character, of anything else.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL
)

# Letters and marks to Python, of which a terminal shows nothing: fillers, joiners, and selectors of a letter's form but
# those that people write, after an emoji.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef]"
)


class ReaderGone(Exception):
    """Nobody reads the output any more, as where `| head` has seen enough."""


class Unwritable(Exception):
    """The output can't be written: its disk is full, say."""


def prepare() -> None:
    """Has text that the output's encoding lacks come out escaped, rather than be an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def out(text: str) -> None:
    """Writes to stdout. Made harmless is what the text is made of, each part where it comes in."""
    _write(sys.stdout, text)


def out_json(told: Mapping[str, object]) -> None:
    """Writes an object as a line of JSON, in ASCII."""
    out(json.dumps(told) + "\n")


def flush() -> None:
    """Has written all that `out` was given."""
    _write(sys.stdout, "", flush=True)


def tell(text: str) -> None:
    """Writes a line to stderr, made harmless."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            sys.stderr.write(f"fastjobs: {harmless(text[:4000])}\n")
            sys.stderr.flush()


def give_up_output() -> None:
    """Has what is still to be written to stdout go nowhere, so that the interpreter's end doesn't try again."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def someone_is_there() -> bool:
    """Whether a person can be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


def agreed(question: str) -> bool:
    """Asks the person at the terminal, and says whether the answer was yes. A Ctrl-C ends it as anywhere."""
    # While this blocks the event loop, asyncio's own handler of the signal could end nothing.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.stderr.write(harmless(question))
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    finally:
        signal.signal(signal.SIGINT, before)


class Progress:
    """How far it is, on a terminal alone: a line of stderr that is written over."""

    def __init__(self) -> None:
        self._shown = sys.stderr is not None and sys.stderr.isatty()

    def says(self, text: str) -> None:
        """Shows it in place of what it showed."""
        if self._shown:
            self._write(f"\r\x1b[K{text}")

    def ends(self) -> None:
        """Takes the line away."""
        if self._shown:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()


def harmless(text: str) -> str:
    """The whole text on one line, with whatever isn't a letter, a sign or a space escaped."""
    if text.isprintable() and not _UNSEEN.search(text):
        return text
    return "".join(each if _plain(each) else ascii(each)[1:-1] for each in text)


def readable(payload: str) -> str:
    """A JSON text in ASCII as a person reads it: letters are letters. It's harmless, and may be cut anywhere."""
    return harmless(_ESCAPE.sub(_letter, payload))


def _letter(found: re.Match[str]) -> str:
    escape = found.group()
    if escape[1] != "u":
        return escape
    code = bytes.fromhex(escape.replace("\\u", ""))
    letter = code.decode("utf-16-be", "replace")
    # What JSON itself has to escape stays escaped, and so does what is harmless as it is.
    return letter if _plain(letter) and not letter.isascii() and letter != "\ufffd" else escape


def _plain(letter: str) -> bool:
    # A space that is no ASCII one isn't printable to Python: Japanese is written with one.
    return (letter.isprintable() and not _UNSEEN.match(letter)) or unicodedata.category(letter) == "Zs"


def _write(stream: TextIO | None, text: str, *, flush: bool = False) -> None:
    if stream is None:  # closed before Python began
        return
    try:
        stream.write(text)
        if flush:
            stream.flush()
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as error:
        raise Unwritable(error.strerror or str(error)) from None
