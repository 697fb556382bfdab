"""Pages for people: generated pages are current, links lead somewhere, and every guide can be reached from README.md."""

import re
import subprocess
from pathlib import Path

import pytest

from tests import docs

ROOT = Path(__file__).parents[3]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
OUTSIDE = ("aicr_nvcre", "embedded_k8s", "gpu_stack", "hera_argo", "real_kubernetes", "spack_pxe", "spack_real", "ssh_ansible")
"""Names of pages that readers of this repository do not have."""
CITATIONS = (*OUTSIDE, *(f"{page} §" for page in ("acceptance", "aesthetics", "design", "peers", "sunk")), "README of bringup")
"""Citations that lead nowhere. Headings of README.md move: name a page, whose existence is checked."""
FACTS = re.compile(r"\b((?:steps|workflows|playbooks|images)/docs/[\w/]+\.md)\b")
MODULE = re.compile(r"`(?:[\w.]+/)*(\w+\.py)`")
PLACEHOLDER = re.compile(r"[A-Z]+\.py")
LONGEST_README = 130


def _tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for line in listed.stdout.splitlines() if (path := ROOT / line).is_file()]


MARKDOWN = _tracked("*.md")


def _links(page: Path) -> list[str]:
    return LINK.findall(CODE.sub("", page.read_text(encoding="utf-8")))


def _targets(page: Path) -> list[Path]:
    """Files of this repository that a page links to."""
    local = (link.partition("#")[0] for link in _links(page) if not re.match(r"[a-z]+:", link))
    return [(page.parent / link).resolve() for link in local if link]


@pytest.mark.parametrize("name", docs.PAGES)
def test_a_generated_page_is_current(name: str) -> None:
    assert (docs.DOCS / name).read_text(encoding="utf-8") == docs.PAGES[name](), "run: python -m tests.docs"


def test_links_lead_somewhere() -> None:
    dangling = [f"{page.relative_to(ROOT)}: {target}" for page in MARKDOWN for target in _targets(page) if not target.exists()]
    assert dangling == []


def test_modules_that_pages_name_exist() -> None:
    """By their file name alone: READMEs name modules of their own folder, of other folders, and of this repository's root."""
    modules = {path.name for path in _tracked("*.py")} | {"compare.py"}  # the last is Argo's own, of the recordings
    named = {(page, name) for page in MARKDOWN for name in MODULE.findall(page.read_text(encoding="utf-8"))}
    gone = [f"{page.relative_to(ROOT)}: {name}" for page, name in named if name not in modules and not PLACEHOLDER.fullmatch(name)]
    assert gone == []


def test_each_module_of_software_stacks_is_named_where_it_lies() -> None:
    """Sentences about a module move with it to another folder."""
    modules = [path for path in _tracked("steps/softwarestack/*.py") if path.name != "__init__.py"]
    unnamed = [str(path.relative_to(ROOT)) for path in modules if not _names(path.with_name("README.md"), path.stem)]
    assert unnamed == []


def _names(page: Path, module: str) -> bool:
    return re.search(rf"`{module}[`.]", page.read_text(encoding="utf-8")) is not None


def test_anchors_exist() -> None:
    lost = []
    for page in MARKDOWN:
        for link in _links(page):
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            if anchor and not re.match(r"[a-z]+:", link) and target.suffix == ".md" and target.exists():
                heads = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
                known = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
                if anchor not in known:
                    lost.append(f"{page.relative_to(ROOT)}: {link}")
    assert lost == []


def test_every_guide_is_reachable_from_the_readme() -> None:
    seen, todo = set[Path](), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        todo += _targets(page)
    guides = {page for page in MARKDOWN if page.parent.name == "docs" or "docs/facts" in page.as_posix()}
    assert sorted(str(page.relative_to(ROOT)) for page in guides - seen) == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= LONGEST_README


def test_no_citation_leads_outside_the_repository() -> None:
    """Facts are cited by a public URL, an upstream issue or a page of this repository that exists; also in examples and cases."""
    outside, missing = [], []
    for path in _tracked("*.py", "*.md", "*.yaml", "*.yml", "*.toml", "*.j2", "*.sh", "*.conf", "tests/*.json", "workflows/*.json"):
        text = path.read_text(encoding="utf-8", errors="replace")
        outside += [f"{path.relative_to(ROOT)}: {words}" for words in CITATIONS if words in text and path != Path(__file__)]
        pages = FACTS.findall(text) if "/docs/" in text else []  # the expression is slow on large data files
        missing += [f"{path.relative_to(ROOT)}: {page}" for page in pages if not (ROOT / page).exists()]
    assert outside == []
    assert missing == []
