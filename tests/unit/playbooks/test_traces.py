"""Whether a kernel has packet filters at all: where it cannot have any, no rules are left; where nobody can tell, nobody looked."""

from pathlib import Path

import pytest
from ansible.module_utils.rke2 import traces

PLAIN = "0000000000000000 T _stext\n0000000000000000 t nf_conntrack_init_net\n"
BUILT_IN = PLAIN + "0000000000000000 t nf_tables_newtable\n"
MODULE = PLAIN + "0000000000000000 t nft_do_chain\t[nf_tables]\n"


@pytest.mark.parametrize(
    ("symbols", "tables", "none"),
    [
        (PLAIN, (), True),
        (BUILT_IN, (), False),
        (MODULE, (), False),
        (PLAIN, ("ip_tables_names",), False),
        (PLAIN, ("ip6_tables_names",), False),
        ("", (), False),
        (None, (), False),
    ],
)
def test_a_kernel_without_packet_filters_has_neither_kind(
    tmp_path: Path, symbols: str | None, tables: tuple[str, ...], none: bool
) -> None:
    (tmp_path / "proc/net").mkdir(parents=True)
    for name in tables:
        (tmp_path / "proc/net" / name).touch()
    if symbols is not None:
        (tmp_path / "proc/kallsyms").write_text(symbols)
    assert traces.has_no_filters(str(tmp_path)) is none
