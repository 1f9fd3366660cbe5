"""The jobs. main.py gives them to the queue."""

import logging

from pydantic import BaseModel

import fastjobs

from . import db

log = logging.getLogger(__name__)
kinds = fastjobs.Kinds()


class Placed(BaseModel):
    order: int


def send(email: str, text: str) -> None:
    log.info("to %s: %s", email, text)


@kinds.kind("confirm-order", attempts=5)
def confirm(placed: Placed) -> None:  # a plain def runs in a thread
    with db.reading() as session:
        order = session.get_one(db.Order, placed.order)
    send(order.email, "We have your order.")


@kinds.kind("ask-for-review")
def ask(placed: Placed) -> None:
    with db.reading() as session:
        order = session.get_one(db.Order, placed.order)
    send(order.email, "How was it?")


@kinds.kind("take-stock")
def take_stock() -> None:
    log.info("taking stock")
