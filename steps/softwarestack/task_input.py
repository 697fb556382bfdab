"""Input of a stack's tasks: their arguments, and the stack with its files beside the task."""

from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from steps.clients import certificates, secret_file
from steps.contract.canonical import digest_bytes
from steps.contract.release_layout import ReleaseTarget
from steps.errors import BadTask
from steps.runtime.context import Context
from steps.softwarestack.cache.build_cache import BuildCache
from steps.softwarestack.contract import stack_input
from steps.softwarestack.contract.stack_input import StackBatch, StackInput

STACKS: Final = "stacks"
"""Folder of the run's store in which stacks keep sources, trees and logs."""
PACKAGE, TREE, TEST = "package", "tree", "test"
"""Names of the parts."""


class StackBuildArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of a task of verb `build`, which makes one `part` of a stack.

    `stack` and `files` are the digests of `stack.json` and `stack_files.json` beside the task. `key` is the secret file that signs
    entries of the build cache (empty: unsigned), `cache_secrets` are those for access to it; the task names them so that the pod
    gets them. `memory_mib` is what the largest of its
    packages needs, for the limit of the pod.
    """

    part: str
    stack: str
    files: str
    gate: str
    key: str = ""
    cache_secrets: tuple[str, ...] = ()
    memory_mib: int = 0


class StackPublishArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of the task that publishes a stack: the digest of `stack.json`, the gate, and the publish root.

    `tested` names the stage and task whose record must show that the tests passed for this very tree. `again`: publish also a stack
    that a rollback left, or into a folder that was emptied.
    """

    stack: str
    gate: str
    target: ReleaseTarget
    tested: tuple[str, str] = ("stack_test", TEST)
    again: bool = False


class StackBuildInput(Struct, frozen=True, kw_only=True, dict=True):
    """Input of the function of a part: the task's arguments, the stack, the raw `stack_files.json`, and the number of the batch."""

    wanted: StackBuildArguments
    stack: StackInput
    packed_files: bytes
    shard: int = 0

    @cached_property
    def files(self) -> dict[str, bytes]:
        """Easyconfigs, patches and test files by SHA-256. Raises BadTask."""
        try:
            return stack_input.decode_files(self.packed_files)
        except stack_input.StackInputError as error:
            raise BadTask(str(error), hint=_AGAIN) from error

    @property
    def batch(self) -> StackBatch:
        """Batch of packages that this shard builds. Raises BadTask if there is none of this number."""
        if not 0 <= self.shard < len(self.stack.batches):
            raise BadTask(f"{stack_input.FILE} has {len(self.stack.batches)} batches, and none is number {self.shard}", hint=_AGAIN)
        return self.stack.batches[self.shard]


_AGAIN: Final = "render again and submit both together"


def read_stack(context: Context, digest: str) -> StackInput:
    """Return the stack in the tasks folder. Raises BadTask unless it has this digest."""
    try:
        stack = stack_input.decode((context.environment.tasks / stack_input.FILE).read_bytes())
    except (OSError, stack_input.StackInputError) as error:
        raise BadTask(str(error), hint=_AGAIN) from error
    if stack.digest != digest:
        raise BadTask(f"{stack_input.FILE} is stack {stack.digest}, the task was made for {digest}", hint=_AGAIN)
    return stack


def read_input(context: Context) -> StackBuildInput:
    """Return the input of a task of verb `build`. Raises BadTask unless the files beside the task are those that it names."""
    wanted = context.arguments(StackBuildArguments)
    stack = read_stack(context, wanted.stack)
    try:
        packed = (context.environment.tasks / stack_input.FILES).read_bytes()
    except OSError as error:
        raise BadTask(str(error), hint=_AGAIN) from error
    if (digest := digest_bytes(packed)) != wanted.files:
        raise BadTask(f"{stack_input.FILES} has the digest {digest}, the task was made for {wanted.files}", hint=_AGAIN)
    return StackBuildInput(wanted=wanted, stack=stack, packed_files=packed, shard=context.shard)


def build_cache(context: Context, stack: StackInput, temporary: Path) -> BuildCache:
    """Return the build cache: the registry or the folder that the spec names, else the folder in the store, which pods have too.

    Archives in a registry pass through the folder `temporary`. Raises BadTask for secret files that cannot be used.
    """
    if stack.cache.registry is not None:
        # a folder needs no HTTP client, whose import takes a third of a small task's time
        from steps.softwarestack.cache import build_cache_registry

        secrets, registry = context.environment.secrets, stack.cache.registry
        password = secret_file.password(secrets, registry.password, "cache_access.password") if registry.password else ""
        authorities = certificates.read(secrets, registry.ca, "cache_access.ca") if registry.ca else ()
        return build_cache_registry.registry_cache(stack.cache, stack.root, temporary, password=password, authorities=authorities)
    folder = stack.cache.folder or str(context.environment.store / STACKS / "cache")
    return BuildCache(msgspec.structs.replace(stack.cache, folder=folder), stack.root)
