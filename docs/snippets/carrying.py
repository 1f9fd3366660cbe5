import asyncio
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar

import fastjobs

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


class CarryTenant:
    def carry(self, into: MutableMapping[str, str]) -> None:
        into["tenant"] = tenant.get()

    def restore(self, carried: Mapping[str, str]) -> None:
        found = carried.get("tenant", "")
        if found.isalnum():  # it has been in the database, so it's checked as what a client sends
            tenant.set(found)


q = fastjobs.Queue(fastjobs.Memory(), carry=[CarryTenant()])


@q.kind("report")
async def report(month: str) -> None:
    print(f"{month} of {tenant.get()}")


async def main() -> None:
    for name in ("acme", "umbrella"):  # as a middleware would, for each request
        tenant.set(name)
        await report.push("May")
    tenant.set("nobody")
    await q.drain()


if __name__ == "__main__":
    asyncio.run(main())
