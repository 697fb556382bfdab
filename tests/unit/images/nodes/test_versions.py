"""Debian's order of versions by python-debian: each of these is older than the next, as `dpkg --compare-versions` has it."""

import itertools
import random
import shutil
import subprocess

import pytest
from debian.debian_support import NativeVersion as Version

RISING = (
    "0~",
    "0",
    "0.1~~",
    "0.1~~a",
    "0.1~rc1-1",
    "0.1-0.1",
    "0.1-1~deb12u1",
    "0.1-1",
    "0.1-1+b1",
    "0.1-1+deb12u1",
    "0.1-1.1",
    "0.1a",
    "0.1+dfsg-1",
    "0.1.1-1",
    "0.9-1",
    "0.10-1",
    "1a",
    "1b",
    "1+",
    "1:0.1-1",
    "2:0~1",
)
SEED = 20261122


@pytest.mark.parametrize(("older", "newer"), list(itertools.pairwise(RISING)))
def test_order(older: str, newer: str) -> None:
    assert Version(older) < Version(newer)
    assert not Version(newer) < Version(older)
    assert Version(older) != Version(newer)


@pytest.mark.parametrize(("one", "other"), [("1.0", "1.0-0"), ("0:1.0", "1.0"), ("1.00-1", "1.0-1"), ("1.-1", "1.0-1")])
def test_equal(one: str, other: str) -> None:
    assert Version(one) == Version(other)


def test_dpkg_says_the_same() -> None:
    if shutil.which("dpkg") is None:
        pytest.skip("dpkg is not on this machine: install dpkg")
    print("seed", SEED)
    chance = random.Random(SEED)

    def some() -> str:
        upstream = "1" + "".join(chance.choices("0129a+~.b", k=chance.randint(1, 6)))
        return chance.choice(["", "", "1:"]) + upstream + chance.choice(["", "-1", "-1~deb12u1", "-1+b1", "-0"])

    for _ in range(60):
        one = some()
        other = one + chance.choice(["", "~", "+", "0", ".0", "~1", "a"]) if chance.random() < 0.5 else some()
        said = (
            subprocess.run(["dpkg", "--compare-versions", one, "lt", other], check=False, stderr=subprocess.DEVNULL).returncode == 0
        )
        assert (Version(one) < Version(other)) == said, (one, other)
