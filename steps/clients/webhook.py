"""POST to a webhook, once. Its URL is a secret: no message and no error says it, nor what the other side answered."""

import urllib3

from steps import timeouts
from steps.contract.exit import ExitCode
from steps.contract.verdict import FailureClass
from steps.errors import StepError, Unreachable

_OVERLOADED = 429


class NotTaken(StepError):
    """It did not take the message, or nobody can tell whether it did: to send it again would not help, or say it twice."""

    exit_code = ExitCode.GATE_FAILED
    failure_class = FailureClass.DEPENDENCY


class Away(Unreachable):
    """The message has certainly not been taken, and may be later: no connection, or the other side is overloaded or broken."""

    failure_class = FailureClass.DEPENDENCY


def post(url: str, body: bytes) -> None:
    """POST JSON; redirects are not followed. Raises Away, NotTaken."""
    if not url.startswith(("https://", "http://")):
        raise NotTaken("what is given as the webhook's URL begins with neither https:// nor http://")
    wait = urllib3.Timeout(connect=timeouts.ANNOUNCE, read=timeouts.ANNOUNCE)
    pool = urllib3.PoolManager(1, headers={"Content-Type": "application/json"}, retries=False, timeout=wait)
    try:
        answer = pool.request("POST", url, body=body, redirect=False, preload_content=False)  # whatever it says is not read
    except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError) as error:
        raise Away(f"the webhook does not answer ({type(error).__name__})") from None
    except (urllib3.exceptions.LocationValueError, UnicodeError) as error:
        raise NotTaken(f"what is given as the webhook's URL is none ({type(error).__name__})") from None
    except urllib3.exceptions.HTTPError as error:
        raise NotTaken(f"the webhook was connected, and did not answer ({type(error).__name__})") from None
    answer.close()
    if answer.status == _OVERLOADED or answer.status >= 500:
        raise Away(f"the webhook answered {answer.status}")
    if answer.status >= 300:
        raise NotTaken(f"the webhook answered {answer.status}")
