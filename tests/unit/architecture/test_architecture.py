"""The house rules that no linter keeps: sizes, names, one basename a stage, README per folder."""

import ast
import functools
import itertools
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import steps
import workflows
from workflows.stages import FACTORY_STAGES, IMAGE_ORDER, OPERATIONS, RUNNING_ORDER, SLURM_ORDER, STACK_ORDER

ROOT = Path(__file__).parents[3]
CODE = [path for room in ("steps", "workflows", "playbooks") for path in sorted((ROOT / room).rglob("*.py"))]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LONGEST_MODULE, LONGEST_FUNCTION, MEDIAN_FUNCTION = 600, 50, 10

RIDDLE = re.compile(
    r"(The same|What|Whether|That|Who|Whom|Whose|All of|All that|How|Which|Where|None where)\b"
    r"|(It|Its|They|Their|Them|This|These|Those|He|She)\b|One (of|that|which|who|whose|where|is|has|was)\b"
)
"""Beginnings after which a docstring cannot be understood alone."""


def _functions(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            yield node.name, (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_packages_come_from_this_tree() -> None:
    assert Path(steps.__file__ or "").parent == ROOT / "steps"
    assert Path(workflows.__file__ or "").parent == ROOT / "workflows"


def test_modules_are_short_and_say_what_they_are() -> None:
    long = [f"{_relative(path)}: {count} lines" for path in CODE if (count := len(path.read_text().splitlines())) > LONGEST_MODULE]
    silent = [_relative(path) for path in CODE if not _facts(path).is_documented]
    assert not long
    assert not silent


def _docstrings(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring: of modules, classes, functions, and constants or fields that a string follows."""
    for owner in nodes:
        for node in getattr(owner, "body", ()) if isinstance(getattr(owner, "body", ()), list) else ():
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                yield node.lineno, node.value.value.strip()


def _riddles(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    return ((line, text) for line, text in _docstrings(nodes) if RIDDLE.match(text))


def test_docstrings_stand_alone() -> None:
    """The first word names a thing or an action: nobody has to read the code, or the docstring above, to know what is meant."""
    rows = {path: _facts(path).riddles for path in CODE}
    rows |= {path: tuple(_riddles(ast.walk(ast.parse(path.read_text())))) for path in TESTS}
    riddles = [f"{_relative(path)}:{line}: {text[:60]}" for path in rows for line, text in rows[path]]
    assert riddles == []


def test_functions_are_short() -> None:
    sizes = [(f"{_relative(path)}:{name}", size) for path in CODE for name, size in _facts(path).functions]
    assert not [f"{name}: {size} lines" for name, size in sizes if size > LONGEST_FUNCTION]
    assert statistics.median(size for _, size in sizes) <= MEDIAN_FUNCTION


def test_one_adapter_knows_the_package_manager_of_an_image() -> None:
    adapter = {
        "steps/nodeimage/contract/debian.py",
        "steps/nodeimage/layer/package_installation.py",
        "steps/nodeimage/layer/mirror_settings.py",
        "workflows/nodeimage/package_resolution.py",
    }
    rooms = ("steps/nodeimage", "steps/stages/image_")
    rooms += (
        "workflows/nodeimage",
        "workflows/app/images",
        "workflows/cli/images",
        "workflows/image.py",
        "workflows/stages/image_",
    )
    code = {path: (ROOT / path).read_text() for path in map(_relative, CODE) if path.startswith(rooms) and path not in adapter}
    assert len(code) > 80
    assert not [path for path, text in code.items() if re.search(r"dpkg|apt-get|apt-cache|apt-helper|var/lib/apt|\.deb\b", text)]
    assert all((ROOT / path).is_file() for path in adapter)


REPEATED_MODULES = {
    "__init__": "every package has one",
    "__main__": "every package that starts with `python -m` has one",
    "commands": "the commands of each group of the command line",
    "contract": "the types of one stage that cross as JSON: steps/stages/STAGE/contract.py",
    "errors": "the error tree of one package",
    "gate": "the judgements of one stage: steps/stages/STAGE/gate.py",
    "model": "the data types of one package",
    "probe": "the reading of one stage: steps/stages/STAGE/probe.py",
    "product_report": "the section of one product in a run's report, found by name: steps/PRODUCT/product_report.py",
    "tasks": "the entry points of one product's tasks, found by name: steps/PRODUCT/tasks.py",
    **dict.fromkeys((*RUNNING_ORDER, *OPERATIONS, *FACTORY_STAGES), "a stage has one basename everywhere"),
}
"""Basenames that several modules of the product may share, with the reason."""

REPEATED_CLASSES = {
    r"steps/verbs/\w+\.py": (r"Arguments", "a verb decodes the arguments of its task into its own `Arguments`"),
    r"steps/stages/\w+/contract\.py": (
        r"[A-Z]\w+(Expectation|Observation)",
        "a gate NAME of each stage has its NameExpectation and NameObservation",
    ),
}
"""Class names that several files of a pattern may share, with the reason."""


def _named_twice(named: Iterator[tuple[str, str]], kind: str) -> list[str]:
    """Return a sentence for each name that two places define, from pairs of name and place."""
    places: dict[str, str] = {}
    sentences = []
    for name, place in named:
        if name in places:
            sentences.append(f"{kind} {name} is defined in {places[name]} and in {place}: rename one of them after what it is")
        places.setdefault(name, place)
    return sentences


def test_a_module_name_means_one_thing() -> None:
    product = (path for path in CODE if "roles" not in path.parts and path.stem not in REPEATED_MODULES)
    assert not _named_twice(((path.stem, _relative(path)) for path in product), "module")


def test_a_class_name_means_one_thing() -> None:
    def may_repeat(name: str, place: str) -> bool:
        return any(re.fullmatch(files, place) and re.fullmatch(names, name) for files, (names, _) in REPEATED_CLASSES.items())

    classes = ((name, _relative(path)) for path in CODE for name in _facts(path).classes if not may_repeat(name, _relative(path)))
    assert not _named_twice(classes, "class")


HIDING_NAMES = {"found", "one", "said", "told", "given", "asked", "brought"}
"""Names that do not say what a variable or parameter holds."""

SERIALISED_FIELDS = {
    ("steps/nodeimage/contract/resolved_recipe.py", "asked"),
    ("steps/nodeimage/publishing/node_reports.py", "told"),
    ("steps/report/model.py", "asked"),
    ("steps/report/model.py", "found"),
    ("steps/stages/base_services/contract.py", "given"),
    ("steps/stages/base_services/contract.py", "found"),
    ("steps/stages/image_assemble/contract.py", "found"),
    ("steps/stages/image_publish/contract.py", "found"),
    ("workflows/engines/argo/helper_pods.py", "said"),
    ("workflows/host_keys/model.py", "said"),
}
"""Fields that keep such a name, because lock files, records and JSON output that exist have it."""


def _bound_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield line and name of each assignment, parameter, caught exception and captured pattern."""
    for node in nodes:
        match node:
            case (
                ast.arg(arg=name)
                | ast.Name(id=name, ctx=ast.Store())
                | ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                yield node.lineno, name


def test_variables_say_what_they_hold() -> None:
    hiding = [
        f"{_relative(path)}:{line}: rename {name} after what it holds"
        for path in CODE
        for line, name in _facts(path).hiding_names
        if (_relative(path), name) not in SERIALISED_FIELDS
    ]
    assert hiding == []


def test_no_drawer_for_everything() -> None:
    assert not [_relative(path) for path in (*CODE, *TESTS) if path.stem in ("utils", "util", "helpers", "common", "misc")]


def test_tests_patch_nothing_of_ours_and_never_sleep() -> None:
    forbidden = re.compile(r"mock\.patch|monkeypatch\.setattr|\btime\.sleep\(|asyncio\.sleep\([^0]")
    tests = [path for path in TESTS if path.name.startswith("test_") and path != Path(__file__)]
    assert not [f"{_relative(path)}: {match}" for path in tests for match in forbidden.findall(path.read_text())]


@pytest.mark.parametrize("stage", [*RUNNING_ORDER, *OPERATIONS, *FACTORY_STAGES])
def test_a_stage_has_one_basename_everywhere(stage: str) -> None:
    places = [
        f"workflows/stages/{stage}.py",
        f"steps/stages/{stage}/contract.py",
        f"steps/stages/{stage}/gate.py",
        f"steps/stages/{stage}/probe.py",
        f"workflows/rehearsal/faults/{stage}.py",
        f"tests/gates/{stage}",
    ]
    assert not [place for place in places if not (ROOT / place).exists()]
    simulated = [f"workflows/rehearsal/simulator/stages/{path}.py" for path in (stage, f"{stage}/{stage}")]
    assert sum((ROOT / path).exists() for path in simulated) == 1, f"a stage has one module with its roles: {simulated}"


@pytest.mark.parametrize("stage", [*IMAGE_ORDER, *STACK_ORDER, *SLURM_ORDER])
def test_a_stage_without_simulation_has_one_basename_everywhere(stage: str) -> None:
    """Nothing of an image, a stack or a login node is simulated, and no Kubernetes is read: verbs ask clients."""
    places = [
        f"workflows/stages/{stage}.py",
        f"steps/stages/{stage}/contract.py",
        f"steps/stages/{stage}/gate.py",
        f"tests/gates/{stage}",
    ]
    assert not [place for place in places if not (ROOT / place).exists()]


def test_each_room_has_a_readme() -> None:
    rooms = {path.parent for path in CODE if "roles" not in path.parts} | {ROOT / "playbooks/roles"}
    tiers = {path for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    lacking = [_relative(room) for room in sorted(rooms | tiers) if not (room / "README.md").exists()]
    assert not lacking


def _imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            yield node.module


IMPORT_BARS = {
    ("steps/stages", "probe"): r"steps\.stages\.\w+\.gate\w*",
    ("steps/stages", "gate"): r"steps\.stages\.\w+\.probe\w*|(os|io|shutil|pathlib|socket|http|ssl|subprocess|tempfile)\b",
    ("steps/stages", "reader"): r"steps\.stages\.\w+\.(gate|probe)\w*|(os|io|shutil|pathlib|socket|http|ssl|subprocess)\b",
    ("playbooks/module_utils/nodeprofile", ""): r".*\brke2\b",
    ("playbooks/module_utils/rke2", ""): r".*\bnodeprofile\b",
}
"""Folder and beginning of module names → imports that these modules may not have: import-linter has no patterns within a name."""


@pytest.mark.parametrize(("modules", "barred"), IMPORT_BARS.items())
def test_gates_judge_probes_read_and_roles_stand_alone(modules: tuple[str, str], barred: str) -> None:
    folder, beginning = modules
    paths = [path for path in sorted((ROOT / folder).rglob("*.py")) if path.name.startswith(beginning)]
    assert paths
    assert [f"{_relative(path)}: {name}" for path in paths for name in _facts(path).imports if re.match(barred, name)] == []


def test_layers_hold() -> None:
    script = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([script, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]


STARTERS = {
    "workflows/__main__.py",  # itself anew, in UTF-8 mode
    "steps/clients/process.py",
    "steps/clients/program_streams.py",
    "steps/clients/ansible/workspace.py",
    "steps/clients/releases/shell_session.py",
    "steps/nodeimage/containment/chroot.py",
    "steps/nodeimage/containment/namespace.py",
    "steps/nodeimage/containment/namespace_child.py",
    "steps/nodeimage/layer/package_installation.py",
    "steps/nodeimage/layer/packed_streams.py",
    "steps/nodeimage/netboot/parent_death.py",
    "steps/nodeimage/netboot/qemu_machine.py",
    "steps/nodeimage/sandbox/sandbox_tests.py",
    "steps/softwarestack/builds/build_process.py",
    "steps/softwarestack/tree_tests/bounded_process.py",
    "workflows/app/specs/revisions.py",
    "workflows/engines/local/executor.py",
    "workflows/host_keys/key_scan.py",
    "workflows/host_keys/known_hosts.py",
    "workflows/inventory/ansible_inventory.py",
    "workflows/inventory/capped_script.py",
    "workflows/podimage/bytecode.py",
    "workflows/podimage/deb_unpacking.py",
    "workflows/podimage/downloads.py",
    "workflows/rehearsal/simulated_cluster.py",
    "workflows/rehearsal/step_forks.py",
    "workflows/softwarestack/easybuild_resolution.py",
}
"""Modules that start programs. Another one needs a reason, because each start may run what data names."""
_START = re.compile(r"(os\.(exec|spawn|posix_spawn|system|popen)|subprocess\.(run|Popen|call|check_\w+|getoutput))\w*\(|pty\.spawn")
_ISOLATED = re.compile(r"-[IPS]*[IP][IPS]*")


OWN_DECODERS = {
    "steps/clients/kube/client.py",  # tells apart what is too deep
    "steps/contract/canonical.py",
    "steps/localise/history_encoding.py",  # imports no contract
    "workflows/engines/node_release.py",  # runs as a text in a pod
}
"""Modules that name the exceptions themselves."""


def test_few_modules_start_programs() -> None:
    rooms = ("steps/", "workflows/")
    starters = {path for path in map(_relative, CODE) if path.startswith(rooms) and _START.search((ROOT / path).read_text())}
    assert starters == STARTERS


def test_child_interpreters_start_isolated() -> None:
    """Import nothing from the current folder or beside data: `-P`, `-I`, or PYTHONSAFEPATH in the environment of steps."""
    assert [f"{_relative(path)}:{line}" for path in CODE for line in _facts(path).loose_interpreters] == []


def test_json_that_cannot_be_read_is_caught_whole() -> None:
    """`UNREADABLE_JSON` has the two further exceptions that decoding raises: for texts that are no UTF-8, and for deep values."""
    narrow = re.compile(r"except [^\n]*msgspec\.(MsgspecError|DecodeError)\b")
    paths = [path for path in CODE if _relative(path) not in OWN_DECODERS and "rehearsal" not in path.parts]
    assert [_relative(path) for path in paths if narrow.search(path.read_text())] == []


def _loose_interpreters(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """Yield the line of each `sys.executable` in a list whose next item is no option that isolates the interpreter."""
    for node in nodes:
        if not isinstance(node, ast.List | ast.Tuple):
            continue
        for here, after in itertools.zip_longest(node.elts, node.elts[1:]):
            is_interpreter = isinstance(here, ast.Attribute) and ast.unparse(here) == "sys.executable"
            flag = after.value if isinstance(after, ast.Constant) else None
            if is_interpreter and not (isinstance(flag, str) and _ISOLATED.fullmatch(flag)):
                yield here.lineno


@dataclass(frozen=True)
class Facts:
    """Everything that these rules ask of one file: trees of all files would not fit into memory, and parsing takes seconds."""

    is_documented: bool
    riddles: tuple[tuple[int, str], ...]
    functions: tuple[tuple[str, int], ...]
    classes: tuple[str, ...]
    hiding_names: tuple[tuple[int, str], ...]
    imports: tuple[str, ...]
    loose_interpreters: tuple[int, ...]


@functools.cache
def _facts(path: Path) -> Facts:
    """Parse a file once for all tests of this module."""
    tree = ast.parse(path.read_text())
    nodes = list(ast.walk(tree))
    return Facts(
        is_documented=bool(ast.get_docstring(tree)),
        riddles=tuple(_riddles(nodes)),
        functions=tuple(_functions(nodes)),
        classes=tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef)),
        hiding_names=tuple((line, name) for line, name in _bound_names(nodes) if name in HIDING_NAMES),
        imports=tuple(_imports(nodes)),
        loose_interpreters=tuple(_loose_interpreters(nodes)),
    )
