"""Outputs of kubectl and of Slurm that look healthy and prove nothing, beside their healthy twins. Takes 1 s of CPU."""

import pytest

from steps.readings import recognition, site_values

CLAIMS = (
    "NAME     STATUS    VOLUME         CAPACITY   ACCESS MODES   STORAGECLASS   AGE\n"
    "home     {home}   RWX            nfs            5m\n"
    "mysql    Bound     pvc-0f3a2a1e   50Gi       RWO            local-path     5m\n"
)
APPLICATIONS = "NAME     SYNC STATUS   HEALTH STATUS\nslurm    {slurm}\nargocd   Synced        Healthy\n"
PODS = "NAME       READY   STATUS    RESTARTS   AGE\n{row}\nslurmd-1   1/1     Running   0          5m\n"
DEPLOYMENTS = "NAME         READY   UP-TO-DATE   AVAILABLE   AGE\ncontroller   {row}            5d\n"
ALL = (
    "NAME           READY   STATUS    RESTARTS   AGE\npod/mysql-0    2/2     Running   0          5m\n\n"
    "NAME            TYPE        CLUSTER-IP   EXTERNAL-IP   PORT(S)    AGE\nservice/mysql   ClusterIP   10.43.0.7    <none>        "
    "3306/TCP   5m\n\nNAME                     READY   AGE\nstatefulset.apps/mysql   {ready}     5m\n\n"
    "NAME                        DESIRED   CURRENT   READY   AGE\nreplicaset.apps/rest-5bc4   1         1         1       5m\n"
    "replicaset.apps/rest-77aa   0         0         0       9m\n"
)
DAEMONS = (
    "NAME     DESIRED   CURRENT   READY   UP-TO-DATE   AVAILABLE   NODE SELECTOR   AGE\n"
    "driver   8         8         8       {fresh}            8           <none>          5m\n"
)
JOBS = "NAME   STATUS     COMPLETIONS   DURATION   AGE\nnccl   {state}   1/1           30s        5m\n"
EVENTS = "LAST SEEN   TYPE     REASON    OBJECT    MESSAGE\n33s         {kind}   Created   pod/x-1   Created container x\n"
KUBECTL = (
    (CLAIMS.format(home="Bound     pvc-1a2b3c4d   1Ti     "), (), "pass", ""),
    (CLAIMS.format(home="Pending                          "), (), "inconclusive", "Pending"),
    (CLAIMS.format(home="Lost      pvc-1a2b3c4d   0       "), (), "fail", "home Lost"),
    (CLAIMS.format(home="Bound     pvc-1a2b3c4d   1Ti     ") + "scratch  Bou\n", (), "inconclusive", "1 row of the table"),
    (APPLICATIONS.format(slurm="Synced        Healthy"), (), "pass", ""),
    (APPLICATIONS.format(slurm="              Degraded"), (), "fail", "Degraded"),
    (APPLICATIONS.format(slurm="Synced        "), (), "inconclusive", "cannot be read"),
    (PODS.format(row="slurmd-0   1/1     Running   0          <invalid>"), (), "pass", ""),
    (PODS.format(row="slurmd-0   0/1     CrashLoopBackOff   12   <invalid>"), (), "fail", "CrashLoopBackOff"),
    (PODS.format(row="slurmd-0   0/1     OutOfnvidia.com/gpu   0   5m"), (), "fail", "OutOfnvidia.com/gpu"),
    (PODS.format(row="slurmd-0           Running   0          5m"), (), "inconclusive", "1 pod cannot be read"),
    (
        PODS.format(row="slurmd-0   1/1     Running   0          5m") + "\nNAME   PHASE   AGE\nx      Red     5m\n",
        (),
        "inconclusive",
        "no rule reads the table NAME, PHASE, AGE",
    ),
    (DEPLOYMENTS.format(row="3/3     3            3"), (), "pass", ""),
    (DEPLOYMENTS.format(row="0/0     0            0"), (), "inconclusive", "at zero"),
    (DEPLOYMENTS.format(row="3/3     1            3"), (), "inconclusive", "UP-TO-DATE 1"),
    (DEPLOYMENTS.format(row="3/3     3            1"), (), "inconclusive", "AVAILABLE 1"),
    (DEPLOYMENTS.splitlines(keepends=True)[0], (), "inconclusive", "has no rows"),
    (ALL.format(ready="1/1"), (), "pass", ""),
    (ALL.format(ready="0/1"), (), "fail", "statefulset.apps/mysql 0/1"),
    (DAEMONS.format(fresh=8), ("gpu_nodes=8",), "pass", ""),
    (DAEMONS.format(fresh=0), ("gpu_nodes=8",), "inconclusive", "driver UP-TO-DATE 0"),
    (JOBS.format(state="Complete"), (), "pass", ""),
    (JOBS.format(state="Running "), (), "inconclusive", "not complete: nccl"),
    (JOBS.splitlines(keepends=True)[0], (), "inconclusive", "has no rows"),
    (EVENTS.format(kind="Normal"), (), "pass", ""),
    (EVENTS.format(kind="      "), (), "inconclusive", "without a type"),
    (EVENTS.splitlines(keepends=True)[0], (), "inconclusive", "has no rows"),
    ("NAME   STATUS   ROLES    AGE   VERSION\n", ("nodes=0",), "inconclusive", "has no rows"),
    (
        "NAME   STATUS     ROLES    AGE   VERSION\n"
        "n1     NotReady   <none>   5d    v1.33.1\nn1     Ready      <none>   5d    v1.33.1\n",
        ("nodes=1",),
        "fail",
        "node n1 NotReady",
    ),
)


