"""The command `fastjobs`: its words, and what each leads to.

A subcommand is a module with an `add(commands)`: it adds its parser, with `order=` a function of what was typed that
answers an exit code: 0 for what went well, 1 for what did not, and 2 for an order that can't be carried out as it
stands, which is a `Mistake`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import cast

import fastjobs
from fastjobs.cli import doctor, running, schedules, schema
from fastjobs.cli.mistake import Mistake

_COMMANDS = (running, schedules, schema, doctor)


def main(argv: Sequence[str] | None = None) -> int:
    """Carries out what was typed, and answers the exit code."""
    typed = _parser().parse_args(argv)
    order = cast("Callable[[argparse.Namespace], int]", typed.order)
    try:
        return order(typed)
    except Mistake as mistake:
        sys.stderr.write(f"fastjobs: {mistake}\n")
        return 2
    except KeyboardInterrupt:  # as the app was being imported
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fastjobs", description="Background jobs for FastAPI and Starlette.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"fastjobs {fastjobs.__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)
    for each in _COMMANDS:
        each.add(commands)
    return parser
