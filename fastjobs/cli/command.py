"""The command `fastjobs`: its words, and what each leads to.

A subcommand is a module with an `add(commands)`: it adds its parser, with `order=` a function of what was typed that
answers an exit code: 0 for what went well, 1 for what did not, and 2 for an order that can't be carried out as it
stands, which is a `Mistake`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import cast

import fastjobs
from fastjobs.cli import doctor, jobs, kinds, printing, running, schedules, schema
from fastjobs.cli.mistake import Mistake
from fastjobs.cli.parsing import Parser

_COMMANDS = (running, jobs, kinds, schedules, schema, doctor)
_ABOUT = """\
Background jobs for FastAPI and Starlette.

  fastjobs jobs app:q             what failed for good, and with which error
  fastjobs jobs app:q retry all   have it run again
  fastjobs kinds app:q            how many jobs of each kind wait, run, failed
  fastjobs run app:q              run the jobs, without a web server

A queue is named as module:queue; or by FASTJOBS_QUEUE, or in pyproject.toml:
  [tool.fastjobs]
  queue = "app:q"
Each command tells more of itself: fastjobs jobs --help"""


def main(argv: Sequence[str] | None = None) -> int:
    """Carries out what was typed, and answers the exit code."""
    printing.prepare()
    typed = _parser().parse_args(argv)
    order = cast("Callable[[object], int]", typed.order)
    try:
        try:
            code = order(typed)
        except Mistake as mistake:
            printing.tell(str(mistake))
            code = 2
        except KeyboardInterrupt:
            code = 1
        printing.flush()
    except printing.ReaderGone:
        printing.give_up_output()
        return 0
    except printing.Unwritable as why:
        printing.give_up_output()
        printing.tell(f"the output can't be written: {why}")
        return 1
    return code


def _parser() -> Parser:
    parser = Parser(prog="fastjobs", description=_ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"fastjobs {fastjobs.__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)
    for each in _COMMANDS:
        each.add(commands)
    return parser
