"""Parses what `dcgmproftester -t 1004` prints while it multiplies matrices on every GPU: TFLOPS of each, several times.

Format: https://github.com/NVIDIA/DCGM dcgmproftester/PhysicalGpu.cpp (DCGM 3.3 to 4.6), a half-precision GEMM of cuBLAS.
"""

import re

MOST_LINES = 20_000
_LINE = re.compile(
    r"^Worker (?P<gpu>\d{1,4}):\d{1,4} ?\[\d{1,5}\]: TensorEngineActive: +generated \?\?\?, dcgm .*?"
    r"\((?P<gflops>\d+(?:\.\d+)?(?:e[+-]?\d{1,2})?) gflops\)",
    re.MULTILINE,
)


def read(text: str) -> dict[int, tuple[float, ...]]:
    """Return for each GPU, by its index, the TFLOPS of its lines in their order; GPUs without a line are missing."""
    samples: dict[int, list[float]] = {}
    for number, match in enumerate(_LINE.finditer(text)):
        if number == MOST_LINES:
            break
        samples.setdefault(int(match["gpu"]), []).append(round(float(match["gflops"]) / 1000, 3))
    return {gpu: tuple(values) for gpu, values in samples.items()}
