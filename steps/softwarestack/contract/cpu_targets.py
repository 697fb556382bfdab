"""CPU targets by their names in archspec: which features of a CPU the code compiled for each needs. Pure.

The table repeats archspec's, of which a test compares every line; steps need no archspec on builders
(`steps/docs/facts/cpu_targets.md`).
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

from msgspec import Struct

_ARCHITECTURES: Final = ("x86_64", "aarch64")
_MOST_NAMED: Final = 6
_FEATURE: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")


class CpuFacts(Struct, frozen=True, kw_only=True):
    """Architecture (`x86_64`, `aarch64`, or empty for another one) and features of a CPU, as Linux lists them."""

    architecture: str = ""
    features: frozenset[str] = frozenset()


class _Target(Struct, frozen=True):
    """Targets that a target has all features of, and the features that it adds."""

    bases: str
    adds: str


_TARGETS: Final = {
    "x86_64": _Target("", ""),
    "x86_64_v2": _Target("x86_64", "cx16 lahf_lm mmx popcnt sse sse2 sse3 sse4_1 sse4_2 ssse3"),
    "x86_64_v3": _Target("x86_64_v2", "abm avx avx2 bmi1 bmi2 f16c fma movbe xsave"),
    "x86_64_v4": _Target("x86_64_v3", "avx512bw avx512cd avx512dq avx512f avx512vl"),
    "nocona": _Target("x86_64", "mmx sse sse2 sse3"),
    "core2": _Target("nocona", "ssse3"),
    "nehalem": _Target("core2 x86_64_v2", ""),
    "westmere": _Target("nehalem", "aes pclmulqdq"),
    "sandybridge": _Target("westmere", "avx"),
    "ivybridge": _Target("sandybridge", "f16c rdrand"),
    "haswell": _Target("ivybridge x86_64_v3", ""),
    "broadwell": _Target("haswell", "adx rdseed"),
    "skylake": _Target("broadwell", "clflushopt xsavec xsaveopt"),
    "mic_knl": _Target("broadwell", "avx512cd avx512er avx512f avx512pf"),
    "skylake_avx512": _Target("skylake x86_64_v4", "clwb"),
    "cannonlake": _Target("skylake x86_64_v4", "avx512ifma avx512vbmi sha_ni"),
    "cascadelake": _Target("skylake_avx512", "avx512_vnni"),
    "icelake": _Target("cascadelake cannonlake", "avx512_bitalg avx512_vbmi2 avx512_vpopcntdq gfni rdpid vaes vpclmulqdq"),
    "sapphirerapids": _Target("icelake", "amx_bf16 amx_int8 amx_tile avx512_bf16 cldemote movdir64b movdiri serialize waitpkg"),
    "alderlake": _Target("skylake", "avx_vnni clwb gfni movdir64b movdiri rdpid serialize sha_ni vaes vpclmulqdq waitpkg"),
    "arrowlake": _Target("alderlake", "avx_ifma avx_ne_convert avx_vnni_int8 cmpccxadd"),
    "arrowlake_s": _Target("arrowlake", "avx_vnni_int16 sha512 sm3 sm4"),
    "k10": _Target("x86_64", "3dnow 3dnowext abm cx16 mmx sse sse2 sse4a"),
    "bulldozer": _Target("x86_64_v2", "abm aes avx fma4 pclmulqdq sse4a xop xsave"),
    "piledriver": _Target("bulldozer", "bmi1 f16c fma tbm"),
    "steamroller": _Target("piledriver", "fsgsbase"),
    "excavator": _Target("steamroller x86_64_v3", ""),
    "zen": _Target("x86_64_v3", "aes clflushopt clzero fsgsbase pclmulqdq rdseed sse4a xsavec xsaveopt"),
    "zen2": _Target("zen", "clwb"),
    "zen3": _Target("zen2", "pku vaes vpclmulqdq"),
    "zen4": _Target(
        "zen3 x86_64_v4", "avx512_bf16 avx512_bitalg avx512_vbmi2 avx512_vnni avx512_vpopcntdq avx512ifma avx512vbmi flush_l1d gfni"
    ),
    "zen5": _Target("zen4", "avx512_vp2intersect avx_vnni movdir64b movdiri tsc_adjust"),
    "zen6": _Target("zen5", "avx512_fp16"),
    "aarch64": _Target("", ""),
    "thunderx2": _Target("aarch64", "aes asimd asimdrdm atomics cpuid crc32 evtstrm fp pmull sha1 sha2"),
    "a64fx": _Target("aarch64", "asimd asimdhp asimdrdm atomics cpuid crc32 dcpop evtstrm fcma fp fphp sha1 sha2 sve"),
    "cortex_a72": _Target("aarch64", "aes asimd cpuid crc32 evtstrm fp pmull sha1 sha2"),
    "neoverse_n1": _Target("cortex_a72", "asimddp asimdhp asimdrdm atomics dcpop fphp lrcpc"),
    "neoverse_v1": _Target(
        "neoverse_n1", "asimdfhm bf16 dcpodp dgh dit fcma flagm i8mm ilrcpc jscvt rng sha3 sha512 sve svebf16 svei8mm uscat"
    ),
    "neoverse_v2": _Target(
        "neoverse_n1",
        "asimdfhm bf16 dcpodp fcma flagm flagm2 frint i8mm ilrcpc jscvt sb sha3 sha512 sve sve2 svebf16 svei8mm uscat",
    ),
    "neoverse_n2": _Target(
        "neoverse_n1",
        "asimdfhm bf16 dcpodp fcma flagm flagm2 frint i8mm ilrcpc jscvt sb sha3 sha512 sve sve2 svebf16 svei8mm uscat",
    ),
    "ampere1": _Target(
        "neoverse_n1",
        "asimdfhm bf16 bti dcpodp dit ecv fcma flagm flagm2 frint i8mm ilrcpc jscvt paca pacg rng sb sha3 sha512 ssbs uscat",
    ),
    "ampere1a": _Target("ampere1", "sm3 sm4"),
    "neoverse_v3ae": _Target("neoverse_v2", "afp bti dgh dit ecv paca pacg sm3 sm4 sveaes svebitperm svepmull svesha3 svesm4 wfxt"),
    "olympus": _Target(
        "aarch64",
        "aes afp asimd asimddp asimdfhm asimdhp asimdrdm atomics bf16 bti cpuid crc32 dcpodp dcpop dgh dit ecv evtstrm "
        "f8cvt f8dp2 f8dp4 f8e4m3 f8e5m2 f8fma faminmax fcma flagm flagm2 fp fphp fpmr frint i8mm ilrcpc jscvt lrcpc "
        "ls64 lut paca pacg pmull rng sb sha1 sha2 sha3 sha512 sm3 sm4 ssbs sve sve2 sveaes svebf16 svebitperm svei8mm "
        "svepmull svesha3 svesm4 uscat wfxt",
    ),
}


def is_known(target: str) -> bool:
    """Return True if the table has a target, so that `missing_features` can tell who runs its code."""
    return target in _TARGETS


@cache
def features(target: str) -> frozenset[str]:
    """Return the features that a target's code may use; none for a target that the table lacks."""
    if target not in _TARGETS:
        return frozenset()
    entry = _TARGETS[target]
    return frozenset(entry.adds.split()).union(*(features(base) for base in entry.bases.split()))


