"""Runs the jobs that prove a cluster: one on all nodes, a batch job on two, a look at marks of scripts, a drain and a resume."""

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from steps import timeouts
from steps.clients import slurm_tools
from steps.clients.process import Done
from steps.clients.slurm_tools import JobPlace
from steps.contract.host_ranges import fold
from steps.contract.verdict import ToolError
from steps.runtime.context import Context
from steps.slurmacceptance import control_survey, leftover_jobs, slurm_output
from steps.slurmacceptance.task_scope import ScopeArguments
from steps.stages.shared import gate_slurm_states
from steps.stages.shared.slurm_states import DRAINED
from steps.stages.slurm.reader import expand_hostlist
from steps.stages.slurm_acceptance.contract import BatchRecord, DrainTrip, JobsObservation, ScriptTrace

ANSWER_SCRIPT: Final = """\
say() { printf 'bringup-node %s %s\\n' "$SLURMD_NODENAME" "$*"; }
say job "$SLURM_JOB_ID"
say host "$(hostname)"
say boot "$(cat /proc/sys/kernel/random/boot_id)"
say clock "$(date +%s)"
say hash "$(scontrol show config | sed -n 's/^HASH_VAL *= *//p')"
say gpus "${SLURM_GPUS_ON_NODE:-0}"
if command -v nvidia-smi >/dev/null; then say devices "$(nvidia-smi -L | grep -c '^GPU ')"; fi
"""
"""Script of the job on all nodes, one task each; every line of its output stands alone, because tasks write beside each other."""

BATCH_SCRIPT: Final = """\
#!/bin/sh
set -eu
srun --ntasks=1 --nodes=1 --relative=0 sh -c '
printf %s "$1" > "$2/token"
printf "bringup-node %s writer\\n" "$SLURMD_NODENAME"
' sh "$1" "$2"
srun --ntasks=1 --nodes=1 --relative=1 sh -c '
tries=0
until [ -s "$1/token" ] || [ $tries -ge 20 ]; do sleep 1; tries=$((tries + 1)); done
printf "bringup-node %s reader %s\\n" "$SLURMD_NODENAME" "$(cat "$1/token")"
' sh "$2"
"""
"""Batch script: the first node writes a token into the shared folder, the second reads it; NFS may show a new file late."""

MARK_SCRIPT: Final = """\
for script in prolog epilog; do
    if [ -e "$1/$script.$2" ]; then printf 'bringup-node %s %s ran\\n' "$SLURMD_NODENAME" "$script"; fi
done
printf 'bringup-node %s looked ok\\n' "$SLURMD_NODENAME"
"""
"""Script that looks for the marks of an ended job on each node."""


def run_on_all(place: JobPlace, nodes: Sequence[str], script: str, *arguments: str, gpus: int = 0) -> Done:
    """Run a script on every node in one job, one task each, and return what srun printed."""
    words = ["srun", *place.options(), f"--nodes={len(nodes)}", f"--nodelist={fold(nodes)}", "--ntasks-per-node=1"]
    words += ["--mem=0", "--exclusive", "--kill-on-bad-exit=0", f"--immediate={timeouts.SLURM_QUEUE}"]
    words += [f"--gpus-per-node={gpus}"] if gpus else []
    return slurm_tools.ask(*words, "sh", "-c", script, "sh", *arguments, seconds=slurm_tools.JOB_SECONDS)


