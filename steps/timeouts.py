"""Every wait of a step, in seconds, each with its reason. Deadlines of gates are in the task, not here."""

from typing import Final

API_CONNECT: Final = 5.0
"""TCP and TLS to an API server: a healthy one answers in milliseconds, a failing-over VIP within 3 s."""

API_READ: Final = 30.0
"""One LIST page of 500 nodes takes 0.2 s; 30 s covers an API server that is busy starting."""

POD_LOG: Final = 10.0
"""A kubelet sends 20,000 lines within a second; the API server itself gives up on one that is away after 30 s."""

API_TRIES: Final = 5
"""Tries of one request on 429, 5xx or a broken connection, before the step ends as temporary."""

API_BACKOFF_FIRST: Final = 0.2
API_BACKOFF_MAX: Final = 5.0
"""Waits between those tries grow from the first to the second; a Retry-After header wins."""

POLL_FIRST: Final = 2.0
POLL_MAX: Final = 15.0
POLL_FACTOR: Final = 1.5
"""Between two observations of a waiting gate: quick at first, then at most four reads a minute, which a busy API server bears."""

JOB_DELETE: Final = 30.0
"""Deletion of a check's objects; longer means that a finalizer hangs or a node is away: the check's record says what was left."""

STORE_TRIES: Final = 3
STORE_BACKOFF: Final = 0.5
"""A network file system may refuse access for a moment while its server fails over; longer outages are for the engine's retry."""

LEASE_RENEW: Final = 60.0
"""A lease younger than this is not renewed again: fifty shards of a stage start at once, and each would write it."""

LEASE_TRIES: Final = 5
"""Looks at a lease that changes between look and write; a second try settles it unless many runs fight for one target."""

FAIL_CONFIRM: Final = 10.0
"""A final failure must be seen again after this long: operators report a failed state for a moment while they restart."""

DIAGNOSIS: Final = 60.0
"""Collecting what a person would look at next: the engine leaves a task 15 minutes beyond its deadline, for clean-up too."""

WATCH_ROUND: Final = 60.0
"""A watch of a run is asked anew after this long at the latest: one request a minute, and the moment to look for what is stuck."""

WATCH_FIRST: Final = 0.5
WATCH_MAX: Final = 30.0
"""Waits between two tries of a broken watch double from the first to the second: an API server that comes back is not stormed."""

CREDENTIAL_RENEWAL: Final = 300.0
"""How long refused credentials are borne while following a run: whoever renews the kubeconfig may be slower than its expiry."""

RESULT_LATE: Final = 60.0
"""A pod that ended this long ago and still runs for Argo has lost its task result; the controller says nothing for 10 minutes."""

LAST_WORDS: Final = 10.0
"""What pods said last is one LIST; a live view that waits longer for it goes on without: the report has it all."""

READER_POD: Final = 180.0
"""A short pod that reads or writes the run store: scheduling and an image pull; its work takes seconds."""

SSH_PROXY: Final = 8.0
"""An HTTP proxy before SSH: TCP to it, and its own to the host. As long as SSH itself waits for a host (ansible.cfg), and less than
the 10 s after which Ansible takes a silent SSH for a sudo that asks."""

GIT: Final = 10.0
"""Asking git for the commit of a spec: a file system that hangs must not hold a run back; the record then has no commit."""

ANNOUNCE: Final = 20.0
"""Telling approvers that an approval waits: a command or webhook that takes longer is given up, the run waits anyway."""

GIT_CONNECT: Final = 10.0
"""TCP and TLS to a Git server: a healthy one answers in milliseconds, one behind a proxy or across the world within seconds."""

GIT_READ: Final = 60.0
"""Silence of a Git server that is packing or checking what was pushed: hooks of large hosts take tens of seconds."""

GIT_TRIES: Final = 8
"""Pushes of one publication when others push to the same branch in between; each loser fetches, builds on top, and tries again."""

BOOT_SILENCE: Final = 120.0
"""A booting test machine that neither reads nor writes: an emulated one on a loaded machine pauses for half a minute."""

BOOT_LOOK: Final = 0.5
"""Between two looks at consoles of test machines: a boot takes a minute, and what ends it early should be known at once."""

BOOT_OVER: Final = 3.0
"""How long a console must show that a boot is over: a card, or a server, may be there at the second try."""

BOOT_END: Final = 5.0
"""QEMU ends within a tenth of a second when it is told to; one that does not is killed."""

PUBLISH_LEASE: Final = 300.0
"""A publisher on another machine that did not renew its lock for this long is gone: it renews every 16 MiB, seconds on any link."""

PUBLISH_AGAIN: Final = 10.0
"""Between two looks at the lock of a publisher on another machine, which is waited for as long as its lease can last: by then one
that lives has renewed it, on any link."""

PUBLISH_ANSWER: Final = 300.0
PUBLISH_SLOWEST: Final = 1e6
PUBLISH_STEP: Final = 0.2
"""One round trip to a published tree by SSH; who copies or reads whole files has besides the time that their bytes need at this
many a second, and that of as many steps: each machine that a group names is two small files. Who lists may take as long as it says
something new."""

PUBLISH_CLOSE: Final = 10.0
"""The end of an SSH session whose input has ended; one that still hangs is killed."""

SUPERSEDED: Final = 120.0
SUPERSEDED_POLL: Final = 0.1
"""A build that a newer one supersedes ends its steps, reports and seals: seconds; a machine under load takes its time."""

IMAGE_TOOL: Final = 120.0
"""A program that lists or unpacks one file of an image: seconds for 1 GB, more on a disk that is shared."""

IMAGE_SQUASH: Final = 1800.0
"""mksquashfs packs 200 MB a second and core; ten times that for a root of 30 GB on a busy machine."""

IMAGE_INITRD: Final = 600.0
"""mkinitramfs takes 10 s on an idle core; it copies hundreds of files, which a slow disk holds up."""

IMAGE_LAYER: Final = 3600.0
"""One layer of a node image: half a minute here; a CUDA toolkit of many GiB on a slow disk takes a good part of an hour."""

IMAGE_READ: Final = 900.0
"""Reading, checking or removing one layer of a node image: seconds, and minutes for tens of GiB on a network file system."""

PACKAGE_CONNECT: Final = 10.0
"""TCP and TLS to a package mirror, or to the proxy before it: milliseconds, or a few seconds across the world."""

PACKAGE_READ: Final = 60.0
"""Silence of a mirror in the middle of a package: one behind a cache may fetch it first itself."""

PACKAGE_TRIES: Final = 4
PACKAGE_BACKOFF_FIRST: Final = 0.3
PACKAGE_BACKOFF_MAX: Final = 5.0
"""Tries of one package, and waits between them, before its mirror counts as away for all others too."""

IMAGE_SETTINGS: Final = 120.0
"""Reading /etc of a packed root: a second, or the time of a busy machine."""

IMAGE_SANDBOX: Final = 60.0
"""Mounting the layers, listing the root and starting the first sandbox: a second when idle; a slow disk reads every folder."""

NODE_SILENCE: Final = 7 * 86400.0
"""A node that booted an image tells it once a day again: after a week without a word it is gone, or cannot tell."""

SERVE_SILENCE: Final = 60.0
"""A node that asked the rehearsal's server for something and is silent since: it lost its network, or its power."""
