"""Judges the outside names that pods of check `dns` asked for: later stages fetch charts by them, and would get the blame."""

from collections.abc import Iterator, Mapping
from typing import Any

from steps.contract.verdict import FailureClass
from steps.stages.rke2.contract import FunctionalExpectation
from steps.stages.shared.finding import Finding, fail, unknown

_STEP = (
    "gate rke2/host_network asks the same DNS servers from the servers' network: where that passes, see CoreDNS's log (kubectl -n "
    "kube-system logs -l k8s-app=kube-dns) and whether a firewall keeps pods' queries from these servers"
)


def findings(report: Mapping[str, Any], want: FunctionalExpectation) -> Iterator[Finding]:
    """Yield the problems of a pod with outside names: names without an answer, and a search domain that answers for them."""
    if not want.outside:
        return
    answers = report.get("outside")
    addresses: Mapping[str, Any] = answers if isinstance(answers, dict) else {}
    untold = [name for name in want.outside if not isinstance(addresses.get(name), str)]
    dead = [name for name in want.outside if addresses.get(name) == ""]
    if untold:
        seen = f"nothing tells whether a pod here resolves {', '.join(untold)}"
        yield unknown(FailureClass.RUNTIME, seen, "its address", "run the check again")
    if dead:
        error = f" ({report['error']})" if report.get("error") else ""
        seen = f"a pod here resolves names of the cluster, and not {', '.join(dead)}{error}"
        yield fail(FailureClass.DEPENDENCY, seen, "the address of each name that later stages need", _STEP)
    yield from _search_domain(report.get("caught"))


def _search_domain(domain: object) -> Iterator[Finding]:
    """Yield a failure if outside names have an address below a search domain that pods have from their node.

    Pods ask below the search domains first, since an outside name has fewer than five dots (ndots).
    """
    if not isinstance(domain, str):
        seen = "nothing tells whether a search domain catches outside names"
        yield unknown(FailureClass.RUNTIME, seen, "none that does", "run the check again")
    elif domain:
        seen = f"search domain {domain} of this node answers for outside names too (a wildcard record), and pods ask there first"
        step = f"take {domain} out of the hosts' search domains (os.dns.search), or the wildcard record out of the site's DNS"
        yield fail(FailureClass.DEPENDENCY, seen, "no search domain that catches other names", step)
