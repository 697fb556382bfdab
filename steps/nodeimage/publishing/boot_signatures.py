"""Signatures of kernel and initrd beside them in a published version, which boot scripts have iPXE check."""

from pathlib import Path

from steps.clients import cms_signature
from steps.errors import BadTask
from steps.nodeimage.contract import image_manifest, ipxe
from steps.nodeimage.contract.boot_tree import PublishTarget


def certificate_end(target: PublishTarget, secrets: Path) -> str:
    """Return until when nodes accept signatures by the target's key (see `cms_signature.end_of`); empty if it has none.

    Raises BadTask if the key is missing, or iPXE would not accept it.
    """
    if not target.boot_key:
        return ""
    key = _key(target, secrets)
    cms_signature.prove(key)
    return cms_signature.end_of(key)


def sign(folder: Path, target: PublishTarget, secrets: Path) -> dict[str, bytes]:
    """Return file name → bytes of the signatures of a packed image's kernel and initrd; empty if the target has no key for them.

    Raises BadTask if the key is missing or cannot sign.
    """
    if not target.boot_key:
        return {}
    key = _key(target, secrets)
    loaded = (image_manifest.KERNEL, image_manifest.INITRD)
    return {f"{name}{ipxe.SIGNATURE}": cms_signature.sign(folder / name, key) for name in loaded}


def _key(target: PublishTarget, secrets: Path) -> Path:
    key = secrets / target.boot_key
    if "/" in target.boot_key or target.boot_key.startswith(".") or not key.is_file():
        raise BadTask(f"there is no secret file {target.boot_key} to sign with", hint="see publish.boot_signing in the spec")
    return key
