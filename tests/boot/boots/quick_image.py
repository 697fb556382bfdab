"""An image that boots quickly, built once by mmdebstrap from the machine's own package sources, cached by content."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import yaml

from steps.contract.canonical import digest_bytes
from steps.nodeimage.contract import build_keys, image_manifest
from steps.nodeimage.contract.image_manifest import INITRD, KERNEL, ROOT, ImageFile, Manifest
from steps.nodeimage.contract.image_tests import BuiltinCheck, ImageTest, Where
from steps.nodeimage.contract.resolved_recipe import PackageRepository, Recipe, ResolvedLayer
from steps.nodeimage.files import initrd_archive

BOOT = Path(__file__).parents[3] / "images" / "boot"
PACKAGES = ("linux-image-cloud-amd64", "systemd-sysv", "udev", "live-boot", "zstd")
UNWANTED = (
    "getty-static.service",
    "getty.target",
    "systemd-logind.service",
    "systemd-user-sessions.service",
    "e2scrub_reap.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
)
"""Units that no test uses. The first one runs where there is no dbus, so in no image of a recipe, and has failed on a busy host."""
EPOCH = "1700000000"
SECONDS = 600
TESTS = (
    ImageTest(name="root is an overlay", incident="-", run="grep -q '^overlay / ' /proc/mounts", where=Where.BOTH, seconds=1),
    ImageTest(
        name="systemd", incident="-", run='test "$(cat /proc/1/comm)" = systemd; echo as "pid 1"', where=Where.BOOT, seconds=1
    ),
    ImageTest(
        name="report enabled",
        incident="-",
        check=BuiltinCheck.SERVICES_ENABLED,
        arguments=("bringup-report.service",),
        where=Where.BOTH,
        seconds=2,
    ),
    ImageTest(
        name="tells again",
        incident="-",
        run='at=$(systemctl show --value -p NextElapseUSecMonotonic bringup-report.timer); test -n "$at" -a "$at" != infinity',
        where=Where.BOOT,
        seconds=2,
    ),
    ImageTest(
        name="runs programs of today",
        incident="-",
        run="/lib64/ld-linux-x86-64.so.2 --help | grep -F 'x86-64-v3 (supported'",
        where=Where.BOOT,
        seconds=2,
    ),
    ImageTest(name="packed only", incident="-", check=BuiltinCheck.NO_HOST_IDENTITY),
)
_SHRINK = (
    "rm -rf usr/share/doc usr/share/man usr/share/locale usr/share/info var/lib/apt/lists/* var/cache var/log/*.log var/log/apt"
    " usr/lib/modules/*/kernel usr/lib/udev/hwdb.* usr/share/perl* usr/lib/*/perl usr/lib/*/libperl* usr/bin/perl*"
    " usr/share/zoneinfo usr/lib/*/gconv usr/share/i18n usr/bin/pzstd usr/bin/busybox var/lib/dpkg/info"
)
"""Removes what no test uses: an emulated machine fetches its root and reads half of it.

The initrd has loaded all kernel modules that a test machine needs before its root is mounted.
"""
_USED = r"overlay|squashfs|loop|virtio\w*|net_failover|failover"
UNUSED_MODULES = rf"(usr/)?lib/modules/[^/]+/kernel/(?!.*/({_USED})\.ko).*\.ko"
"""Modules of the initrd that no test machine uses: emulated machines take 7 s of CPU to unpack them and to try them on devices."""
WHOLE_INITRD, WHOLE_ROOT_BYTES = "whole-initrd.img", 80_000_000
"""File in the store that is the initrd with all its modules, and the size of a root from which nothing was removed."""


def recipe(tests: tuple[ImageTest, ...] = TESTS) -> Recipe:
    """Return the quick image's recipe, with no more fields than a boot needs."""
    return Recipe(
        name="quick",
        distribution="debian",
        release="bookworm",
        architecture="amd64",
        epoch=int(EPOCH),
        sources=(PackageRepository(url="http://deb.debian.org/debian", suite="bookworm"),),
        layers=(ResolvedLayer(name="base"),),
        kernel="linux-image-cloud-amd64",
        tests=tests,
    )


