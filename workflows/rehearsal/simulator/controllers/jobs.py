"""A simulated controller of batch/v1 Jobs: pods by completion or index, suspension, retries, deadlines, clean-up, conditions."""

from __future__ import annotations

import itertools
from collections import Counter

from workflows.rehearsal.simulator import virtual_clock
from workflows.rehearsal.simulator.api.api_kinds import JOBS, PODS, Obj, Ref, has_condition, owner_uid, ref
from workflows.rehearsal.simulator.controllers import simulated_pods
from workflows.rehearsal.simulator.world import Changes, World

INDEX = "batch.kubernetes.io/job-completion-index"
NO_LIMIT = 2**31 - 1
RETRY = 10.0
RETRY_MAX = 360.0
"""Longest wait in virtual seconds before a failed pod is replaced: 10, 20, 40 … 360."""


class Jobs:
    """Simulated Job controller of kube-controller-manager."""

    name = "jobs"
    kinds = (JOBS, PODS)

    def __init__(self) -> None:
        self._owners: dict[Ref, str] = {}
        self._pods: dict[str, dict[Ref, None]] = {}

    def reconcile(self, world: World, changed: Changes) -> None:
        """Take the next step of each Job that changed or of which a pod changed."""
        wanted: dict[str, None] = {}
        for at in [ref(pod) for pod in world.objects(PODS)] if changed.everything else changed.refs(PODS):
            wanted[self._index(world, at)] = None
        jobs = {job["metadata"]["uid"]: job for job in world.objects(JOBS)}
        for at in changed.refs(JOBS):
            job = world.find(JOBS, at)
            if job is not None:
                wanted[job["metadata"]["uid"]] = None
        for uid, job in jobs.items():
            if (changed.everything or uid in wanted) and "deletionTimestamp" not in job["metadata"]:
                _Round(world, job, self._of(world, uid)).run()

    def _index(self, world: World, at: Ref) -> str:
        """Update the index from Jobs to pods for one pod, and return the UID of the pod's owner; empty if it has none."""
        pod = world.find(PODS, at)
        if pod is None:
            owner = self._owners.pop(at, "")
            self._pods.get(owner, {}).pop(at, None)
            return owner
        owner = owner_uid(pod)
        self._owners[at] = owner
        self._pods.setdefault(owner, {})[at] = None
        return owner

    def _of(self, world: World, uid: str) -> list[Obj]:
        owned = (world.find(PODS, at) for at in self._pods.get(uid, {}))
        return [pod for pod in owned if pod is not None]


