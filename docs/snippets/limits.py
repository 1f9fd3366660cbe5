from pydantic import BaseModel

import fastjobs

q = fastjobs.Queue(fastjobs.Memory(), workers=8)


class Letter(BaseModel):
    account: int
    to: str


# Two at once, on all instances together: it's the machine's memory that is short.
@q.kind("resize-photo", at_once=2)
async def resize(photo: int) -> None: ...


# What the mail provider allows.
@q.kind("newsletter", rate=fastjobs.Throttle(14, per=1))
async def newsletter(subscriber: int) -> None: ...


# Each customer's API takes three calls a minute, and one that sends more keeps no other waiting.
@q.kind("call-api", rate=fastjobs.Throttle(3, per=60, by=lambda letter: letter.account))
async def call_api(letter: Letter) -> None:
    print(f"account {letter.account}: {letter.to}")


# A limiter of the app's own: what the provider's last answer said.
class Provider:
    def __init__(self) -> None:
        self.busy_for = 0.0

    async def attempt(self, key: str) -> float:
        return self.busy_for


provider = Provider()


@q.kind("text-message", rate=provider)
async def text_message(to: str) -> None:
    print(f"texted {to}")


async def main() -> None:
    await call_api.push_many([Letter(account=1, to=to) for to in ("ada", "bob", "eve", "joe")])
    await call_api.push(Letter(account=2, to="sue"))
    print(await q.drain(), "jobs ran, and joe's waits for its turn")

    await text_message.push("ada")
    provider.busy_for = 30
    print(await q.drain(), "messages went, as the provider is busy")
