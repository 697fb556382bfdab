"""Lists in pages: one that the server forgets between two pages is read again, and nothing of it is missing or double."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workflows.rehearsal.apiserver import RunningServer
from workflows.rehearsal.simulator.api import api_client
from workflows.rehearsal.simulator.api.api_client import PAGE, Api, ListExpired
from workflows.rehearsal.simulator.api.api_kinds import CONFIG_MAPS, Ref
from workflows.rehearsal.simulator.api.cluster_view import ClusterView

NAMES = [f"c{number:04d}" for number in range(PAGE + 3)]


class Interrupted(Api):
    """A client whose first list of several pages expires behind its first page."""

    interrupted = False

    def send(
        self, method: str, path: str, body: Any = None, *, query: dict[str, str] | None = None, content: str = "application/json"
    ) -> bytes:
        answer = super().send(method, path, body, query=query, content=content)
        if path.endswith("/configmaps") and not self.interrupted and b'"continue":' in answer:
            self.interrupted = True
            super().delete(CONFIG_MAPS, Ref("default", NAMES[0]))
            super().send("PUT", "/emulation/disturbance", {"expire_watches": True})
        return answer


@pytest.fixture
def api(server: RunningServer, tmp_path: Path) -> Interrupted:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(server.kubeconfig)
    client = Interrupted.from_kubeconfig(kubeconfig)
    metadata = [{"name": name, "namespace": "default"} for name in NAMES]
    client.write_all([api_client.creation(CONFIG_MAPS, {"metadata": row}) for row in metadata])
    return client


def test_pages_end_with_the_snapshot(api: Interrupted) -> None:
    pages = api.pages(CONFIG_MAPS, "default")
    assert len(next(pages)) == PAGE
    with pytest.raises(ListExpired):
        next(pages)
    api.close()


def test_a_list_starts_again(api: Interrupted) -> None:
    raws = api.list(CONFIG_MAPS, "default") or ()
    assert [api_client.decode_object(raw)["metadata"]["name"] for raw in raws] == NAMES[1:]
    api.close()


def test_the_cache_keeps_nothing_of_a_list_that_expired(api: Interrupted) -> None:
    view = ClusterView(api, [CONFIG_MAPS])
    view.sync()
    assert [row["metadata"]["name"] for row in view.objects(CONFIG_MAPS) if row["metadata"]["namespace"] == "default"] == NAMES[1:]
    view.close()
