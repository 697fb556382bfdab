"""Addresses of Git repositories: URLs without secrets, names that Git accepts, and checks of the credentials for them."""

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
"""A Git URL: https://HOST/PATH, ssh://USER@HOST/PATH or USER@HOST:PATH, without a password.

No part of the URL can be taken for a command option or for an Argo template.
"""

GitRef = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/+-]{0,199}$")]


def over_ssh(url: str) -> bool:
    """Return True if a repository is reached by SSH."""
    return not url.startswith(("http://", "https://"))


def require_plain(key: str, url: str) -> None:
    """Refuse a query or fragment, which may hold a token. Called by validators of sections: an error of the field would print the
    URL.
    """
    if {"?", "#"} & set(url):
        raise problem(
            f"{key} has a query or a fragment; a token in it would be written into every record",
            f"remove the part after ? or # in {key}, and give a token in credentials",
        )


def require_name(key: str, name: str, instead: str) -> None:
    """Refuse a branch or tag that Git does not accept; `instead` is a valid name for the fix."""
    if ".." in name or "//" in name or name.endswith(("/", ".", ".lock")):
        raise problem(f"{key} {name} is not a valid name in Git", f"write {key}: {instead}")


def require_fitting(key: str, url: str, *, credentials: bool, ca: bool, known_hosts: bool) -> None:
    """Refuse credentials that the URL has no use for or would send in the clear."""
    if credentials and url.startswith("http://"):
        raise problem("credentials would travel in the clear over http", f"write {key}: https://… or git@HOST:PATH")
    if ca and not url.startswith("https://"):
        raise problem("ca belongs to a repository reached by https", f"remove it, or write {key}: https://…")
    if known_hosts and not over_ssh(url):
        raise problem("known_hosts belongs to a repository reached by SSH", f"remove it, or write {key}: git@HOST:PATH")
