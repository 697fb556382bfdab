"""Real Kubernetes parts built from the Go modules that `parts/` pins, once per content, into a cache outside the tree."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

PINS = Path(__file__).parents[1] / "parts"
BUILD_SECONDS = 1800
KUBERNETES = "v1.34.4"
_STAMP = "k8s.io/component-base/version"


@dataclass(frozen=True)
class Part:
    """One Go module of ours that pins a program: its folder in `parts/`, what it builds, and what the linker writes into it."""

    name: str
    packages: tuple[str, ...]
    stamps: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    """File names as Go gives them, and as they are called here."""
    module: str = ""
    keep: tuple[tuple[str, str], ...] = ()
    """Folders of `module` that are kept beside the programs, and as they are called here."""

    @property
    def folder(self) -> Path:
        """Return the folder of the part's go.mod, go.sum and tools.go."""
        return PINS / self.name


PARTS = (
    Part(
        "kubernetes",
        tuple(
            f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
        ),
        (f"{_STAMP}.gitVersion={KUBERNETES}", f"{_STAMP}.gitMajor=1", f"{_STAMP}.gitMinor=34"),
    ),
    Part("etcd", ("go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/etcdutl/v3"), rename=(("server", "etcd"),)),
    Part("helm-controller", ("github.com/k3s-io/helm-controller",)),
    Part("helm", ("helm.sh/helm/v3/cmd/helm",)),
)
"""Programs of every cluster."""

ARGO_CD = Part(
    "argo-cd",
    ("github.com/argoproj/argo-cd/v2/cmd",),
    ("github.com/argoproj/argo-cd/v2/common.version=2.14.21",),
    (("cmd", "argocd"),),
    "github.com/argoproj/argo-cd/v2",
    (("manifests/crds", "crds"), ("manifests/base/config", "config")),
)
KUSTOMIZE = Part("kustomize", ("sigs.k8s.io/kustomize/kustomize/v5",))
"""Programs that Argo CD needs beside `helm`; they are built once a test asks for Argo CD."""


def cache() -> Path:
    """The folder for what is built once; `$BRINGUP_CACHE`, else the user's cache."""
    return Path(os.environ.get("BRINGUP_CACHE") or Path.home() / ".cache" / "bringup")


def built(part: Part) -> Path:
    """The folder of a part's programs, built now if it is not cached; two who ask at once build it once."""
    target = cache() / "parts" / f"{part.name}-{_digest(part)}"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{part.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _build(part, target)
    return target


def programs() -> dict[str, Path]:
    """Every program by its name; what is not cached is built, which takes minutes."""
    return {program.name: program for part in PARTS for program in sorted(built(part).iterdir())}


def _environment() -> dict[str, str]:
    """CGO off: the programs run in images that hold nothing else. The toolchain is the machine's, never downloaded."""
    return os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false", "GOTOOLCHAIN": "local"}


def _flags(part: Part) -> str:
    return " ".join(["-s", "-w", *(f"-X {stamp}" for stamp in part.stamps)])


def _digest(part: Part) -> str:
    """Return a digest of all that a build depends on: pins, packages, linker flags, toolchain."""
    hashed = hashlib.sha256()
    for name in ("go.mod", "go.sum", "tools.go"):
        hashed.update((part.folder / name).read_bytes())
    toolchain = subprocess.run(["go", "env", "GOVERSION", "GOARCH"], capture_output=True, text=True, check=True).stdout
    kept = [path for pair in part.keep for path in pair]
    hashed.update("\0".join([*part.packages, _flags(part), *kept, toolchain]).encode())
    return hashed.hexdigest()[:16]


def _build(part: Part, target: Path) -> None:
    """Build beside the target and move: a build that is killed leaves no half-filled folder under the final name."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{part.name}-") as folder:
        made = Path(folder) / "bin"
        command = ["go", "install", "-ldflags", _flags(part), *part.packages]
        done = subprocess.run(
            command,
            cwd=part.folder,
            env=_environment() | {"GOBIN": str(made)},
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{part.name} does not build: {done.stderr.strip()[-2000:]}")
        for old, new in part.rename:
            (made / old).rename(made / new)
        for old, new in part.keep:
            shutil.copytree(_module(part) / old, made / new, copy_function=shutil.copy)
        shutil.move(made, target)


def _module(part: Part) -> Path:
    """Return the read-only folder in which Go keeps a part's module."""
    command = ["go", "list", "-m", "-f", "{{.Dir}}", part.module]
    return Path(
        subprocess.run(command, cwd=part.folder, env=_environment(), capture_output=True, text=True, check=True).stdout.strip()
    )
