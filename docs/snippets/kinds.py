import smtplib

from pydantic import BaseModel

import fastjobs

kinds = fastjobs.Kinds()


class WelcomeMail(BaseModel):
    user: int


class Gone(Exception):
    """There is no such user any more."""


async def address_of(user: int) -> str:
    if user < 0:
        raise Gone(f"there is no user {user}")
    return f"user-{user}@example.org"


async def send(address: str) -> None: ...


@kinds.kind("welcome-mail", attempts=5, timeout=30, permanent=Gone)
async def welcome(mail: WelcomeMail) -> None:
    try:
        await send(await address_of(mail.user))
    except smtplib.SMTPRecipientsRefused as error:
        raise fastjobs.Permanent("the mail server knows no such address") from error
    except smtplib.SMTPServerDisconnected as error:
        raise fastjobs.Retry("the mail server restarts", after=60) from error


@welcome.on_fail
async def tell_support(mail: WelcomeMail, error: Exception) -> None:
    print(f"user {mail.user} has no welcome mail: {error}")


@kinds.kind("refresh-rates", backoff=30)
async def refresh_rates() -> None:
    job = fastjobs.current_job()
    print(f"job {job.id}, attempt {job.attempt}, before that: {job.last_error}")


q = fastjobs.Queue(fastjobs.Memory())
q.include(kinds)


async def main() -> None:
    await welcome.push_many([WelcomeMail(user=1), WelcomeMail(user=-1)])
    await refresh_rates.push(after=0.1)
    await q.drain()  # runs what is due now: both mails, and not yet the rates
