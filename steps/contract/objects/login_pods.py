"""Login pods of Slurm that change only once somebody deletes them (`OnDelete`): arguments and output of the tasks about them."""

from typing import Final

from msgspec import Struct

OUTPUT: Final = "sessions"
"""Output parameter of the task that lists sessions."""
NONE, SOME = "none", "some"
"""Values of `OUTPUT`: nobody would lose a session, or somebody would. The second is the default, so that a lost answer asks."""


class LoginPods(Struct, frozen=True, kw_only=True):
    """The StatefulSet `name` of login pods in `namespace`; `script` lists the sessions when it runs in `container` of a pod."""

    namespace: str
    name: str = "slurm-login"
    container: str = "sshd"
    script: str = ""