def cache() -> Path:
    """Return the folder that caches expensive builds of the boot tests."""
    return Path(os.environ.get("BRINGUP_CACHE") or Path.home() / ".cache" / "bringup") / "boot"


def other_kernel(release: str) -> Path:
    """A kernel of another version than that one, from the machine's own package sources."""
    names = subprocess.run(["apt-cache", "pkgnames", "linux-image-6.1"], capture_output=True, text=True, check=True).stdout.split()
    name = max(name for name in names if name.endswith("-cloud-amd64") and not name.endswith(release))
    target = cache() / f"vmlinuz-{name}"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".kernel-") as folder:
            _run("apt-get", "download", "-o", "APT::Sandbox::User=root", name, folder=Path(folder))
            _run("dpkg-deb", "--extract", next(Path(folder).glob("*.deb")).name, "root", folder=Path(folder))
            next(Path(folder).glob("root/boot/vmlinuz-*")).rename(target)
    return target


def store() -> Path:
    """A store of images with it; built now if it is not cached: half a minute."""
    target = cache() / f"quick-{_digest()}"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "quick.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".quick-") as folder:
                made = Path(folder) / "store"
                _build(Path(folder) / "root", made / "assembled" / build_keys.image(recipe()))
                made.rename(target)
    return target


def whole(store: Path, folder: Path) -> Path:
    """Return a store in a folder whose image has the initrd and the size of root from which nothing was removed."""
    packed = next(store.glob(f"assembled/*/{ROOT}")).parent
    image = folder / "assembled" / packed.name
    shutil.copytree(packed, image)
    shutil.copyfile(store / WHOLE_INITRD, image / INITRD)
    os.truncate(image / ROOT, WHOLE_ROOT_BYTES)
    write_manifest(image, image_manifest.decode((packed / image_manifest.MANIFEST).read_bytes()).kernel)
    return folder


def _digest() -> str:
    hashed = hashlib.sha256(build_keys.image(recipe()).encode())
    for path in (Path(__file__), *sorted(BOOT.iterdir())):
        hashed.update(path.read_bytes())
    return hashed.hexdigest()[:16]


def _build(root: Path, target: Path) -> None:
    sources = [*Path("/etc/apt").glob("sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*.sources"))]
    _run("mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", "bookworm", str(root), *map(str, sources))
    wanted = yaml.safe_load((BOOT / "files.yaml").read_text())
    for one in wanted["files"]:
        path = root / one["path"].lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(BOOT / one["source"], path)
        path.chmod(int(one["mode"], 8))
    _run("chroot", str(root), "systemctl", "enable", *wanted["services"])
    _run("chroot", str(root), "systemctl", "mask", *UNWANTED)
    _run("sh", "-ec", _SHRINK, folder=root)
    (root / "etc/machine-id").write_text("")
    target.mkdir(parents=True)
    kernel = next((root / "boot").glob("vmlinuz-*"))
    release = kernel.name.removeprefix("vmlinuz-")
    shutil.copyfile(kernel, target / KERNEL)
    whole = target.parents[1] / WHOLE_INITRD
    shutil.copyfile(root / "boot" / f"initrd.img-{release}", whole)
    (target / INITRD).write_bytes(initrd_archive.without(whole, UNUSED_MODULES))
    # an emulated machine takes long to unpack zstd
    _run("mksquashfs", str(root), str(target / ROOT), "-noappend", "-no-progress", "-comp", "lz4", "-e", "boot")
    write_manifest(target, release)


def write_manifest(target: Path, release: str) -> None:
    """The manifest of the files in a folder."""
    parts = [
        ImageFile(name=name, digest=digest_bytes((target / name).read_bytes()), size=(target / name).stat().st_size)
        for name in (ROOT, KERNEL, INITRD)
    ]
    made = Manifest(
        name="quick",
        key=target.name,
        recipe=recipe().digest,
        distribution="debian",
        release="bookworm",
        architecture="amd64",
        epoch=int(EPOCH),
        kernel=release,
        kernel_arguments=(),
        parts=tuple(parts),
        layers=(),
        packages=(),
    )
    (target / image_manifest.MANIFEST).write_bytes(image_manifest.encode(made))


def _run(*command: str, folder: Path | None = None) -> None:
    environment = os.environ | {"SOURCE_DATE_EPOCH": EPOCH}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
