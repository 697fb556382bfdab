"""The order in which hosts come to RKE2: a server, however long it takes, then agents in batches, each once the last is ready."""

import itertools
from typing import Any

import pytest
from hostlab.lab import Init
from rke2_plays import VERSION, Site, lacks, play, said, tell

pytestmark = pytest.mark.sampled("rke2 on hosts")

BATCH, SLOW_SECONDS = 2, 2


@pytest.mark.long
def test_a_slow_server_is_started_once_and_agents_join_in_batches_after_it(up: Any, site: Site) -> None:
    lab = up(6, Init.SYSTEMD)
    server, *agents = lab.hosts
    for host in agents:
        tell(host, slow=SLOW_SECONDS)
    tell(agents[1], crash=[VERSION])
    tell(server, slow=6)

    early = play(lab, site, "rke2_server", [server], rke2_ready_seconds=2)
    assert "not ready after 2 s" in said(early)[0][2]
    first = play(lab, site, "rke2_server", [server])
    assert lacks(first, "server") == ""
    assert server.run("cat", "/var/log/rke2-stand-in.log") == f"start server {VERSION}\n", "who waits again restarts nothing"
    joined = play(lab, site, "rke2_agent", list(reversed(agents)), [server], rke2_join_batch=BATCH, rke2_ready_seconds=6)

    assert [host for host, _, _ in said(joined)] == [agents[1].name], "one that does not come holds up nobody"
    ready = {outcome.host: outcome.facts["started"] for outcome in joined.hosts if outcome.host != agents[1].name}
    began = {name: when - SLOW_SECONDS for name, when in ready.items()}
    batches = [[host.name for host in agents[at : at + BATCH] if host.name in ready] for at in range(0, len(agents), BATCH)]
    assert first.hosts[0].facts["started"] < min(began.values())
    for before, after in itertools.pairwise(batches):
        assert max(ready[name] for name in before) < min(began[name] for name in after), (began, ready)
    assert abs(began[batches[1][0]] - began[batches[1][1]]) < SLOW_SECONDS, "hosts of a batch join side by side"
