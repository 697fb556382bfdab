"""A Secret of the target cluster that verb apply makes of a secret file, for a component that reads it there."""

from msgspec import Struct


class FileSecret(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Secret `name` in `namespace` with one `key`, whose value is the content of the secret file `file`.

    `field` is the field of the spec that gives the file, for messages.
    """

    namespace: str
    name: str
    key: str
    file: str
    field: str
