"""Users of a recipe in a real root: account entries and a new home; in a home that exists, only what is missing is added."""

from pathlib import Path

from steps.nodeimage.contract import build_keys
from steps.nodeimage.contract.resolved_recipe import LayerUser, ResolvedLayer
from steps.stages.image_layers.contract import Built
from tests.boot.builder import tiny

KEY = "ssh-ed25519 AAAA bob"


def built(images: Path, *users: LayerUser) -> tuple[Built, Path]:
    wanted = tiny.with_layer(ResolvedLayer(name="users", users=users))
    found = tiny.build(images, wanted, "users")
    return found, images / "layers" / build_keys.layers(wanted)["users"] / "tree"


def rights(path: Path) -> tuple[int, int, int]:
    facts = path.stat()
    return facts.st_mode & 0o7777, facts.st_uid, facts.st_gid


def lines(tree: Path, file: str, *names: str) -> list[str]:
    return [line for line in (tree / "etc" / file).read_text().splitlines() if line.partition(":")[0] in names]


def test_account_files_have_a_locked_user_in_its_groups(reference: tuple[Path, Built]) -> None:
    """Bob with a group of his own, eve in his; alice is of the layer below. No password opens them, nor does an empty one."""
    bob = LayerUser(name="bob", uid=2002, gid=2100, groups=("adm", "disk"))
    eve = LayerUser(name="eve", uid=2003, gid=2100, groups=("adm",), shell="/bin/sh", home="/srv/eve")
    made, tree = built(reference[0], bob, eve)
    assert not made.failed, made.output
    day = tiny.EPOCH // 86400
    assert {file: lines(tree, file, "bob", "eve", "adm", "disk") for file in ("passwd", "shadow", "group", "gshadow")} == {
        "passwd": ["bob:x:2002:2100::/home/bob:/bin/bash", "eve:x:2003:2100::/srv/eve:/bin/sh"],
        "shadow": [f"bob:!:{day}:0:99999:7:::", f"eve:!:{day}:0:99999:7:::"],
        "group": ["adm:x:4:alice,bob,eve", "disk:x:6:bob", "bob:x:2100:"],
        "gshadow": ["adm:*::alice,bob,eve", "disk:*::bob", "bob:!::"],
    }
    assert {rights(tree / "etc" / file) for file in ("passwd", "group")} == {(0o644, 0, 0)}
    assert {rights(tree / "etc" / file) for file in ("shadow", "gshadow")} == {(0o640, 0, 42)}


def test_a_home_that_is_there_keeps_its_owner_and_rights(reference: tuple[Path, Built]) -> None:
    made, tree = built(
        reference[0], LayerUser(name="bob", uid=2002, home="/srv", keys=(KEY,)), LayerUser(name="eve", uid=2003, home="/opt")
    )
    assert not made.failed, made.output
    assert rights(tree / "srv") == (0o755, 0, 0)
    assert rights(tree / "srv/.ssh") == (0o700, 2002, 2002)
    assert rights(tree / "srv/.ssh/authorized_keys") == (0o600, 2002, 2002)
    assert not (tree / "srv/data").exists(), "what the layer below has in there is as it was"
    assert not (tree / "opt").exists()


def test_a_new_home_is_its_own(reference: tuple[Path, Built]) -> None:
    made, tree = built(reference[0], LayerUser(name="bob", uid=2002, gid=2100, keys=(KEY,)))
    assert not made.failed, made.output
    assert rights(tree / "home/bob") == (0o700, 2002, 2100)
    assert rights(tree / "home/bob/.ssh/authorized_keys") == (0o600, 2002, 2100)
    assert {rights(path)[1] for path in (tree / "home/bob").rglob("*")} == {2002}


def test_keys_that_are_there_are_not_replaced(reference: tuple[Path, Built]) -> None:
    made, _ = built(reference[0], LayerUser(name="bob", uid=2002, home="/home/alice", keys=(KEY,)))
    assert made.failed == "users"
    assert "/home/alice/.ssh/authorized_keys is there already" in made.output
