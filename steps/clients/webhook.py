"""POST to a webhook, one try. Its URL is a secret: no message and no error says it, nor what the other side answered."""

import ssl
from urllib.parse import unquote, urlsplit

import urllib3

from steps import timeouts
from steps.contract.exit import ExitCode
from steps.contract.verdict import FailureClass
from steps.errors import StepError, Unreachable

_OVERLOADED = 429
_OTHER_NAME = (62, 64)
"""OpenSSL's codes of a certificate for another host name or address; its own words would say which name was asked for."""


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


def post(url: str, body: bytes) -> None:
    """POST JSON, through the proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name; redirects are not followed.

    Raises Away, NotTaken, NoUrl.
    """
    if not is_plain(url) and not url.lower().startswith("https://"):
        raise NoUrl("what is given as the webhook's URL begins with neither https:// nor http://")
    with _pool(url) as pool:
        try:
            answer = pool.request("POST", url, body=body, redirect=False, preload_content=False)  # whatever it says is not read
        except urllib3.exceptions.SSLError as error:
            raise NotTaken(f"the webhook was not told: {_mistrust(error)}") from None
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


def _pool(url: str) -> urllib3.PoolManager:
    """Raises NoUrl where URL or proxy is none."""
    wait = urllib3.Timeout(connect=timeouts.ANNOUNCE, read=timeouts.ANNOUNCE)
    headers = {"Content-Type": "application/json"}
    try:
        proxy = _proxy(url)
    except ValueError as error:
        raise NoUrl(f"what is given as the webhook's URL is none ({type(error).__name__})") from None
    if not proxy:
        return urllib3.PoolManager(1, headers=headers, retries=False, timeout=wait)
    try:
        user, _, place = urlsplit(proxy).netloc.rpartition("@")
        login = urllib3.make_headers(proxy_basic_auth=unquote(user)) if user else None
        bare = f"{urlsplit(proxy).scheme}://{place}"
        return urllib3.ProxyManager(bare, 1, headers=headers, proxy_headers=login, retries=False, timeout=wait)
    except (urllib3.exceptions.LocationValueError, ValueError) as error:
        raise NoUrl(f"the proxy that the environment names for the webhook is none ({type(error).__name__})") from None


def _proxy(url: str) -> str:
    """The proxy on the way to a URL, as the environment names it (in capitals or not); empty for none. Raises ValueError."""
    from urllib.request import getproxies_environment, proxy_bypass  # only who announces pays for it

    parts = urlsplit(url)
    host = parts.hostname or ""
    place = host if parts.port is None else f"{host}:{parts.port}"
    known = getproxies_environment()
    found = known.get(parts.scheme) or known.get("all") or ""
    if not found or proxy_bypass(place):
        return ""
    return found if "://" in found else f"http://{found}"


def _mistrust(error: urllib3.exceptions.SSLError) -> str:
    """Why there is no TLS, without any name that was asked for."""
    cause = error.args[0] if error.args else None
    if not isinstance(cause, ssl.SSLCertVerificationError):
        return f"TLS with it could not be agreed ({type(error).__name__})"
    why = "it is for another name" if cause.verify_code in _OTHER_NAME else cause.verify_message
    return f"its certificate is not trusted here ({why})"
