"""Checks of a root's listing: what each has against a root, in words."""

from pathlib import PurePosixPath

import pytest

from steps.nodeimage.contract import debian, root_checks
from steps.nodeimage.contract.image_tests import BuiltinCheck
from steps.nodeimage.contract.root_listing import FOLDER, LINK, REGULAR, RootEntry, RootListing

STATES = {"gcc": "install ok installed", "kmod": "install ok unpacked", "held": "hold ok installed"}
STATUS = "\n".join(f"Package: {name}\nStatus: {state}\n" for name, state in STATES.items())
KERNEL = "usr/lib/modules/6.1.0"
UNITS = "usr/lib/systemd/system"
WANTS = "etc/systemd/system/multi-user.target.wants"


def root(**more: RootEntry) -> RootListing:
    """A small good root; `more` entries by path, `__` for a slash."""
    entries = {
        "bin": RootEntry(LINK, 0o777, link="usr/bin"),
        "etc": RootEntry(FOLDER, 0o755),
        "etc/mtab": RootEntry(LINK, 0o777, link="../proc/self/mounts"),
        "etc/machine-id": RootEntry(REGULAR, 0o444),
        "lib": RootEntry(LINK, 0o777, link="usr/lib"),
        "tmp": RootEntry(FOLDER, 0o1777),
        "usr": RootEntry(FOLDER, 0o755),
        "usr/bin": RootEntry(FOLDER, 0o755),
        "usr/bin/sh": RootEntry(LINK, 0o777, link="dash"),
        "usr/bin/dash": RootEntry(REGULAR, 0o755, 1 << 20),
        "usr/bin/su": RootEntry(REGULAR, 0o4755, 1 << 20),
        "usr/lib": RootEntry(FOLDER, 0o755),
        f"{KERNEL}": RootEntry(FOLDER, 0o755),
        UNITS: RootEntry(FOLDER, 0o755),
        f"{UNITS}/ssh.service": RootEntry(REGULAR, 0o644),
        f"{UNITS}/getty@.service": RootEntry(REGULAR, 0o644),
        WANTS: RootEntry(FOLDER, 0o755),
        f"{WANTS}/ssh.service": RootEntry(LINK, 0o777, link="/lib/systemd/system/ssh.service"),
        f"{WANTS}/getty@tty1.service": RootEntry(LINK, 0o777, link="/lib/systemd/system/getty@.service"),
        f"{WANTS}/gone.service": RootEntry(LINK, 0o777, link="/lib/systemd/system/gone.service"),
    }
    texts = {
        debian.STATUS: STATUS,
        f"{KERNEL}/modules.dep": "kernel/net/virtio_net.ko.xz: kernel/a.ko\nkernel/fs/overlay.ko:\n",
        f"{KERNEL}/modules.builtin": "kernel/fs/ext4.ko\n",
    }
    found = {**entries, **{name.replace("__", "/"): entry for name, entry in more.items()}}
    folders = {
        str(folder): RootEntry(FOLDER, 0o755) for path in found for folder in PurePosixPath(path).parents if str(folder) != "."
    }
    return RootListing({**folders, **found}, texts)


def said(check: BuiltinCheck, *arguments: str, of: RootListing | None = None) -> str:
    return "; ".join(root_checks.judge(check, arguments, of or root()))


@pytest.mark.parametrize(
    ("check", "arguments"),
    [
        (BuiltinCheck.SERVICES_ENABLED, ("ssh.service", "getty@tty1.service")),
        (BuiltinCheck.PATHS_PRESENT, ("/bin/sh", "/usr/bin/d*", "/lib/modules/*", "/etc/mtab")),
        (BuiltinCheck.PATHS_ABSENT, ("/etc/ssh/*", "/usr/bin/gcc", "/bin/x*")),
        (BuiltinCheck.PACKAGES_PRESENT, ("gcc", "held")),
        (BuiltinCheck.PACKAGES_ABSENT, ("telnetd",)),
        (BuiltinCheck.LINKS_RESOLVE, ("/bin", "/usr/bin")),
        (BuiltinCheck.LINKS_RESOLVE, ("/", "!", "/etc/systemd/system/*/gone.service")),
        (BuiltinCheck.LINKS_RESOLVE, ("/etc", "!/etc/systemd/system/*/gone.*")),
        (BuiltinCheck.NOT_WORLD_WRITABLE, ()),
        (BuiltinCheck.NO_HOST_IDENTITY, ()),
        (BuiltinCheck.SIZE_BUDGET, ("2",)),
        (BuiltinCheck.MODULES_PRESENT, ("virtio-net", "overlay", "ext4")),
        (BuiltinCheck.SETUID, ("/bin/su",)),
        (BuiltinCheck.SETUID, ("/usr/bin/*",)),
        (BuiltinCheck.SETUID, ("/usr/bin/su", "/usr/bin/sudo")),
    ],
)
def test_a_sound_root_passes(check: BuiltinCheck, arguments: tuple[str, ...]) -> None:
    assert not said(check, *arguments)


