"""What the subcommands' parsers have in common: words in any order with options, the queue's name, `--app`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from fastjobs.cli.mistake import Mistake
from fastjobs.cli.target import Target, target_of
from fastjobs.core.errors import RegistrationError
from fastjobs.core.job import kind_name

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # pyright: ignore[reportPrivateUsage]

QUEUE = (
    "module:queue, module.queue or module:factory(); else FASTJOBS_QUEUE, else [tool.fastjobs] queue of"
    " pyproject.toml"
)
EXITS = "Exits with 0 where it's done, 1 where there is no such thing or it failed, and 2 for a mistake in the order."


class Parser(argparse.ArgumentParser):
    """A parser that takes its words before, between and after its options: `jobs app:q --json show 42`."""

    words: str | None = None
    """The name of the list that takes words, where a subcommand has one."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        super().__init__(**options)

    def take_words(self, shown: str, what: str) -> None:
        """Has it take words, any number of them, as `typed.words`."""
        self.words = "words"
        self.add_argument("words", nargs="*", metavar=shown, help=what)

    # Its overloads tell of the namespace's type alone.
    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """As argparse's own, which takes words of a `*` in one place alone."""
        typed, left = super().parse_known_args(None if args is None else list(args), namespace)
        if self.words is not None:
            taken: list[str] = getattr(typed, self.words)
            taken += [each for each in left if not each.startswith("-")]
            left = [each for each in left if each.startswith("-")]
        if left and self.get_default("order") is not None:
            # With its own usage, not that of all commands.
            options = [each for each in left if each.startswith("-")]
            if options:
                self.error(f"there is no {' '.join(options)}")
            kinds: str | None = getattr(typed, "kinds", None)
            hint = (
                ""
                if kinds is None
                else f"; kinds have commas between, as in: --kinds {','.join([kinds, *left])}"
            )
            self.error(f"one word too many: {' '.join(left)}{hint}")
        return typed, left


def add_queue(parser: Parser) -> None:
    """Has it take the queue's name."""
    parser.add_argument("queue", nargs="?", help=QUEUE)


def add_app(parser: Parser) -> None:
    """Has it take `--app`."""
    parser.add_argument(
        "--app",
        metavar="MODULE:APP",
        help="enter this app's lifespan around it, for what it opens (an engine, the queue's store): it serves nothing"
        " and runs no jobs of its own; else FASTJOBS_APP, else [tool.fastjobs] app beside the queue",
    )


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """What an option takes: a whole number from `least`, up to `most` if there's one."""
    told = f"from {least:,}" + ("" if most is None else f" to {most:,}")

    def number(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"a whole number, not {text!r:.80}") from None
        if found < least or (most is not None and found > most):
            raise argparse.ArgumentTypeError(f"{told}, not {text:.80}")
        return found

    return number


def target_typed(typed: argparse.Namespace, queue: str | None) -> Target:
    """The queue that was named, and the app."""
    return target_of(queue, typed.app)


def kind_typed(name: str) -> str:
    """The kind's name; a Mistake for what no kind is called."""
    try:
        return kind_name(name)
    except RegistrationError as wrong:
        raise Mistake(str(wrong)) from None


def one_of(words: Sequence[str], actions: Sequence[str]) -> tuple[str | None, str | None, list[str]]:
    """The queue's name, the action's word and what follows it: `[queue] [action [what…]]`."""
    queue: str | None = None
    rest = list(words)
    if rest and rest[0] not in actions:
        queue = rest.pop(0)
        if not any(sign in queue for sign in ":./"):
            raise Mistake(f"{queue!r} is neither a queue, as in app:q, nor one of {', '.join(actions)}")
    if not rest:
        return queue, None, []
    if rest[0] not in actions:
        raise Mistake(f"after the queue comes one of {', '.join(actions)}, and {rest[0]!r} is none")
    return queue, rest[0], rest[1:]
