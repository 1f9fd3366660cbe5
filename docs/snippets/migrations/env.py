"""Alembic's env.py, for an app whose jobs are in its own database."""

from alembic import context
from sqlalchemy import engine_from_config, pool
from sqlmodel import SQLModel

from fastjobs.alembic import include_name

# Import the modules with your models here, so that the metadata knows them.
target_metadata = SQLModel.metadata


def run_migrations_offline() -> None:
    context.configure(
        url=context.config.get_main_option("sqlalchemy.url"),
        target_metadata=target_metadata,
        literal_binds=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def run_migrations_online() -> None:
    settings = context.config.get_section(context.config.config_ini_section, {})
    engine = engine_from_config(settings, prefix="sqlalchemy.", poolclass=pool.NullPool)
    with engine.connect() as connection:
        context.configure(
            connection=connection,
            target_metadata=target_metadata,
            include_name=include_name,  # autogenerate leaves fastjobs' tables alone
        )
        with context.begin_transaction():
            context.run_migrations()


if context.is_offline_mode():
    run_migrations_offline()
else:
    run_migrations_online()
