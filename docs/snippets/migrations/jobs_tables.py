"""Make the tables of the queue."""

from alembic import op

import fastjobs.alembic

revision = "jobs_1"
down_revision = None


def upgrade() -> None:
    fastjobs.alembic.upgrade(op)


def downgrade() -> None:
    """The tables stay, as there may be jobs in them."""
