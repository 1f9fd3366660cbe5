"""`fastjobs schema app:q`: the DDL of a queue's tables, for who makes tables by hand."""

from __future__ import annotations

import argparse

from fastjobs.cli.asking import entered, outcome
from fastjobs.cli.mistake import Mistake
from fastjobs.cli.parsing import Commands, add_app, add_queue, target_typed
from fastjobs.cli.printing import out
from fastjobs.cli.target import sql_store
from fastjobs.core.errors import StoreError


def add(commands: Commands) -> None:
    """Adds `schema` to the command's words."""
    parser = commands.add_parser(
        "schema",
        help="print the statements that make a queue's tables",
        description="Prints the statements that make a queue's tables, for sqlite3, psql or mysql, and connects to"
        " nothing. Then SQLStore(engine, migrate=False) works as a user who may not make tables.",
    )
    add_queue(parser)
    parser.add_argument(
        "--dialect", metavar="NAME", help="sqlite, postgresql, mysql or mariadb; then no queue is looked for"
    )
    parser.add_argument(
        "--prefix", help="with --dialect: what the tables' names begin with, fastjobs_ by default"
    )
    parser.add_argument(
        "--schema", help="with --dialect: the schema, or the MySQL database, that they are in"
    )
    add_app(parser)
    parser.set_defaults(order=_order)


def _order(typed: argparse.Namespace) -> int:
    if typed.dialect is None:
        if typed.prefix is not None or typed.schema is not None:
            raise Mistake("--prefix and --schema go with --dialect: a queue's store says its own")
        target = target_typed(typed, typed.queue)

        if target.app is None:
            out(sql_store(target.named, target.queue).ddl())
            return 0

        async def print_it() -> int:
            async with entered(target):
                out(sql_store(target.named, target.queue).ddl())
            return 0

        return outcome(target, print_it)
    if typed.queue is not None:
        raise Mistake(f"name a queue or a --dialect, not both: {typed.queue} and {typed.dialect}")
    # Not before it's needed: it loads SQLAlchemy.
    from fastjobs.stores.sql.script import script
    from fastjobs.stores.sql.tables import make_tables

    try:
        prefix = "fastjobs_" if typed.prefix is None else typed.prefix
        tables = make_tables(prefix, typed.schema, dialect=typed.dialect)
        out(script(tables, typed.dialect))
    except StoreError as wrong:
        raise Mistake(str(wrong)) from None
    return 0