SINFO = "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
GRES = "PARTITION GRES\ngpu* gpu:h100:8(S:0-1)\n"
ACCOUNTED = (
    "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n"
    "------------ ---------- ---------- ---------- ---------- ---------- -------- \n"
    "101         {name:>11}        gpu       acct          8 {state:>10}      0:0 \n"
)
SLURM = (
    (SINFO + "gpu*         up   infinite      8   idle node[1-8]\n", ("nodes=8",), "pass", ""),
    (SINFO + "gpu*         up   infinite      8   idle r[1-2]n[1-4]\n", ("nodes=8",), "pass", ""),
    (
        SINFO + "gpu*         up   infinite      8   idle node[1-8]\nold      up   infinite      0    n/a\n",
        ("nodes=8",),
        "pass",
        "",
    ),
    (SINFO + "gpu*       down   infinite      8   idle node[1-8]\n", ("nodes=8",), "fail", "partition gpu is down"),
    (SINFO + "gpu*      inact   infinite      8   idle node[1-8]\n", ("nodes=8",), "fail", "partition gpu is inact"),
    (SINFO + "gpu*         up   infinite      9   idle node[1-8]\n", ("nodes=8",), "inconclusive", "another number"),
    (
        SINFO + "gpu*         up   infinite      8   idle node[1-8]\ngpu*  up   infinite  1  idle\n",
        ("nodes=8",),
        "inconclusive",
        "read",
    ),
    (
        f"{SINFO}gpu*         up   infinite      8   idle node[1-8]\n$ sinfo\n{SINFO}"
        "gpu*         up   infinite      4   idle node[1-4]\ngpu*         up   infinite      4  down* node[5-8]\n",
        ("nodes=8",),
        "fail",
        "down",
    ),
    (
        "NODELIST   NODES PARTITION STATE \nnode1          1      gpu* idle  \nnode1          1       all drain \n",
        ("nodes=1",),
        "fail",
        "node1 drain",
    ),
    (GRES, ("expected_gpus=8",), "pass", ""),
    (GRES + "gpu* (null)\n", ("expected_gpus=8",), "fail", "partition gpu has (null)"),
    (GRES + "cpu (null)\n", ("expected_gpus=8",), "inconclusive", "partition cpu has no GPUs"),
    (ACCOUNTED.format(name="train", state="COMPLETED"), (), "pass", ""),
    (ACCOUNTED.format(name="FAILED", state="COMPLETED"), (), "pass", ""),
    (ACCOUNTED.format(name="COMPLETED", state="FAILED"), (), "fail", "job 101 FAILED"),
    (ACCOUNTED.format(name="COMPLETED", state="FAILED").replace("-", ""), (), "fail", "job 101 FAILED"),
    (ACCOUNTED.format(name="train", state="SPECIAL_E+"), (), "fail", "job 101 SPECIAL_E+"),
    (ACCOUNTED.format(name="train", state="NEW_STATE"), (), "inconclusive", "NEW_STATE"),
    (ACCOUNTED.format(name="COMPLETED", state=""), (), "inconclusive", "cannot be read"),
    ("JobID|State|ExitCode\n7|COMPLETED|0:0\n8\n", (), "inconclusive", "cannot be read"),
    ("gpu1\ngpu2\nhead1\nhead2\n", ("nodes=4",), "pass", ""),
    ("0: alpha-1\n1: alpha-2\n", ("nodes=2",), "pass", ""),
    ("libfoo-1.2\nREADME.md\nreport-1\nfoo.bar\n", ("nodes=4",), "inconclusive", "no series"),
    ("run-1.log\nrun-2.log\n", ("nodes=2",), "inconclusive", "no series"),
    ("n1\nn2\nn3\nn4\nPermission denied, please try again.\n", ("nodes=4",), "inconclusive", "not only hosts"),
    (
        SINFO + "".join(f"gpu* up infinite 1 idle n{line}[0-999999]\n" for line in range(300)),
        ("nodes=3",),
        "inconclusive",
        "more than",
    ),
)


@pytest.mark.parametrize(("text", "stated", "verdict", "cause"), [*KUBECTL, *SLURM])
def test_reads(text: str, stated: tuple[str, ...], verdict: str, cause: str) -> None:
    reading = recognition.reading_of([text], site_values.parse(stated))
    assert (reading.verdict.value, cause in reading.cause) == (verdict, True), reading
