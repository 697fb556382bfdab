"""All waiting times of steps, in seconds, each with its reason. Deadlines of gates are in the task files instead."""

from typing import Final

API_CONNECT: Final = 5.0
"""Limit for TCP and TLS to an API server. A healthy one answers in milliseconds, a VIP that fails over within 3 s."""

API_READ: Final = 30.0
"""Limit for one LIST page. 500 nodes take 0.2 s; 30 s covers an API server that is still starting."""

POD_LOG: Final = 10.0
"""Limit for reading a pod's log. A kubelet sends 20,000 lines a second; the API server gives up on a lost kubelet after 30 s."""

EXEC_PING: Final = 20.0
"""Silence of a command in a pod after which a ping is sent: load balancers drop connections that are idle for a minute."""

API_ANSWER: Final = 60.0
"""Limit for one answer of an API server as a whole: API_READ alone would let a server send a byte every 29 s, for ever."""

API_REQUEST: Final = 180.0
"""Limit for all tries of one request together. A step that waits longer should end as temporary, so that its engine sees it."""

API_LIST: Final = 600.0
"""Limit for all pages of one LIST. 10,000 nodes with 200,000 pods take a few minutes on a server under load."""

API_EXPIRED: Final = 3
"""Number of times that a LIST begins anew because its snapshot has expired (410), as it does after 5 minutes between pages."""

API_TRIES: Final = 5
"""Number of tries of one request on 429, 5xx or a broken connection, before the step ends as temporary."""

API_BACKOFF_FIRST: Final = 0.2
API_BACKOFF_MAX: Final = 5.0
"""Waits between the tries of one request grow from API_BACKOFF_FIRST to API_BACKOFF_MAX. A Retry-After header takes precedence."""

POLL_FIRST: Final = 2.0
POLL_MAX: Final = 15.0
POLL_FACTOR: Final = 1.5
"""Waits between two observations of a waiting gate: at most four reads a minute later, which a busy server can serve."""

FABRIC_ROUND: Final = 420.0
"""Limit for one round of fabric tests: pods start in 20 s, ib_write_bw takes 15 s on all rails, and an MPIJob takes three minutes.
A pod that says nothing by then counts as unknown, not as bad.
"""

FABRIC_STEP: Final = 20.0
"""Time of one step of a group's tournament: two nodes measure for 2 s, and either may still wait for its last partner."""

FABRIC_SILENT_ROUNDS: Final = 2
"""Rounds in a row without any result after which a localisation ends: the tests do not run, which no further round mends."""

DRAIN_SHOWN: Final = 120.0
"""Wait until a drain of Slurm shows in Kubernetes, or a cordon in Slurm: operators poll every 30 s at most."""

JOB_DELETE: Final = 30.0
"""Limit for deleting the objects of a check: a finalizer hangs or a node is away then; the record lists what remains."""

STORE_TRIES: Final = 3
STORE_BACKOFF: Final = 0.5
"""Waits between writes to the store: a network file system may refuse access for a moment while its server fails over. The engine's
retry handles longer outages.
"""

LEASE_RENEW: Final = 60.0
"""Age in seconds from which a lease is renewed. Fifty shards of a stage start at once, and each would write a younger lease too."""

LEASE_TRIES: Final = 5
"""Tries to update a lease that changes between read and write. The second try settles it unless many runs compete for one target.
"""

FAIL_CONFIRM: Final = 10.0
"""Delay after which a final failure must be seen again, because operators report a failed state for a moment while they restart."""

DIAGNOSIS: Final = 60.0
"""Limit for collecting a diagnosis. The engine allows a task 15 minutes beyond its deadline, which must cover the clean-up too."""

WATCH_ROUND: Final = 60.0
"""Age in seconds at which a watch of a run is renewed: one request a minute, and a chance to look for pods that are stuck."""

WATCH_FIRST: Final = 0.5
WATCH_MAX: Final = 30.0
"""Waits between two tries of a broken watch double from WATCH_FIRST to WATCH_MAX, to spare an API server that has just come back.
"""

CREDENTIAL_RENEWAL: Final = 300.0
"""Time for which following a run tolerates refused credentials: the renewal of a kubeconfig may come later than its expiry."""

RESULT_LATE: Final = 60.0
"""Age of an ended pod that Argo still shows as running from which its result counts as lost. Argo is silent for 10 minutes."""

LAST_WORDS: Final = 10.0
"""Limit for reading the last words of pods, which is one LIST. A live view goes on without them; the report has them anyway."""

READER_POD: Final = 180.0
"""Limit for a short pod that reads or writes the run store: scheduling and an image pull; the work itself takes seconds."""

SSH_PROXY: Final = 8.0
"""Limit for connecting to an HTTP proxy and through it to the SSH host.

It equals SSH's own connect time-out (ansible.cfg), and is below the 10 s after which Ansible takes a silent SSH for a sudo prompt.
"""