@pytest.mark.parametrize(
    ("check", "arguments", "words"),
    [
        (BuiltinCheck.SERVICES_ENABLED, ("cron.service",), "cron.service is not enabled"),
        (BuiltinCheck.SERVICES_ENABLED, ("gone.service",), "gone.service is enabled, but there is no such unit file"),
        (BuiltinCheck.PATHS_PRESENT, ("/usr/bin/gcc",), "/usr/bin/gcc is missing"),
        (
            BuiltinCheck.PATHS_PRESENT,
            (f"/{WANTS}/gone.service",),
            "is a link to /lib/systemd/system/gone.service, which is missing",
        ),
        (BuiltinCheck.PATHS_ABSENT, ("/bin/s*",), "/usr/bin/sh is there; /usr/bin/su is there"),
        (
            BuiltinCheck.PACKAGES_PRESENT,
            ("kmod", "make"),
            "kmod is not installed completely (install ok unpacked); package make is not",
        ),
        (BuiltinCheck.PACKAGES_ABSENT, ("gcc",), "package gcc is there"),
        (BuiltinCheck.LINKS_RESOLVE, (), "gone.service is a link to"),
        (BuiltinCheck.SIZE_BUDGET, ("1",), "the root has 2.0 MiB, 1.0 more than its budget of 1"),
        (BuiltinCheck.MODULES_PRESENT, ("i40e",), "the kernel has no module i40e"),
        (BuiltinCheck.SETUID, (), "/usr/bin/su is setuid or setgid (mode 4755)"),
        (BuiltinCheck.SETUID, ("/usr/bin/su", "/usr/bin/dash"), "/usr/bin/dash has lost its setuid bit (mode 0755)"),
    ],
)
def test_what_is_wrong_is_told(check: BuiltinCheck, arguments: tuple[str, ...], words: str) -> None:
    assert words in said(check, *arguments)


@pytest.mark.parametrize(
    ("more", "check", "words"),
    [
        (
            {"etc__loose": RootEntry(REGULAR, 0o666)},
            BuiltinCheck.NOT_WORLD_WRITABLE,
            "/etc/loose is writable by everybody (mode 0666)",
        ),
        ({"opt__loose": RootEntry(FOLDER, 0o777)}, BuiltinCheck.NOT_WORLD_WRITABLE, "/opt/loose is writable"),
        (
            {"etc__ssh__ssh_host_rsa_key": RootEntry(REGULAR, 0o600, 9)},
            BuiltinCheck.NO_HOST_IDENTITY,
            "ssh_host_rsa_key is left behind",
        ),
        (
            {"var__lib__dbus__machine-id": RootEntry(REGULAR, 0o444, 33)},
            BuiltinCheck.NO_HOST_IDENTITY,
            "dbus/machine-id has the id",
        ),
        (
            {"var__lib__systemd__random-seed": RootEntry(REGULAR, 0o600, 32)},
            BuiltinCheck.NO_HOST_IDENTITY,
            "random-seed is left behind",
        ),
        (
            {"etc__a": RootEntry(LINK, link="b"), "etc__b": RootEntry(LINK, link="a")},
            BuiltinCheck.LINKS_RESOLVE,
            "/etc/a is a link to b",
        ),
        ({"etc__up": RootEntry(LINK, 0o777, link="../../../usr/bin/none")}, BuiltinCheck.LINKS_RESOLVE, "/etc/up is a link to"),
    ],
)
def test_what_was_left_behind_is_told(more: dict[str, RootEntry], check: BuiltinCheck, words: str) -> None:
    assert words in said(check, of=root(**more))


@pytest.mark.parametrize(("text", "words"), [("0123\n", "/etc/machine-id has the id of one machine"), ("uninitialized\n", "")])
def test_a_machine_id_is_one_only_with_content(text: str, words: str) -> None:
    assert said(BuiltinCheck.NO_HOST_IDENTITY, of=RootListing(root().entries, {root_checks.MACHINE_ID: text})) == words


def test_a_masked_service_is_not_enabled() -> None:
    masked = root(**{"etc__systemd__system__ssh.service": RootEntry(LINK, 0o777, link="/dev/null")})
    assert said(BuiltinCheck.SERVICES_ENABLED, "ssh.service", of=masked) == "ssh.service is masked"


def test_links_into_what_is_filled_at_run_time_lead_somewhere() -> None:
    assert root().resolve("/etc/mtab") == "proc/self/mounts"
    assert root(etc__x=RootEntry(LINK, 0o777, link="/run/x/y")).resolve("/etc/x") == "run/x/y"
    assert root().resolve("/bin/sh") == "usr/bin/dash"
    assert root().resolve("/") == ""


def test_an_unknown_check_names_those_that_there_are() -> None:
    with pytest.raises(root_checks.UnknownCheck, match="no check 'colour'; this version has services_enabled, paths_present"):
        root_checks.judge("colour", (), root())
    with pytest.raises(root_checks.UnknownCheck, match="takes one number of MiB"):
        root_checks.judge("size_budget", ("much",), root())


def test_an_empty_root_proves_nothing_present() -> None:
    empty = RootListing({})
    for check, argument in (
        (BuiltinCheck.PATHS_PRESENT, "/x"),
        (BuiltinCheck.PACKAGES_PRESENT, "x"),
        (BuiltinCheck.MODULES_PRESENT, "x"),
    ):
        assert said(check, argument, of=empty)


def test_of_many_problems_the_first_are_told() -> None:
    assert root_checks.summarise_problems([f"a{number}" for number in range(6)]) == "a0; a1; a2; a3; and 2 more"
