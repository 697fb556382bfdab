"""Paths of a root that can change its initrd: those that the initrd's scripts name, search for or copied, and no others."""

from steps.nodeimage.files import initrd_sources

HOOK = """#!/bin/sh
# a comment that says htop
copy_exec /sbin/blkid
if command -v busybox >/dev/null; then copy_exec /usr/bin/busybox /bin; fi
[ -d /etc/live ] && cp -r /etc/live "${DESTDIR}/etc"
mkdir -p "$DESTDIR/lib/systemd" "$DESTDIR/lib/firmware" "${rootmnt}/root" "$DESTDIR/usr/share"
find -L /lib/systemd/network -name '*.link' -execdir cp -pt "$DESTDIR/lib/systemd/network/" '{}' +
for FILE in /lib/libacl* /etc/fstab.d/*.fstab /usr/lib/klibc/bin/* /lib*; do cp -a "${FILE}" "${DESTDIR}/${FILE}"; done
for loop in /lib/firmware/amd-ucode/microcode_amd*.bin; do cat "$loop" >>"$EFW"; done
for name in $SITE; do cp -r "/opt/$name" "$DESTDIR/opt"; done
"""
MEMBERS = {
    "init": 1,
    "bin/sh": 90,
    "bin/less": 90,
    "bin/blkid": 90,
    "usr/lib/x86_64-linux-gnu/libc.so.6": 1,
    "lib/modules/6.1/kernel/overlay.ko": 1,
    "opt/ours": 1,
    "opt/ours/one": 1,
    "opt/theirs/one": 1,
}
"""With how many names each has."""
THERE = [
    "usr/bin/sh",
    "usr/lib/x86_64-linux-gnu/libc.so.6",
    "usr/lib/x86_64-linux-gnu/libz.so.1",
    "usr/lib/modules/6.1/kernel/overlay.ko",
    "usr/bin/htop",
    "etc/ld.so.cache",
    "opt/ours",
    "opt/ours/one",
    "opt/theirs",
    "opt/theirs/one",
    "opt/theirs/two",
]
FOUND = initrd_sources.words([HOOK], MEMBERS, THERE)


def relevant(*paths: str, folder: bool = False) -> dict[str, bool]:
    return dict(initrd_sources.relevant([(path, folder) for path in paths], FOUND))


def test_what_was_copied_matters_by_its_content() -> None:
    assert {"usr/bin/sh", "usr/lib/x86_64-linux-gnu/libc.so.6", "usr/lib/modules/6.1/kernel/overlay.ko"} < set(FOUND.copied)
    assert relevant(*FOUND.copied) == dict.fromkeys(FOUND.copied, True)


def test_what_scripts_name_or_look_for_matters_though_it_was_not_there() -> None:
    wanted = ["usr/sbin/blkid", "usr/bin/busybox", "usr/local/bin/busybox", "etc/live"]
    assert relevant(*wanted) == dict.fromkeys(wanted, True)


def test_a_library_of_the_same_name_in_another_folder_matters() -> None:
    assert relevant("usr/lib/libc.so.6", "usr/local/lib/libc.so.6") == {"usr/lib/libc.so.6": True, "usr/local/lib/libc.so.6": True}


def test_settings_of_the_scripts_matter_whatever_their_name() -> None:
    wanted = [
        "etc/initramfs-tools/conf.d/site",
        "usr/share/initramfs-tools/hooks/site",
        "etc/udev/rules.d/70-site.rules",
        "etc/ld.so.conf.d/site.conf",
    ]
    assert relevant(*wanted) == dict.fromkeys(wanted, True)


def test_of_modules_and_firmware_it_matters_what_there_is() -> None:
    wanted = ["usr/lib/modules/6.1/kernel/new.ko", "usr/lib/firmware/new.bin"]
    assert relevant(*wanted) == dict.fromkeys(wanted, False)


def test_a_package_that_no_script_knows_changes_nothing() -> None:
    assert (
        relevant("usr/bin/htop", "usr/share/doc/htop/copyright", "var/lib/dpkg/status", "usr/share/busybox", "etc/ld.so.cache")
        == {}
    )


def test_a_further_name_of_busybox_is_no_program_of_the_root_unless_a_script_says_so() -> None:
    assert relevant("usr/bin/less", "usr/local/bin/sh", "usr/local/bin/blkid") == {
        "usr/local/bin/sh": True,
        "usr/local/bin/blkid": True,
    }


def test_all_in_a_folder_that_scripts_name_matters() -> None:
    wanted = [
        "usr/lib/systemd/network/10-site.link",
        "etc/live/boot/site",
        "etc/fstab.d/site.fstab",
        "usr/lib/klibc/bin/new",
        "usr/lib/firmware/amd-ucode/microcode_amd_fam19h.bin",
    ]
    assert relevant(*wanted) == dict.fromkeys(wanted, True)


def test_what_a_pattern_of_the_scripts_may_take_matters() -> None:
    assert relevant("usr/lib/libacl.so.9", "usr/lib/libfoo.so.9") == {"usr/lib/libacl.so.9": True}


def test_folders_of_the_whole_system_tell_nothing_though_scripts_name_them() -> None:
    assert (
        relevant("usr/lib/systemd/system/ssh.service", "usr/share/misc/magic", "root/.bashrc", "usr/lib/python3/os.py", "opt/x")
        == {}
    )
    assert relevant("usr/lib/firmware/other/x.bin") == {"usr/lib/firmware/other/x.bin": False}


def test_a_folder_that_was_copied_whole_matters_by_whatever_name_it_was_found() -> None:
    assert FOUND.whole == ("opt/ours",)
    assert relevant("opt/ours/new", "opt/ours/deep/new", "opt/theirs/new", "opt/new") == {
        "opt/ours/new": True,
        "opt/ours/deep/new": True,
    }


def test_a_folder_matters_only_by_its_whole_path() -> None:
    assert relevant("usr/lib/busybox", "usr/bin/sh2", folder=True) == {}
    assert relevant("etc/live", folder=True) == {"etc/live": True}