GIT: Final = 10.0
"""Limit for asking Git for the commit of a spec. A file system that hangs must not block a run; the record then has no commit."""

ANNOUNCE: Final = 20.0
"""Limit for announcing an approval. A slower command or webhook is abandoned; the run waits for the approval anyway."""

CHART_RENDERING: Final = 30.0
"""Limit for rendering one chart of a user, in seconds of wall and of CPU: large ones take 1, and templates may loop for ever."""

GIT_CONNECT: Final = 10.0
"""Limit for TCP and TLS to a Git server: milliseconds in the same network, seconds behind a proxy or on another continent."""

GIT_READ: Final = 60.0
"""Longest silence of a Git server that packs or checks a push: hooks of large hosts take tens of seconds."""

GIT_TRIES: Final = 8
"""Tries of one publication when others push to the same branch: each loser fetches, rebuilds on top, and pushes again."""

BOOT_SILENCE: Final = 120.0
"""Longest time in which a booting test machine neither reads nor writes. Emulation on a loaded host pauses for half a minute."""

BOOT_LOOK: Final = 0.5
"""Interval between reads of the consoles of test machines. A boot takes a minute, and an early end should be seen at once."""

BOOT_OVER: Final = 3.0
"""Time for which a console must show the end of a boot before it counts: a network card or a server may answer the second try."""

BOOT_END: Final = 5.0
"""Limit for QEMU to end after it was asked to, normally a tenth of a second; then QEMU is killed."""

PUBLISH_LEASE: Final = 300.0
"""Age at which the lock of a publisher on another machine counts as abandoned. They renew it every 16 MiB, seconds on any link."""

PUBLISH_AGAIN: Final = 10.0
"""Interval between reads of the lock of a publisher on another machine. Waiting lasts at most one lease: a live one renews it."""

PACKAGE_LOCK: Final = 60.0
PACKAGE_LOCK_POLL: Final = 0.2
"""Limit and poll interval for the lock of published packages, which is held for a few renames: seconds on a slow file server."""

PACKAGE_RESERVATION: Final = 86400.0
"""Age at which packages reserved by a publisher on another machine may be removed. A publication has a limit of a few hours."""

PUBLISH_ANSWER: Final = 300.0
PUBLISH_SLOWEST: Final = 1e6
PUBLISH_STEP: Final = 0.2
"""Limits for one round trip to a published tree by SSH.

PUBLISH_ANSWER is the base. Copying or reading whole files adds the time for their bytes at PUBLISH_SLOWEST bytes a second, and
PUBLISH_STEP for each file: a machine that a group names has two small files. A listing may take as long as it keeps sending.
"""

CMS_SIGNATURE: Final = 120.0
"""Limit for openssl to sign or verify an initrd of some hundred MB, which it reads once."""

PUBLISH_CLOSE: Final = 10.0
"""Limit for an SSH session to end after its input has ended; then the session is killed."""

SUPERSEDED: Final = 120.0
SUPERSEDED_POLL: Final = 0.1
"""Limit and poll interval for a superseded build to end its steps, report and seal: seconds, more on a loaded machine."""

IMAGE_TOOL: Final = 120.0
"""Limit for a program that lists or unpacks one file of an image: seconds for 1 GB, more on a shared disk."""

IMAGE_SQUASH: Final = 1800.0
"""Limit for mksquashfs, which packs 200 MB a second and core: ten times what a root of 30 GB needs, for a busy machine."""

IMAGE_INITRD: Final = 600.0
"""Limit for mkinitramfs: 10 s on an idle core, but it copies hundreds of files, which a slow disk delays."""

IMAGE_LAYER: Final = 3600.0
"""Limit for building one layer of a node image: often half a minute; a large CUDA toolkit on a slow disk takes most of an hour."""

IMAGE_READ: Final = 900.0
"""Limit for reading, checking or removing one layer of a node image: minutes for tens of GiB on a network file system."""

PACKAGE_CONNECT: Final = 10.0
"""Limit for TCP and TLS to a package mirror or its proxy: milliseconds, or a few seconds across the world."""

PACKAGE_READ: Final = 60.0
"""Longest silence of a mirror in the middle of a package. A caching mirror may have to fetch the package first."""

PACKAGE_LEAST_RATE: Final = 10_000.0
"""Least bytes a second of a package as a whole: PACKAGE_READ alone would let a mirror send a byte every 59 s, for ever."""

PACKAGE_TRIES: Final = 4
PACKAGE_BACKOFF_FIRST: Final = 0.3
PACKAGE_BACKOFF_MAX: Final = 5.0
"""Tries of one package, and waits between them, before its mirror counts as unreachable for all other packages too."""

IMAGE_SETTINGS: Final = 120.0
"""Limit for reading /etc of a packed root: a second, more on a busy machine."""

IMAGE_SANDBOX: Final = 60.0
"""Limit for mounting the layers, listing the root and starting the first sandbox: a second if idle; slow disks read all folders."""