class _Round:
    """One reconciliation of one Job: its pods sorted by state, and the next step."""

    def __init__(self, world: World, job: Obj, owned: list[Obj]) -> None:
        self._world = world
        self._job = job
        self._spec: Obj = job["spec"]
        self._at = ref(job)
        self._status: Obj = job.get("status") or {}
        alive = [pod for pod in owned if "deletionTimestamp" not in pod["metadata"]]
        self._active = [pod for pod in alive if not simulated_pods.finished(pod)]
        self._succeeded = [pod for pod in alive if simulated_pods.phase(pod) == "Succeeded"]
        self._failed = [pod for pod in alive if simulated_pods.phase(pod) == "Failed"]
        self._indexed = self._spec.get("completionMode") == "Indexed"
        self._parallelism = int(self._spec.get("parallelism", 1))
        completions = self._spec.get("completions")
        self._completions = int(completions) if completions is not None else self._parallelism
        self._per_index: int | None = self._spec.get("backoffLimitPerIndex")

    def run(self) -> None:
        """Take the Job's next step: clean up, suspend, start, fail, complete, or create the pods that are missing."""
        if has_condition(self._job, "Complete") or has_condition(self._job, "Failed"):
            self._clean_up()
        elif self._spec.get("suspend"):
            self._suspend()
        elif not self._status.get("startTime"):
            self._write({"startTime": self._world.stamp(), "conditions": self._resumed()})
        elif any(failure := self._failure()):
            self._fail(*failure)
        elif self._done() + len(self._given_up()) >= self._completions:
            self._fail("FailedIndexes", "Job has failed indexes") if self._given_up() else self._complete()
        else:
            self._start_pods()
            self._write({})

    def _failure(self) -> tuple[str, str]:
        """Return reason and message if the Job has failed, else two empty texts. Schedules a look at its deadline."""
        limit = int(self._spec.get("backoffLimit", 6 if self._per_index is None else NO_LIMIT))
        failures = len(self._failed)
        # With OnFailure the kubelet restarts containers in place, so restarts count as failures.
        if self._spec["template"]["spec"].get("restartPolicy") == "OnFailure":
            failures += sum(simulated_pods.restarts(pod) for pod in self._active)
            if failures and failures >= max(limit, 1):
                return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        if failures > limit:
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        if len(self._given_up()) > int(self._spec.get("maxFailedIndexes", NO_LIMIT)):
            return "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes"
        deadline = self._spec.get("activeDeadlineSeconds")
        if deadline is not None:
            left = virtual_clock.parse_stamp(self._status["startTime"]) + float(deadline) - self._world.now
            if left <= 0:
                return "DeadlineExceeded", "Job was active longer than specified deadline"
            self._again("deadline", left)
        return "", ""

    def _done(self) -> int:
        return len(self._indices(self._succeeded)) if self._indexed else len(self._succeeded)

    def _given_up(self) -> set[int]:
        """Return the indexes whose pods failed more often than `backoffLimitPerIndex` allows."""
        if self._per_index is None:
            return set()
        failures = Counter(int(pod["metadata"]["annotations"][INDEX]) for pod in self._failed)
        return {index for index, count in failures.items() if count > self._per_index}

    @staticmethod
    def _indices(owned: list[Obj]) -> set[int]:
        return {int(pod["metadata"]["annotations"][INDEX]) for pod in owned}

    def _start_pods(self) -> None:
        left = min(self._parallelism, self._completions - self._done() - len(self._given_up())) - len(self._active)
        if left <= 0:
            return
        if self._failed and self._per_index is None:
            wait = min(RETRY * 2 ** (len(self._failed) - 1), RETRY_MAX)
            since = max((_finished_at(pod) for pod in self._failed), default="")
            remaining = virtual_clock.parse_stamp(since) + wait - self._world.now if since else 0.0
            if remaining > 0:
                self._again(f"retry/{len(self._failed)}", remaining)
                return
        taken = self._indices([*self._succeeded, *self._active]) | self._given_up() if self._indexed else set()
        free = [index for index in range(self._completions) if index not in taken] if self._indexed else range(left)
        for order, index in enumerate(free[:left]):
            self._create(index if self._indexed else None, order)

    def _create(self, index: int | None, order: int) -> None:
        uid, name = self._job["metadata"]["uid"], self._at.name
        labels = {
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "job-name": name,
        }
        pod_name = self._free_name(f"{name}-{index}" if index is not None else name, order)
        pod = simulated_pods.from_template(self._spec["template"], pod_name, JOBS, self._job, labels=labels)
        if index is not None:
            pod["metadata"]["labels"][INDEX] = str(index)
            pod["metadata"].setdefault("annotations", {})[INDEX] = str(index)
            pod["spec"] = pod["spec"] | {"hostname": f"{name}-{index}"}
        self._world.create_soon(PODS, pod)
        self._active.append(pod)

    def _free_name(self, base: str, order: int) -> str:
        """Return an unused pod name. It depends on the Job's own history only, so that two runs agree."""
        history = (self._at, len(self._failed), len(self._succeeded), len(self._active), order)
        names = (f"{base}-{simulated_pods.suffix(base, *history, number)}" for number in itertools.count())
        return next(name for name in names if self._world.find(PODS, name, self._at.namespace) is None)

    def _stop_pods(self) -> None:
        for pod in self._active:
            self._world.delete_soon(PODS, pod)
        self._active = []

    def _suspend(self) -> None:
        self._stop_pods()
        suspended = ("Suspended", "True", "JobSuspended", "Job suspended")
        self._write({"startTime": None, "conditions": self._world.conditions(self._job, suspended)})

    def _resumed(self) -> list[Obj]:
        if not any(entry["type"] == "Suspended" for entry in self._status.get("conditions") or ()):
            return list(self._status.get("conditions") or ())
        return self._world.conditions(self._job, ("Suspended", "False", "JobResumed", "Job resumed"))

    def _fail(self, reason: str, message: str) -> None:
        self._failed += self._active
        self._stop_pods()
        self._end("FailureTarget", "Failed", reason, message, {})
        self._world.event(JOBS, self._job, reason, message, warning=True)

    def _complete(self) -> None:
        self._stop_pods()
        message = "Reached expected number of succeeded pods"
        self._end("SuccessCriteriaMet", "Complete", "CompletionsReached", message, {"completionTime": self._world.stamp()})

    def _end(self, first: str, second: str, reason: str, message: str, extra: Obj) -> None:
        ends = [(kind, "True", reason, message) for kind in (first, second)]
        self._write({"conditions": self._world.conditions(self._job, *ends)} | extra)

    def _clean_up(self) -> None:
        ttl = self._spec.get("ttlSecondsAfterFinished")
        if ttl is None:
            return
        ends = [entry["lastTransitionTime"] for entry in self._status["conditions"] if entry["type"] in ("Complete", "Failed")]
        left = virtual_clock.parse_stamp(ends[0]) + float(ttl) - self._world.now
        if left <= 0:
            self._world.delete(JOBS, self._at)
        else:
            self._again("ttl", left)

    def _again(self, reason: str, seconds: float) -> None:
        """Look at the Job again after exactly `seconds` virtual seconds, because times in a Job's spec ignore the delay scale."""
        world, at, uid = self._world, self._at, self._job["metadata"]["uid"]
        world.clock.schedule(f"jobs/{uid}/{reason}", seconds, lambda: world.touch(JOBS, at))

    def _write(self, extra: Obj) -> None:
        counts: Obj = {
            "active": len(self._active) or None,
            "ready": sum(simulated_pods.ready(pod) for pod in self._active),
            "succeeded": self._done() or None,
            "failed": len(self._failed) or None,
            "uncountedTerminatedPods": {},
        }
        if self._indexed:
            counts["completedIndexes"] = _ranges(self._indices(self._succeeded)) or None
        if self._per_index is not None:
            counts["failedIndexes"] = _ranges(self._given_up()) or None
        self._world.patch_soon(JOBS, self._at, {"status": counts | extra}, status=True)


def _finished_at(pod: Obj) -> str:
    ends = [
        entry["state"]["terminated"]["finishedAt"]
        for entry in pod["status"].get("containerStatuses") or ()
        if "terminated" in entry["state"]
    ]
    return max(ends, default="")


def _ranges(indices: set[int]) -> str:
    """Return indexes in the form of a Job's `completedIndexes`: `0-2,5`."""
    parts: list[list[int]] = []
    for index in sorted(indices):
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


ROLES = (Jobs,)
