"""Use case of `bringup host-keys`: scan the keys of a spec's hosts, compare them with known_hosts, and write new ones."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from steps.contract.exit import ExitCode
from steps.contract.plain_text import count
from workflows.app.specs import sources
from workflows.host_keys import enrolment, known_hosts, model
from workflows.host_keys.model import KeyState, ScannedKey
from workflows.spec import load_factory


class NotConfirmed(ValueError):
    """Error for new keys that nobody confirmed."""

    hint = "compare the fingerprints, then: --yes"


@dataclass(frozen=True)
class KeyScan:
    """The keys that a spec's hosts showed.

    `writable` ones may go into known_hosts; `refused` ones are revoked there, or have changed.
    """

    file: Path
    rows: Sequence[ScannedKey]
    writable: Sequence[ScannedKey]
    refused: Sequence[ScannedKey]
    replaced: frozenset[str]

    @property
    def new_hosts(self) -> int:
        """Return the number of hosts whose keys are to be written."""
        return len({row.place for row in self.writable})

    def table(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        """Return columns and rows for a person: hosts with the same outcome share a row."""
        return model.columns(("host", "address", "type", "fingerprint", "state", ""), model.fold_rows(self.rows))

    def folded_hosts(self) -> int:
        """Return the number of hosts with new keys if the table folds them, being more than `model.SHOWN`, else 0."""
        new = {row.place for row in self.rows if row.state is KeyState.NEW}
        return len(new) if len(new) > model.SHOWN else 0

    def data(self) -> list[dict[str, str]]:
        """Return one mapping for each key (host, address, type, fingerprint, state, said), for scripts."""
        names = ("host", "address", "type", "fingerprint", "state", "said")
        return [dict(zip(names, row, strict=True)) for row in model.key_rows(self.rows)]

    def write(self) -> None:
        """Write the writable keys into the known_hosts file, in place of the old keys of hosts whose key may change."""
        keys = [(row.place, row.key) for row in self.writable if row.key is not None]
        known_hosts.write(self.file, keys, self.replaced & {row.place for row in self.writable})

    def summary(self) -> str:
        """Return one sentence: how many hosts are in each state, and how many keys were written to which file."""
        counted = Counter(row.state for row in {row.place: row for row in self.rows}.values())
        counts = ", ".join(f"{hosts} {state.value}" for state, hosts in counted.items())
        wrote = f"wrote {count(len(self.writable), 'key')} to {self.file}" if self.writable else f"nothing to write to {self.file}"
        return f"{count(sum(counted.values()), 'host')}: {counts}; {wrote}"

    def warning(self, row: ScannedKey) -> tuple[str, str]:
        """Return a sentence and a hint about a refused key: known_hosts revokes it, or has another key for the host."""
        fingerprint = row.key.fingerprint if row.key else "-"
        if row.state is KeyState.REVOKED:
            return f"{row.host} ({row.place}) shows a key that {self.file} revokes: {fingerprint}", "give the host a new key"
        return (
            f"{row.host} ({row.place}) shows another key than {self.file} has: {fingerprint}",
            f"was it installed anew? ask who did, compare the fingerprint, then: --replace {row.host}; else somebody is in between",
        )

    @property
    def exit_code(self) -> int:
        """Return 65 if a key was refused, 75 if a host did not answer, else 0."""
        if self.refused:
            return ExitCode.GATE_FAILED
        return ExitCode.TEMPORARY if any(row.state is KeyState.SILENT for row in self.rows) else ExitCode.OK


def scan(source: str, out: Path | None, replace: Sequence[str]) -> KeyScan:
    """Scan the keys of a spec's hosts and compare them with `out` (default: the spec's file). Raises NoSuchHost.

    `replace` names the hosts whose key may change.
    """
    spec = load_factory(source).cluster if sources.is_factory(source) else sources.read(source)[1]
    targets = enrolment.scan_targets(spec, sources.beside(source), out)
    replaced = enrolment.replaceable_places(targets, replace)
    rows = enrolment.scan_host_keys(targets)
    writable, refused = enrolment.writable_rows(rows, replaced), enrolment.refused_rows(rows, replaced)
    return KeyScan(targets.file, rows, writable, refused, frozenset(replaced))