NODE_SILENCE: Final = 7 * 86400.0
"""Age at which the report of a node counts as stale. Nodes report their image once a day; a week of silence means gone or cut off.
"""

SERVE_SILENCE: Final = 60.0
"""Longest silence of a node in the middle of a download from the rehearsal's boot server: then it lost its network or its power."""

STACK_PROGRAM: Final = 60.0
"""Limit for a program that reads a few files of a tree, such as ldconfig or luac: a second, more on a busy machine."""

PROGRAM_VERSION: Final = 20.0
"""Limit for a program that prints its version: Spack reads its packages for that, which takes seconds on a cold disk."""

STACK_TEST_END: Final = 10.0
"""Limit for reading the rest of a killed test's output: its sandbox closes all streams within milliseconds."""

STACK_REFRAME_START: Final = 20.0
"""Time that ReFrame gets beyond the limit of all its tests to load its files and to write its report: 2 s on an idle machine."""

SPACK_START: Final = 60.0
"""Limit for `spack --version`. It takes a second on a local disk, and some tens of seconds on a cold network file system."""

BUILD_END: Final = 30.0
"""Limit for the kernel to end a killed sandbox with all that runs in it: milliseconds, more if the disk is slow to write pages."""

SOURCE_FETCH: Final = 3600.0
"""Limit for fetching all sources of one package: minutes on most links; CUDA has 4 GB in one archive."""

UNPACKED_UNUSED: Final = 7 * 86400.0
"""Time after which an unpacked package that no build has used is removed: nightly builds keep theirs, and no build takes days."""

CACHE_LEFTOVERS: Final = 86400.0
"""Age at which a half written file in a build cache is removed: packing and writing a package takes minutes at most."""

REGISTRY_CONNECT: Final = 10.0
"""Limit for TCP and TLS to a registry: milliseconds in the same network, seconds behind a proxy."""

REGISTRY_SILENCE: Final = 60.0
"""Longest silence of a registry that reads a blob from its disk or from object storage."""

REGISTRY_ANSWER: Final = 300.0
"""Limit for the answer to an upload: a registry computes the digest of 10 GB, or copies it within object storage, for minutes."""

REGISTRY_TRANSFER: Final = 3600.0
"""Limit for one blob as a whole: 10 GB take 100 s at 1 Gbit/s."""

REGISTRY_TRIES: Final = 5
REGISTRY_BACKOFF: Final = 0.5
REGISTRY_BACKOFF_MAX: Final = 10.0
"""Tries of one request of a registry, with growing pauses: its restart takes seconds, and its task is tried again after that."""

REGISTRY_PATIENCE: Final = 600.0
"""Time for which an upload to a registry is tried: what is uploaded may have taken hours to build."""

SLURM_ANSWER: Final = 60.0
"""Limit for one answer of Slurm's client commands: milliseconds, but they try a dead controller and its backup for 20 to 40 s."""

SLURM_START: Final = 60.0
"""Time that a job gets beyond its limit and its wait in the queue: prolog, launch over thousands of nodes, end of its steps."""

SLURM_JOB_MINUTES: Final = 10
"""Time limit of an acceptance's jobs, in minutes: they take one, and a job that hangs must not keep nodes from users."""

SLURM_QUEUE: Final = 120
"""Seconds that a job may wait for its nodes: they were idle at the start, so a longer wait means that others took them."""

SLURM_RECORD: Final = 60.0
"""Longest wait for a job's record in accounting: slurmctld sends it within seconds, and keeps it while slurmdbd is busy."""

SLURM_STATE: Final = 60.0
"""Longest wait for a drained or resumed node, an epilog, and a cancelled job: seconds, or KillWait for a job that resists."""

SLURM_POLL: Final = 0.5
"""Pause between two looks at Slurm's queue, records or nodes: each is an RPC, of which a slurmctld serves thousands a second."""

SLURM_PODS_POLL: Final = 10.0
"""Wait between two looks at pods of Slurm that restart, in seconds; a restart takes half a minute."""

GRES_STABLE: Final = 120.0
"""Time without a new pod of slurmd after which those that are there count as all: a machine that is away gets none."""

GRES_PODS: Final = 1500.0
"""Limit until all pods of slurmd run: images of 1 GiB take 3 to 5 minutes on a fresh node, and the database 2 more."""

GRES_RESUME: Final = 240.0
"""Limit until all nodes are resumed: slurmd registers within a minute, and SUNK's own guide waits 120 s."""

POD_SCRIPT: Final = 600.0
"""Limit until a script in a container succeeds: slurmctld registers with its database within a few minutes."""

POD_SCRIPT_RUN: Final = 120.0
"""Limit for one run of such a script, whose commands take seconds."""

LOGIN_POD: Final = 600.0
"""Limit until a deleted login pod is ready again: shells get 30 s to end, and an image of 1 GiB takes up to 5 minutes."""
