"""What is wrong with an order as it was typed."""

from __future__ import annotations


class Mistake(Exception):
    """An order that can't be carried out as it stands: told in one line, with exit code 2."""


class Unnamed(Mistake):
    """Nothing has named the queue."""
