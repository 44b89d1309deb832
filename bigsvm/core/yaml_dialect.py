"""YAML without surprises: no duplicate keys, 1e-5 is a number, and only plain data."""

import re
from pathlib import Path
from typing import Any

import yaml

from bigsvm.core.errors import UserError

# Several thousand lines; parsing takes a second per 40 KiB.
MAX_BYTES = 128 * 1024


class _Loader(yaml.SafeLoader):
    """A SafeLoader that rejects duplicate keys and reads 1e-5 as a number."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(
                None, None, "a key must be text; put it in quotes", key_node.start_mark
            )
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} is given twice", key_node.start_mark
            )
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


class _Dumper(yaml.SafeDumper):
    """Quotes text that _Loader would read as a number."""


for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"),
        list("-+0123456789"),
    )


def read_yaml(path: Path) -> Any:
    """Parse a YAML file; a UserError if it is far too long for a config."""
    with path.open("rb") as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise UserError(f"{path}: is longer than {MAX_BYTES // 1024} KiB, the limit for a config")
    return parse_yaml(text, str(path))


def parse_yaml(text: str | bytes, where: str) -> Any:
    """Parse YAML text; `where` is its origin, for error messages."""
    try:
        return yaml.load(text, _Loader)  # a SafeLoader
    except yaml.MarkedYAMLError as mistake:
        mark = mistake.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{where}{place}: {mistake.problem}") from mistake
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as mistake:
        raise UserError(
            f"{where}: is not YAML ({' '.join(str(mistake).split())[:200]})"
        ) from mistake


def dump_yaml(values: dict[str, Any]) -> str:
    """Dump values as text that `parse_yaml` reads back unchanged."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
