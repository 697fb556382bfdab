"""Posts a message to a webhook, in one try. The URL is a secret: no error contains it or the answer."""

import ssl
from typing import Any

import urllib3

from steps import timeouts
from steps.clients import bounded_answers, certificates, http_proxies
from steps.contract.exit import ExitCode
from steps.contract.verdict import FailureClass
from steps.errors import StepError, Unreachable

_OVERLOADED = 429
_OTHER_NAME = (62, 64)
"""OpenSSL's error codes for a certificate of another host name or address. OpenSSL's own messages would reveal the host name."""
CA = "approvals[].announce.ca"
"""Field of the spec for the CA certificates of the webhook's server."""


class NotTaken(StepError):
    """Raised if the webhook refused the message, or may have taken it, so sending it again would not help or would repeat it."""

    exit_code = ExitCode.GATE_FAILED
    failure_class = FailureClass.DEPENDENCY


class NoUrl(NotTaken):
    """Raised if the webhook's URL is unusable; nothing was sent."""

    failure_class = FailureClass.INPUT


class WebhookUnavailable(Unreachable):
    """Raised if the message was certainly not taken and may be later: no connection, or the server is overloaded or broken."""

    failure_class = FailureClass.DEPENDENCY


def is_plain(url: str) -> bool:
    """Return True if the URL is plain http, so that everybody on the way can read the message and the URL."""
    return url.lower().startswith("http://")


def post(url: str, body: bytes, ca: tuple[str, ...] = (), seconds: float = timeouts.ANNOUNCE) -> None:
    """POST JSON, through the proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name. Redirects are not followed.

    `ca` are the only certificates to trust for the server (`certificates.read`), none for those that this machine trusts; a proxy
    is always checked by the latter. The answer must come within `seconds`. Raises WebhookUnavailable, NotTaken or NoUrl.
    """
    if not is_plain(url) and not url.lower().startswith("https://"):
        raise NoUrl("what is given as the webhook's URL begins with neither https:// nor http://")
    # the spec asks for a check that plain http cannot make
    if ca and is_plain(url):
        raise NoUrl(
            "the webhook's URL begins with http://, where no server shows a certificate", hint=f"write https://, or remove {CA}"
        )
    with _pool(url, ca, seconds) as pool:
        try:
            answer = pool.request("POST", url, body=body, redirect=False, preload_content=False)  # the answer's body is not read
        except urllib3.exceptions.SSLError as error:
            raise _mistrusted(error, bool(ca)) from None
        except urllib3.exceptions.ProxyError as error:
            raise WebhookUnavailable(f"the proxy on the way to the webhook makes no connection ({type(error).__name__})") from None
        # no connection, so the message was certainly not taken
        except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError) as error:
            raise WebhookUnavailable(f"the webhook does not answer ({type(error).__name__})") from None
        except (urllib3.exceptions.LocationValueError, UnicodeError) as error:
            raise NoUrl(f"what is given as the webhook's URL is none ({type(error).__name__})") from None
        # connected: the message may have been taken, and a retry could repeat it
        except urllib3.exceptions.HTTPError as error:
            raise NotTaken(f"the webhook was connected, and did not answer ({type(error).__name__})") from None
        answer.close()
    if answer.status == _OVERLOADED or answer.status >= 500:
        raise WebhookUnavailable(f"the webhook answered {answer.status}")
    if answer.status >= 300:
        raise NotTaken(f"the webhook answered {answer.status}")


def _pool(url: str, ca: tuple[str, ...], seconds: float) -> urllib3.PoolManager:
    """Return the connection pool. Raises NoUrl if the URL or the proxy is invalid."""
    wait = urllib3.Timeout(connect=seconds, read=seconds)
    more: dict[str, Any] = {"headers": {"Content-Type": "application/json"}, "retries": False, "timeout": wait}
    more |= {"ssl_context": certificates.trusting_context(ca)} if ca else {}
    try:
        proxy = http_proxies.on_the_way(url)
    except ValueError as error:
        raise NoUrl(f"what is given as the webhook's URL is none ({type(error).__name__})") from None
    try:
        bare, login = http_proxies.split_login(proxy) if proxy else ("", None)
        pool = urllib3.ProxyManager(bare, 1, proxy_headers=login, **more) if proxy else urllib3.PoolManager(1, **more)
    except (urllib3.exceptions.LocationValueError, ValueError) as error:
        raise NoUrl(f"the proxy that the environment names for the webhook is none ({type(error).__name__})") from None
    pool.pool_classes_by_scheme = bounded_answers.pool_classes(seconds)
    return pool


def _mistrusted(error: urllib3.exceptions.SSLError, ca: bool) -> NotTaken:
    """Return the error for a TLS failure, without host names. `ca`: the spec names CA certificates."""
    cause, head = error.args[0] if error.args else None, "the webhook was not told:"
    if not isinstance(cause, ssl.SSLCertVerificationError):
        return NotTaken(f"{head} TLS with it could not be agreed ({type(error).__name__})")
    why = "it is for another name" if cause.verify_code in _OTHER_NAME else cause.verify_message
    trusted = f"by {CA}" if ca else "here"
    return NotTaken(f"{head} its certificate is not trusted {trusted} ({why})", hint=certificates.advice(CA))
