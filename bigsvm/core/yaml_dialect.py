"""YAML without its traps: no key given twice, 1e-5 is a number, nothing but plain data."""

import re
from pathlib import Path
from typing import Any

import yaml

from bigsvm.core.errors import UserError

# Some thousand lines. Parsing takes a second for every 40 KiB.
MAX_BYTES = 128 * 1024


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice, and reads 1e-5 as the number it is."""


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
    """Quotes the text that _Loader would read as a number."""


for _either in (_Loader, _Dumper):
    _either.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"),
        list("-+0123456789"),
    )


def read_yaml(path: Path) -> Any:
    """What a YAML file says; one that is far too long for a config is a UserError."""
    with path.open("rb") as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise UserError(
            f"{path}: is longer than the {MAX_BYTES // 1024} KiB that a config may have"
        )
    return parse_yaml(text, str(path))


def parse_yaml(text: str | bytes, where: str) -> Any:
    """What the text says; `where` it is from, for the message if it is not YAML."""
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
    """Text that `parse_yaml` reads as the same values."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
