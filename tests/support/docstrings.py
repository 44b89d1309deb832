"""Docstrings in the way of numpydoc, held against the signatures they describe."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import bigsvm


def public_objects() -> Iterator[tuple[str, Any]]:
    """Every public function, class and method of the package, by its full name."""
    for found in pkgutil.walk_packages(bigsvm.__path__, "bigsvm."):
        if found.name.rpartition(".")[2].startswith("_"):
            continue
        module = importlib.import_module(found.name)
        for name, thing in vars(module).items():
            if name.startswith("_") or getattr(thing, "__module__", None) != found.name:
                continue
            if inspect.isclass(thing) or inspect.isfunction(inspect.unwrap(thing, stop=_compiled)):
                yield f"{found.name}.{name}", thing
            if inspect.isclass(thing):
                yield from _methods(f"{found.name}.{name}", thing)


def _compiled(thing: Any) -> bool:
    return inspect.isfunction(thing)


def _methods(name: str, kind: type) -> Iterator[tuple[str, Any]]:
    for key, member in vars(kind).items():
        if isinstance(member, staticmethod | classmethod):
            member = member.__func__
        if not key.startswith("_") and inspect.isfunction(member):
            yield f"{name}.{key}", member


def section(text: str, heading: str) -> str | None:
    """What stands under a heading; None where there is none."""
    pattern = rf"^{heading}\n-+\n(.*?)(?=^\w[\w ]*\n-+$|\Z)"
    match = re.search(pattern, inspect.cleandoc(text), re.DOTALL | re.MULTILINE)
    return match[1] if match else None


def described(text: str, heading: str) -> list[str]:
    """The names that a section describes, `a, b : kind` as two."""
    lines = (section(text, heading) or "").splitlines()
    heads = (line.partition(" : ")[0] for line in lines if line and not line[0].isspace())
    return [name.strip().lstrip("*") for head in heads for name in head.split(",")]


def parameters(thing: Any) -> list[str]:
    """The names in a signature."""
    try:
        names = list(inspect.signature(thing).parameters)
    except ValueError:  # of a protocol, or of numba's own
        return []
    return [name for name in names if name not in ("self", "cls")]


def gives_something(thing: Any) -> bool:
    returned = inspect.signature(thing).return_annotation
    return returned not in (None, "None", inspect.Signature.empty)
