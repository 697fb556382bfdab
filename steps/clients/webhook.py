"""POST to a webhook, one try. Its URL is a secret: no message and no error says it, nor what the other side answered."""

import ssl
from typing import Any

import urllib3

from steps import timeouts
from steps.clients import certificates, http_proxies
from steps.contract.exit import ExitCode
from steps.contract.verdict import FailureClass
from steps.errors import StepError, Unreachable

_OVERLOADED = 429
_OTHER_NAME = (62, 64)
"""OpenSSL's codes of a certificate for another host name or address; its own words would say which name was asked for."""
CA = "approvals[].announce.ca"
"""The field of the spec that names who signs the server's certificate."""


class NotTaken(StepError):
    """It did not take the message, or nobody can tell whether it did: to send it again would not help, or say it twice."""

    exit_code = ExitCode.GATE_FAILED
    failure_class = FailureClass.DEPENDENCY


class NoUrl(NotTaken):
    """What is given is no URL that could be asked: nothing was sent."""

    failure_class = FailureClass.INPUT


class Away(Unreachable):
    """The message has certainly not been taken, and may be later: no connection, or the other side is overloaded or broken."""

    failure_class = FailureClass.DEPENDENCY


def is_plain(url: str) -> bool:
    """Whether everybody on the way could read the message, and the URL."""
    return url.lower().startswith("http://")


def post(url: str, body: bytes, ca: tuple[str, ...] = ()) -> None:
    """POST JSON, through the proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name; redirects are not followed.

    `ca` are the certificates (`certificates.read`) that alone may sign the server's, none for those of this machine; a proxy is
    known by those of this machine either way. Raises Away, NotTaken, NoUrl.
    """
    if not is_plain(url) and not url.lower().startswith("https://"):
        raise NoUrl("what is given as the webhook's URL begins with neither https:// nor http://")
    if ca and is_plain(url):
        raise NoUrl(
            "the webhook's URL begins with http://, where no server shows a certificate", hint=f"write https://, or remove {CA}"
        )
    with _pool(url, ca) as pool:
        try:
            answer = pool.request("POST", url, body=body, redirect=False, preload_content=False)  # whatever it says is not read
        except urllib3.exceptions.SSLError as error:
            raise _mistrusted(error, bool(ca)) from None
        except urllib3.exceptions.ProxyError as error:
            raise Away(f"the proxy on the way to the webhook makes no connection ({type(error).__name__})") from None
        except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError) as error:
            raise Away(f"the webhook does not answer ({type(error).__name__})") from None
        except (urllib3.exceptions.LocationValueError, UnicodeError) as error:
            raise NoUrl(f"what is given as the webhook's URL is none ({type(error).__name__})") from None
        except urllib3.exceptions.HTTPError as error:
            raise NotTaken(f"the webhook was connected, and did not answer ({type(error).__name__})") from None
        answer.close()
    if answer.status == _OVERLOADED or answer.status >= 500:
        raise Away(f"the webhook answered {answer.status}")
    if answer.status >= 300:
        raise NotTaken(f"the webhook answered {answer.status}")


def _pool(url: str, ca: tuple[str, ...]) -> urllib3.PoolManager:
    """Raises NoUrl where URL or proxy is none."""
    wait = urllib3.Timeout(connect=timeouts.ANNOUNCE, read=timeouts.ANNOUNCE)
    more: dict[str, Any] = {"headers": {"Content-Type": "application/json"}, "retries": False, "timeout": wait}
    more |= {"ssl_context": certificates.trusting(ca)} if ca else {}
    try:
        proxy = http_proxies.on_the_way(url)
    except ValueError as error:
        raise NoUrl(f"what is given as the webhook's URL is none ({type(error).__name__})") from None
    if not proxy:
        return urllib3.PoolManager(1, **more)
    try:
        bare, login = http_proxies.apart(proxy)
        return urllib3.ProxyManager(bare, 1, proxy_headers=login, **more)
    except (urllib3.exceptions.LocationValueError, ValueError) as error:
        raise NoUrl(f"the proxy that the environment names for the webhook is none ({type(error).__name__})") from None


def _mistrusted(error: urllib3.exceptions.SSLError, ca: bool) -> NotTaken:
    """Why there is no TLS, without any name that was asked for. `ca`: whether the spec names who signs the certificate."""
    cause, head = error.args[0] if error.args else None, "the webhook was not told:"
    if not isinstance(cause, ssl.SSLCertVerificationError):
        return NotTaken(f"{head} TLS with it could not be agreed ({type(error).__name__})")
    why = "it is for another name" if cause.verify_code in _OTHER_NAME else cause.verify_message
    trusted = f"by {CA}" if ca else "here"
    return NotTaken(f"{head} its certificate is not trusted {trusted} ({why})", hint=certificates.advice(CA))