class JobChecks:
    """The jobs of one acceptance on some nodes; `errors` are those of srun and other tools."""

    def __init__(self, context: Context, scope: ScopeArguments, place: JobPlace, nodes: Sequence[str]) -> None:
        self._context, self._scope, self._place, self._nodes = context, scope, place, tuple(nodes)
        self.errors: list[ToolError] = []

    def run(self) -> JobsObservation:
        """Run all jobs one after another and return what they showed."""
        prolog, epilog = control_survey.scripts()
        login = self._context.clock
        done = self._on_all(ANSWER_SCRIPT, gpus=max(self._scope.gpus, 0))
        answers = slurm_output.answers(done.out, login.now())
        failed = slurm_output.failed_nodes(done.err) if done.code else {}
        self._context.say(f"{len(answers)} of {len(self._nodes)} nodes answered a job")
        job = next((words[1] for _, words in slurm_output.node_words(done.out) if words[0] == "job" and len(words) == 2), "")
        batch = self._batch()
        marked = bool(self._scope.marks) and bool(prolog or epilog)
        traces = self._traces(job, wants_epilog=bool(epilog)) if marked and job.isdigit() else ()
        trip = self._trip() if self._scope.allow_drain else None
        return JobsObservation(
            answers=answers,
            failed=failed,
            batch=batch,
            prolog=prolog,
            epilog=epilog,
            traces=traces,
            trip=trip,
            errors=tuple(self.errors),
        )

    def _on_all(self, script: str, *arguments: str, gpus: int = 0) -> Done:
        done = run_on_all(self._place, self._nodes, script, *arguments, gpus=gpus)
        if done.code:
            self.errors.append(slurm_output.tool_error("srun", done.code, done.err))
        return done

    def _batch(self) -> BatchRecord:
        """Submit the batch job on two nodes, wait for its end, and return its record."""
        folder, token = Path(self._place.folder), secrets.token_hex(16)
        script, output = folder / "batch.sh", folder / "batch.out"
        script.write_text(BATCH_SCRIPT)
        pair = self._nodes[:2]
        words = ["sbatch", "--parsable", "--wait", *self._place.options(), "--nodes=2", f"--nodelist={fold(pair)}"]
        words += ["--ntasks-per-node=1", "--mem=0", "--exclusive", f"--output={output}", str(script), token, str(folder)]
        done = slurm_tools.ask(*words, seconds=slurm_tools.JOB_SECONDS)
        job = done.out.strip().partition(";")[0]
        if done.code:
            self.errors.append(slurm_output.tool_error("sbatch", done.code, done.err))
        text = output.read_text(errors="replace")[: 1 << 16] if output.is_file() else ""
        words_of = {words[0]: (node, words[1:]) for node, words in slurm_output.node_words(text)}
        accounted, recorded = self._record(job) if job.isdigit() else ("", 0)
        written = folder / "token"
        return BatchRecord(
            id=job if job.isdigit() else "",
            accounted=accounted,
            recorded=recorded,
            writer=words_of.get("writer", ("", []))[0],
            reader=words_of.get("reader", ("", []))[0],
            read=words_of.get("reader", ("", []))[1] == [token],
            listed=written.is_file() and written.read_text(errors="replace")[:64] == token,
        )

    def _record(self, job: str) -> tuple[str, int]:
        """Return `STATE EXITCODE` and the number of nodes of a job of two nodes in accounting, once it is over there.

        A record may show the end of the job before all of its nodes: slurmctld sends start and end on their own.
        """
        clock = self._context.clock
        deadline = clock.now() + timeouts.SLURM_RECORD
        command = ("sacct", f"--jobs={job}", "--allocations", "--noheader", "--parsable2", "--format=State,ExitCode,NodeList")
        while True:
            done = slurm_tools.ask(*command)
            parts = (done.out.strip().splitlines() or [""])[0].split("|")
            is_over = len(parts) == 3 and parts[0].split()[:1] not in ([], ["RUNNING"], ["PENDING"], ["COMPLETING"])
            if (is_over and len(expand_hostlist(parts[2])) == 2) or clock.now() >= deadline:
                break
            clock.pause(timeouts.SLURM_POLL, deadline)
        if done.code:
            self.errors.append(slurm_output.tool_error("sacct", done.code, done.err))
        return (f"{parts[0].split()[0]} {parts[1]}", len(set(expand_hostlist(parts[2])))) if is_over else ("", 0)

    def _traces(self, job: str, *, wants_epilog: bool) -> tuple[ScriptTrace, ...]:
        """Return what prolog and epilog of an ended job left on each node; epilogs may still run when srun has ended."""
        clock = self._context.clock
        deadline = clock.now() + timeouts.SLURM_STATE
        while True:
            seen: dict[str, set[str]] = {}
            for node, words in slurm_output.node_words(self._on_all(MARK_SCRIPT, self._scope.marks, job).out):
                seen.setdefault(node, set()).add(words[0])
            if all("epilog" in seen.get(node, ()) for node in self._nodes) or not wants_epilog or clock.now() >= deadline:
                return tuple(
                    ScriptTrace(node=node, prolog="prolog" in words, epilog="epilog" in words)
                    for node, words in sorted(seen.items())
                )
            clock.pause(timeouts.SLURM_POLL, deadline)

    def _trip(self) -> DrainTrip:
        """Drain one node and resume it; its states tell if Slurm did what was asked."""
        node = self._nodes[-1]
        before = self._states(node)
        reason = f"Reason={leftover_jobs.REASON} {self._place.run}"
        drained: tuple[str, ...] = ()
        done = slurm_tools.ask("scontrol", "update", f"NodeName={node}", "State=DRAIN", reason)
        self._context.did(f"drained {node}")
        try:
            drained = self._until(node, lambda states: bool(DRAINED & set(states)))
        finally:
            back = slurm_tools.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
            self._context.did(f"resumed {node}")
        for answer in (done, back):
            if answer.code:
                self.errors.append(slurm_output.tool_error("scontrol update", answer.code, answer.err))
        resumed = self._until(node, lambda states: gate_slurm_states.state(states) is None)
        return DrainTrip(node=node, before=before, drained=drained, resumed=resumed)

    def _until(self, node: str, holds: Callable[[tuple[str, ...]], bool]) -> tuple[str, ...]:
        clock = self._context.clock
        deadline = clock.now() + timeouts.SLURM_STATE
        while not holds(states := self._states(node)) and clock.now() < deadline:
            clock.pause(timeouts.SLURM_POLL, deadline)
        return states

    def _states(self, node: str) -> tuple[str, ...]:
        rows = slurm_output.nodes(slurm_tools.ask("scontrol", "--oneliner", "show", "node", node).out)
        return next((row.states for row in rows if row.name == node), ())
