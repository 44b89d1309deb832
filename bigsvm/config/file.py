"""Reads a config from a YAML file and --set options; mistakes become one clear line."""

import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from bigsvm.config import ClusterConfig, Config, Section
from bigsvm.core.errors import UserError
from bigsvm.core.messages import did_you_mean, shell_command
from bigsvm.core.urls import is_url
from bigsvm.core.yaml_dialect import parse_yaml, read_yaml


def load_config(path: Path, settings: Sequence[str] = ()) -> Config:
    """Read and validate a config file.

    Parameters
    ----------
    path : Path
    settings : sequence of "section.key=value"
        Values that override those of the file; each is parsed as YAML.

    Returns
    -------
    Config
    """
    config = _validate(Config, _read_yaml(path), path, settings)
    scheduler = f"cluster.{config.cluster.kind}"
    if scheduler in ("cluster.address", "cluster.scheduler_file"):
        typed = (setting.partition("=")[0].strip() for setting in settings)
        if not {scheduler, "cluster"}.intersection(typed):
            config.cluster.mark_named_in_file()
    return config


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as `section.key`: value; keys that are not set are left out."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        elif value is not None:
            flat[f"{prefix}{key}"] = value
    return flat


class _OnlyCluster(Section):
    cluster: ClusterConfig


def cluster_config(where: str, settings: Sequence[str] = ()) -> ClusterConfig:
    """The cluster section for a command without a config file.

    Parameters
    ----------
    where : str
        "local", the address of a scheduler, or the file a scheduler wrote.
    settings : sequence of "cluster.key=value"
        As for `load_config`.

    Returns
    -------
    ClusterConfig
    """
    section = {"kind": "local"}
    if is_url(where) or re.fullmatch(r"[\w.-]+:\d+", where):
        section = {"kind": "address", "address": where}
    elif where != "local":
        if not Path(
            where
        ).is_file():  # in a config it may still appear: its scheduler may be starting
            raise UserError(
                f"--cluster {where}: no such file; use `local`, the address of a "
                "scheduler (tcp://host:8786) or the file it wrote"
            )
        section = {"kind": "scheduler_file", "scheduler_file": where}
    for setting in settings:
        if not setting.startswith("cluster."):
            raise UserError(f"--set {setting}: write it as cluster.key=value")
    return _validate(_OnlyCluster, {"cluster": section}, Path("--cluster"), settings).cluster


_Kind = TypeVar("_Kind", bound=Section)


def _validate(
    kind: type[_Kind], values: dict[str, Any], path: Path, settings: Sequence[str]
) -> _Kind:
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise UserError(f"--set {setting}: write it as section.key=value")
        _assign(values, key.strip().split("."), parse_yaml(text, f"--set {key}"), setting)
    try:
        return kind.model_validate(values)
    except ValidationError as mistakes:
        location, explanation = _explain(mistakes, values)
        raise UserError(f"{_origin(location, path, settings)}: {explanation}") from mistakes


def _origin(location: str, path: Path, settings: Sequence[str]) -> str:
    """The origin of a wrong value: the file, or the last --set that changed it."""
    for key in (setting.partition("=")[0].strip() for setting in reversed(settings)):
        if f"{location}.".startswith(f"{key}."):
            return f"--set {key}"
        if f"{key}.".startswith(f"{location}."):
            return f"{path} with --set {key}"
    return str(path)


def _assign(values: dict[str, Any], keys: list[str], value: Any, setting: str) -> None:
    for depth, key in enumerate(keys[:-1]):
        inner = values.get(key)
        if inner is None:
            inner = values[key] = {}
        if not isinstance(inner, dict):
            raise UserError(f"--set {setting}: {'.'.join(keys[: depth + 1])} is not a section")
        values = inner
    values[keys[-1]] = value


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = read_yaml(path)
    except IsADirectoryError as problem:
        raise UserError(
            f"{path}: cannot be read as a config ({problem.strerror}); "
            f"{shell_command('init', path)} writes one for a store"
        ) from problem
    except OSError as problem:
        raise UserError(f"{path}: cannot be read ({problem.strerror})") from problem
    if not isinstance(values, dict):
        sections = ", ".join(Config.model_fields)
        raise UserError(f"{path}: is not a config, which has the sections {sections}")
    return values


# With aliases, a few lines of YAML can describe a nested list too large to print.
_short = reprlib.Repr()
_short.maxlevel, _short.maxlist, _short.maxdict = 3, 20, 20
_short.maxstring = _short.maxlong = _short.maxother = 100


def _explain(mistakes: ValidationError, values: Mapping[str, Any]) -> tuple[str, str]:
    """The key of the first mistake, and one line that explains it."""
    errors = mistakes.errors()
    first = min(errors, key=lambda error: (error["type"] != "extra_forbidden", -len(error["loc"])))
    location = [part for part in first["loc"] if part in _keys_along(first["loc"], values)]
    key = ".".join(str(part) for part in location)
    if first["type"] == "extra_forbidden":
        known = _known_keys(location[:-1])
        hint = _section_of(key) if len(location) == 1 else None
        hint = hint or did_you_mean(str(location[-1]), known, cutoff=0.4)
        return key, f"unknown key {key!r}; {hint or 'known here: ' + ', '.join(known)}"
    if first["type"] == "missing":
        return key, f"the key {'.'.join([*map(str, location), str(first['loc'][-1])])!r} is missing"
    message = first["msg"].removeprefix("Value error, ")
    if isinstance(first["input"], Mapping) or not key:
        return key, f"{key or 'config'}: {message}"
    value = first["input"]
    shown = (
        f"{value:g}" if isinstance(value, float) and not math.isnan(value) else _short.repr(value)
    )
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return key, f"{key} = {shown}: {message[0].lower()}{message[1:]}"


def _section_of(key: str) -> str | None:
    """A question that names the section of a key which was given without one."""
    found = [f"{name}.{key}" for name in Config.model_fields if key in _known_keys([name])]
    return f"did you mean {' or '.join(map(repr, found))}?" if found else None


def _keys_along(location: Sequence[Any], values: Any) -> list[Any]:
    """The parts of pydantic's location that are keys of the file; others are type names."""
    keys = []
    for part in location:
        if isinstance(values, Mapping) and part in values:
            keys.append(part)
            values = values[part]
    return keys


def _known_keys(location: Sequence[Any]) -> list[str]:
    section: type[BaseModel] = Config
    for part in location:
        kind = section.model_fields[part].annotation
        candidates = [kind, *getattr(kind, "__args__", ())]
        section = next(
            (c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), section
        )
    return list(section.model_fields)
