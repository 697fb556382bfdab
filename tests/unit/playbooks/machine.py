"""A stand-in for the machine that a module runs on: tools answer from a table, files are kept, and written below `root`."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

Answer = Callable[[tuple[str, ...]], tuple[int, str, str]]


class Machine:
    """Has the interface of `nodeprofile.item.Node` that readers and adapters use; `said` are the commands that were run."""

    def __init__(self, tools: dict[str, Answer], *, check_mode: bool = False, root: Path | None = None) -> None:
        self.root = root
        self.tools = tools
        self.check_mode = check_mode
        self.said: list[tuple[str, ...]] = []
        self.environments: list[dict[str, str]] = []
        self.reboots: list[str] = []
        self.reloads: list[str] = []
        self.diffs: list[dict[str, str]] = []
        self.written: dict[str, str] = {}

    def has(self, tool: str) -> bool:
        return tool in self.tools

    def run(self, *command: str, **environment: str) -> tuple[int, str, str]:
        if command[0] not in self.tools:
            return 127, "", f"{command[0]}: no such command"
        self.said.append(command)
        self.environments.append(environment)
        return self.tools[command[0]](command)

    def run_bounded(self, seconds: float, *command: str) -> tuple[int, str] | None:
        code, output, error = self.run(*command)
        return code, output + error

    def must(self, *command: str, **environment: str) -> Any:
        from ansible.module_utils.nodeprofile.item import CannotChange

        code, output, error = self.run(*command, **environment)
        if code != 0:
            raise CannotChange(f"{command[0]} ended with {code}: {error or output}")
        return output

    def write(self, path: str, content: str, mode: int) -> None:
        self.written[path] = content
        if self.root is not None:
            assert Path(path).is_relative_to(self.root)
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(content)

    def reload(self, name: str) -> None:
        if name and name not in self.reloads:
            self.reloads.append(name)


class Module:
    """Of an Ansible module what a node needs; commands run."""

    def __init__(self) -> None:
        self.check_mode = False
        self.params: dict[str, str] = {}

    def run_command(self, command: list[str], cwd: str, environ_update: dict[str, str], **_: Any) -> tuple[int, str, str]:
        done = subprocess.run(command, cwd=cwd, env=os.environ | environ_update, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr
