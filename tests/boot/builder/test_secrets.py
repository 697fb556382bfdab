"""A build secret is seen by one command, and a layer that holds its bytes is thrown away."""

import os
from pathlib import Path

import pytest

from steps.errors import BadTask, Temporary
from steps.nodeimage.contract import build_keys
from steps.nodeimage.contract.resolved_recipe import LayerCommand, ResolvedLayer
from steps.nodeimage.layer import layer_cache
from steps.stages.image_layers.contract import Built
from tests.boot.builder import tiny

CANARY = "canary-8c1f0a6e"


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "token").write_text(f"{CANARY}\n")
    return folder


def layer(run: str, *after: str) -> ResolvedLayer:
    return ResolvedLayer(
        name="secret", commands=(LayerCommand(run=run, secrets=("token",)), *(LayerCommand(run=one) for one in after))
    )


def test_seen_by_one_command_alone(reference: tuple[Path, Built], secrets: Path) -> None:
    used = 'test "$(stat -c %a /run/secrets/token)" = 400; wc -c < /run/secrets/token > /opt/length; (sleep 1000 &) '
    wanted = tiny.with_layer(layer(used, "test ! -e /run/secrets; test ! -e /run/secrets/token"))
    built = tiny.build(reference[0], wanted, "secret", secrets)
    assert (built.failed, built.secrets_found) == ("", ())
    tree = reference[0] / "layers" / build_keys.layers(wanted)["secret"] / "tree"
    assert sorted(str(path.relative_to(tree)) for path in tree.rglob("*")) == ["opt", "opt/length"]
    assert not holding(reference[0])


@pytest.mark.parametrize(
    "run",
    [
        "cp /run/secrets/token /opt/x",
        "base64 /run/secrets/token > /opt/x",
        'ln -s "$(cat /run/secrets/token)" /opt/x',
        "gzip -c /run/secrets/token > /opt/x",
        "tar czf /opt/x -C /run/secrets token",
    ],
)
def test_left_in_a_layer_it_is_found_and_nothing_is_kept(reference: tuple[Path, Built], secrets: Path, run: str) -> None:
    wanted = tiny.with_layer(layer(run))
    built = tiny.build(reference[0], wanted, "secret", secrets)
    assert built.secrets_found == ("token in /opt/x",)
    assert not (reference[0] / "layers" / build_keys.layers(wanted)["secret"]).exists()
    assert not holding(reference[0])


def test_not_in_what_is_said(reference: tuple[Path, Built], secrets: Path) -> None:
    built = tiny.build(reference[0], tiny.with_layer(layer("cat /run/secrets/token; exit 1")), "secret", secrets)
    assert built.failed == "commands 1"
    assert CANARY not in built.output
    assert "[redacted]" in built.output


@pytest.mark.parametrize("before", ["", "head -c 3000000 /dev/zero | tr '\\0' y; "])
def test_half_of_it_is_not_said_where_the_output_is_cut(reference: tuple[Path, Built], secrets: Path, before: str) -> None:
    cut_within = f"{before}cat /run/secrets/token; head -c 3990 /dev/zero | tr '\\0' x; exit 1"
    built = tiny.build(reference[0], tiny.with_layer(layer(cut_within)), "secret", secrets)
    assert built.failed == "commands 1"
    assert CANARY[-6:] not in built.output
    assert built.output.endswith("xxx")


READS_THE_BUILDER = r"""
perl -e '
    $wanted = join "", "canary-8c", "1f0a6e";
    $known = join "", "SOURCE_DATE", "_EPOCH";
    open M, "<", "/proc/1/maps" or die; open X, "<", "/proc/1/mem" or die;
    while (<M>) {
        /^(\w+)-(\w+) r/ and $1 lt "8" or next;
        sysseek X, hex $1, 0; sysread X, $data, hex($2) - hex($1) or next;
        exit 3 if index($data, $wanted) >= 0;
        $seen = 1 if index($data, $known) >= 0;
    }
    exit($seen ? 0 : 4)'
test -e /proc/1/root/TOKEN || exit 5
grep -q . /proc/1/root/TOKEN && exit 6
true
"""


def test_other_commands_do_not_find_it_at_the_builder(reference: tuple[Path, Built], secrets: Path) -> None:
    reads = READS_THE_BUILDER.replace("TOKEN", str(secrets / "token"))
    built = tiny.build(reference[0], tiny.with_layer(layer("cat /run/secrets/token > /tmp/it", reads)), "secret", secrets)
    assert (built.failed, built.output) == ("", "")


def test_changed_meanwhile_nothing_is_kept(reference: tuple[Path, Built], secrets: Path) -> None:
    def change(line: str) -> None:
        (secrets / "token").write_text("another-one-4242")

    wanted = tiny.with_layer(layer("cp /run/secrets/token /opt/x"))
    with pytest.raises(Temporary, match=r"secret token .* was changed while the layer was built"):
        layer_cache.build(reference[0], wanted, tiny.files(), "secret", secrets, change)
    assert not (reference[0] / "layers" / build_keys.layers(wanted)["secret"]).exists()


def test_missing_or_too_short_is_refused(reference: tuple[Path, Built], secrets: Path) -> None:
    wanted = tiny.with_layer(layer("true"))
    (secrets / "token").write_text("short\n")
    with pytest.raises(BadTask, match="secret token of layer secret has fewer than 8 bytes"):
        tiny.build(reference[0], wanted, "secret", secrets)
    (secrets / "token").unlink()
    with pytest.raises(BadTask, match=r"secret token of layer secret: .*No such file"):
        tiny.build(reference[0], wanted, "secret", secrets)


def holding(images: Path) -> list[str]:
    """Files of the store with the canary's bytes."""
    found = []
    for folder, _, names in os.walk(images / "layers"):
        for name in names:
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink() and CANARY.encode() in path.read_bytes():
                found.append(str(path))
    return found
