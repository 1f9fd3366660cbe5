"""PgBouncer in transaction mode, as apps have it before their Postgres."""

from __future__ import annotations

import psycopg

from tests.databases.pgbouncer import PgBouncer
from tests.databases.postgres import Database


def test_a_database_is_reached_by_way_of_it(pgbouncer: PgBouncer, postgres_database: Database) -> None:
    with psycopg.connect(pgbouncer.url(None, postgres_database.name)) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == (postgres_database.name,)
    assert pgbouncer.port != postgres_database.server.port


def test_each_transaction_may_have_another_connection(
    pgbouncer: PgBouncer, postgres_database: Database
) -> None:
    url = pgbouncer.url(None, postgres_database.name)
    with psycopg.connect(url, autocommit=True) as one, psycopg.connect(url) as other:
        [first] = one.execute("SELECT pg_backend_pid()").fetchone() or [0]
        # The other's transaction is open on the connection that the first one just had.
        assert other.execute("SELECT pg_backend_pid()").fetchone() == (first,)
        assert one.execute("SELECT pg_backend_pid()").fetchone() != (first,)
