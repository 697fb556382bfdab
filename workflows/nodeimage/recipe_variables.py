"""Values for `{{ name }}` in the text of a recipe: names only, none unknown, none unused."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from workflows.spec.document import join
from workflows.spec.errors import SpecError, shown

_PLACE = re.compile(r"\{\{(.*?)\}\}")
_NAME = re.compile(r"\s*([a-z][a-z0-9_]{0,62})\s*")


@dataclass
class Filler:
    """Fills documents one after another, and collects the used names and the errors."""

    values: Mapping[str, str | None]
    used: set[str] = field(default_factory=set)
    errors: list[SpecError] = field(default_factory=list)
    lacks: bool = False
    """Return True if some variable has no value."""

    def fill(self, data: object, path: str = "") -> object:
        """Return the data with values in place of names; a name without value stays, with an error."""
        if isinstance(data, dict):
            return {key: self.fill(value, join(path, key)) for key, value in data.items()}
        if isinstance(data, list):
            return [self.fill(value, join(path, index)) for index, value in enumerate(data)]
        return self._text(data, path) if isinstance(data, str) else data

    def _text(self, text: str, path: str) -> str:
        if "{{" not in text:
            return text
        filled = _PLACE.sub(lambda found: self._value(found, path), text)
        if "{{" in _PLACE.sub("", text):
            self._wrong(path, text, "{{ opens a variable that nothing closes")
        return filled

    def _value(self, found: re.Match[str], path: str) -> str:
        named = _NAME.fullmatch(found[1])
        if named is None:
            self._wrong(path, found[0], "not a variable: between {{ and }} stands one name and nothing else")
            return found[0]
        self.used.add(named[1])
        if named[1] not in self.values:
            known = ", ".join(self.values) or "none yet"
            self.errors.append(SpecError(path, "no variable of this name", f"name it under variables ({known})", named[1]))
        value = self.values.get(named[1])
        if value is None:
            self.lacks = True
            return named[1]  # as good as any text, where nothing would be one error more
        return value

    def _wrong(self, path: str, value: str, problem: str) -> None:
        self.errors.append(
            SpecError(path, problem, "text with {{ of its own goes into a file of its own: source: PATH", shown(value))
        )


def unused(declared: Iterable[str], used: set[str]) -> list[SpecError]:
    """Yield an error for each variable that nothing uses: its name is probably misspelt somewhere."""
    return [
        SpecError(f"variables.{name}", "nothing asks for this variable", f"write {{{{ {name} }}}} somewhere, or remove it", name)
        for name in declared
        if name not in used
    ]