@cache
def architecture(target: str) -> str:
    """Return `x86_64` or `aarch64`; empty for a target that the table lacks."""
    if target in _ARCHITECTURES or target not in _TARGETS:
        return target if target in _TARGETS else ""
    return architecture(_TARGETS[target].bases.split()[0])


def read_cpu(text: str) -> CpuFacts:
    """Return the facts in the content of /proc/cpuinfo: those of its first processor."""
    for key, name in (("flags", "x86_64"), ("Features", "aarch64")):
        if line := re.search(rf"^{key}[ \t]*:(.*)$", text, re.MULTILINE):
            words = {word for word in line[1].split() if _FEATURE.fullmatch(word)}
            # Linux calls SSE3 by its first name, Prescott New Instructions
            return CpuFacts(architecture=name, features=frozenset(words | ({"sse3"} if words & {"pni", "ssse3"} else set())))
    return CpuFacts()


def missing_features(target: str, cpu: CpuFacts) -> str:
    """Return in words what a CPU lacks to run the code of a target; empty if it lacks nothing, or if the table lacks the target.

    The code of an unknown target is run: it fails loudly where it cannot run, and nothing is left out on a guess.
    """
    if not is_known(target):
        return ""
    if (wanted := architecture(target)) != cpu.architecture:
        return f"the architecture {wanted}"
    lacking = sorted(features(target) - cpu.features)
    more = f" and {len(lacking) - _MOST_NAMED} more" if len(lacking) > _MOST_NAMED else ""
    return " ".join(lacking[:_MOST_NAMED]) + more


def best_first(targets: Iterable[str]) -> tuple[str, ...]:
    """Return targets in the order in which a node tries them: the most demanding first, of equals the one that was named last.

    A target whose features are a part of another's always comes after that one.
    """
    named = tuple(targets)
    return tuple(sorted(named, key=lambda target: (-len(features(target)), -named.index(target))))
