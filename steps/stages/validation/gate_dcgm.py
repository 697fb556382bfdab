"""Judges a run of `dcgmi diag`: nothing failed, something was really tested, on as many GPUs as the node has.

See `steps/docs/facts/acceptance.md`, DCGM diag.
"""

import re

from steps.contract.node_tests.dcgm import DcgmFailure, DcgmRun, DcgmTest
from steps.contract.verdict import FailureClass
from steps.stages.shared.finding import Finding, fail, unknown

_CLASSES = (
    (r"internal error|child process|could not be (loaded|started)|out of memory", FailureClass.RUNTIME),
    (r"not (currently )?(loaded|running)|fabric manager|library|permission", FailureClass.DEPENDENCY),
    (r"NvLink|link \d+ is|XID|ECC|remap|retired|thermal|power brake|inforom|page", FailureClass.HARDWARE),
    (r"did not (exceed|meet)|below|bandwidth|stress level|latency", FailureClass.PERFORMANCE),
)
"""Pattern of a warning → the failure class that it means; the first match wins. A failed test without such words is hardware."""

_LINKS = re.compile(r"NvLink link (\d+) is currently down")

_REQUIRED = {3: ("diagnostic", "targeted_stress", "targeted_power")}
"""Level of `dcgmi diag -r` → tests that it and higher levels must have run; DCGM 3 writes them as `Targeted Stress`."""


def problem(run: DcgmRun | None, gpus: int, level: int = 1) -> Finding | None:
    """Return the first problem of a node's diagnostic; None if there is none. `gpus` 0 means that their number is unknown."""
    if run is None or not (run.tests or run.error):
        return unknown(
            FailureClass.RUNTIME, "no result of dcgmi diag can be read", "a complete result", "read the log of the check pod"
        )
    if run.error:
        return fail(FailureClass.RUNTIME, f"DCGM: {run.error}", "a diagnostic that runs", "check nv-hostengine in the check pod")
    return _failures(run) or _tested(run, level) or _entities(run, gpus)


def ended(code: int | None) -> Finding | None:
    """Return a finding unless `dcgmi diag`, whose results show no problem, ended with exit code 0."""
    if code == 0:
        return None
    words = (
        "the exit code of dcgmi diag is unknown" if code is None else f"dcgmi diag ended with exit code {code}, and no test failed"
    )
    return fail(FailureClass.RUNTIME, words, "exit code 0", "read the end of the check pod's log; 124 is a time-out")


def failure_class(warning: str) -> FailureClass:
    """Return the failure class of a failed test's warning."""
    return next((known for words, known in _CLASSES if re.search(words, warning, re.IGNORECASE)), FailureClass.HARDWARE)


def _failures(run: DcgmRun) -> Finding | None:
    bad = [test for test in run.tests if test.statuses.get("fail")]
    if not bad:
        return None
    first = bad[0]
    more = f"; also failed: {', '.join(test.name for test in bad[1:])}" if bad[1:] else ""
    worst = next((failure for failure in first.failures if failure.warning), DcgmFailure())
    gpus = ", ".join(str(gpu) for gpu in sorted({gpu for failure in first.failures for gpu in failure.gpus}))
    return fail(
        failure_class(worst.warning),
        f"{_named(first, worst)}{f' on GPU {gpus}' if gpus else ''}{more}",
        "no test failed",
        "run dcgmi diag -r 3 on this node alone; a hardware failure that comes back is for the vendor",
    )


def _named(test: DcgmTest, failure: DcgmFailure) -> str:
    links = _LINKS.findall(failure.warning)
    warning = f"NVLink links {', '.join(sorted(set(links), key=int))} down" if links else failure.warning[:160]
    return f"DCGM test {test.name} failed{f': {warning}' if warning else ''}"


def _tested(run: DcgmRun, level: int) -> Finding | None:
    """Return a finding if tests have no result or all relevant ones were skipped: a skipped diagnostic is not a pass."""
    silent = next((test for test in run.tests if not test.statuses or "unknown" in test.statuses), None)
    if silent is not None:
        return unknown(
            FailureClass.RUNTIME, f"test {silent.name or 'without a name'} has no result", "a result of every test", "run it again"
        )
    if not run.count("pass"):
        return unknown(
            FailureClass.DEPENDENCY,
            f"every test was skipped ({run.count('skip')} results)",
            "tests that ran",
            "run as root with the GPUs idle; see the tests' warnings",
        )
    loads = [test for test in run.tests if test.category and test.loads_gpus]
    if level > 1 and not any(test.statuses.get("pass") for test in loads):
        skipped = ", ".join(test.name for test in loads) or "none of them"
        return unknown(
            FailureClass.DEPENDENCY,
            f"level {level} ran no hardware test (skipped: {skipped})",
            "tests that load the GPUs",
            "make sure nothing else uses the GPUs, and that the image holds the plug-ins for this CUDA version",
        )
    return _missing(run, level) or _partly(run)


def _missing(run: DcgmRun, level: int) -> Finding | None:
    """Return a finding if a test that a level has is not among the results."""
    names = {test.name.lower().replace(" ", "_") for test in run.tests}
    missing = [name for least, tests in _REQUIRED.items() if level >= least for name in tests if name not in names]
    if not missing:
        return None
    return unknown(
        FailureClass.DEPENDENCY,
        f"level {level} did not run {', '.join(missing)}",
        "every test of this level",
        "make sure that the image holds the plug-ins for this CUDA version, and run the test again",
    )


def _partly(run: DcgmRun) -> Finding | None:
    """Return a finding if a test warned, or a test that loads the GPUs was not passed by each of them."""
    warned = [test.name for test in run.tests if test.statuses.get("warn")]
    if warned:
        words = f"DCGM test {', '.join(warned)} ended with a warning"
        return unknown(FailureClass.HARDWARE, words, "a pass of every test", "read the warning in the log, and run the test again")
    loads = [test for test in run.tests if test.loads_gpus]
    test = next((test for test in loads if test.untested or set(test.statuses) != {"pass"}), None)
    if test is None:
        return None
    named = ", ".join(map(str, test.untested))
    return unknown(
        FailureClass.DEPENDENCY,
        f"DCGM test {test.name} has no pass {f'of GPU {named}' if named else 'of every GPU'} ({_statuses(test)})",
        "a pass of every GPU in every test that loads the GPUs",
        "make sure nothing else uses the GPUs, and run this test on this node alone; a skipped GPU was not tested",
    )


def _statuses(test: DcgmTest) -> str:
    return ", ".join(f"{word} {number}" for word, number in test.statuses.items())


def _entities(run: DcgmRun, gpus: int) -> Finding | None:
    # a GPU that fell off the bus is not tested, so it cannot fail a test
    if not gpus or len(run.gpus) == gpus:
        return None
    return fail(
        FailureClass.HARDWARE if run.gpus else FailureClass.RUNTIME,
        f"DCGM tested {len(run.gpus)} GPUs",
        f"{gpus} GPUs",
        "compare with nvidia-smi -L and the kernel log (Xid 79: fallen off the bus)",
    )
