"""Find the studies of this package: add a module with a docstring and `run`, and it is there."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources

from simnet.errors import InvalidInput
from studies.study import Result


@dataclass(frozen=True, slots=True)
class Study:
    """A study by name, with the text of its module."""

    name: str
    description: str

    @property
    def summary(self) -> str:
        """First line of the module's docstring."""
        return self.description.partition("\n")[0]

    def run(self, *, quick: bool = False) -> Result:
        """Do the study; `quick` asks for fewer draws and points, not for other answers."""
        found: Callable[..., Result] = importlib.import_module(f"studies.{self.name}").run
        return found(quick=quick)


@cache
def studies() -> dict[str, Study]:
    """Return all studies by name; modules are parsed, not imported, so that listing is quick."""
    files = (f for f in resources.files("studies").iterdir() if f.name.endswith(".py"))
    found = {}
    for file in sorted(files, key=lambda f: f.name):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        text = ast.get_docstring(tree)
        if text and any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
            name = file.name.removesuffix(".py")
            found[name] = Study(name, text)
    return found


def find(name: str) -> Study:
    """Return the study of that name.

    Raises
    ------
    InvalidInput : there is none; the text lists those there are.
    """
    known, name = studies(), name.replace("-", "_")
    if name not in known:
        raise InvalidInput(f"unknown study {name!r}; choose one of {', '.join(known) or '(none yet)'}")
    return known[name]
