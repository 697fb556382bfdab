"""Git repositories as a spec names them: addresses that hold no secret, names that Git takes, and what may open them."""

from typing import Annotated

from pydantic import StringConstraints

from workflows.spec.fields import problem

GitUrl = Annotated[
    str,
    StringConstraints(
        pattern=r"^https?://[^\s@{}]+$|^ssh://([A-Za-z0-9._][A-Za-z0-9._-]*@)?[^\s@/{}-][^\s@/{}]*/[^\s@{}]+$"
        r"|^[A-Za-z0-9._][A-Za-z0-9._-]*@[^\s@:/{}-][^\s@:/{}]*:[^\s@{}]+$",
        max_length=500,
    ),
]
"""A Git URL: https://HOST/PATH, ssh://USER@HOST/PATH or USER@HOST:PATH, without a password in it, and nothing that a command would
take for an option or Argo for a template of its own."""

GitRef = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/+-]{0,199}$")]


def over_ssh(url: str) -> bool:
    """Whether a repository is reached by SSH."""
    return not url.startswith(("http://", "https://"))


def require_plain(key: str, url: str) -> None:
    """Refuse what a token may stand in. For a section's validator: an error of the field would show the address with it."""
    if {"?", "#"} & set(url):
        raise problem(
            f"{key} has a query or a fragment, which no repository has; a token in it would reach every record",
            f"remove what stands behind ? or # in {key}, and give a token in credentials",
        )


def require_name(key: str, name: str, instead: str) -> None:
    """Refuse a branch or tag that Git does not take; `instead` is one that it does."""
    if ".." in name or "//" in name or name.endswith(("/", ".", ".lock")):
        raise problem(f"{key} {name} is no name that Git takes", f"write {key}: {instead}")


def require_fitting(key: str, url: str, *, credentials: bool, ca: bool, known_hosts: bool) -> None:
    """Refuse secrets that the address has no use for, or would give away."""
    if credentials and url.startswith("http://"):
        raise problem("credentials would travel in the clear over http", f"write {key}: https://… or git@HOST:PATH")
    if ca and not url.startswith("https://"):
        raise problem("ca belongs to a repository reached by https", f"remove it, or write {key}: https://…")
    if known_hosts and not over_ssh(url):
        raise problem("known_hosts belongs to a repository reached by SSH", f"remove it, or write {key}: git@HOST:PATH")
