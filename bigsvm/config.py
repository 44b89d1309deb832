"""The configuration of a run: a YAML file, checked on the way in."""

import difflib
import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from bigsvm.addresses import is_address, refuse_credentials
from bigsvm.errors import UserError
from bigsvm.prepare_options import PrepareOptions
from bigsvm.solvers import HOT_SET
from bigsvm.tune_options import TuneOptions

_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZES |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _size(value: Any) -> Any:
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([\d.]+)\s*([kmgtKMGT]?[iI]?[bB]?)\s*", value)
        if not match or match[2].upper() not in _SIZES:
            raise ValueError("a size is a number of bytes or like 512MiB, 2GiB, 800MB")
        size = float(match[1]) * _SIZES[match[2].upper()]
        if not math.isfinite(size):
            raise ValueError("is too large")
        return int(size)
    return value


def _duration(value: Any) -> Any:
    if isinstance(value, str):
        if re.fullmatch(r"(\d+:)?\d+:\d\d", value):
            parts = [float(part) for part in reversed(value.split(":"))]
            return sum(float(part) * 60**power for power, part in enumerate(parts))
        units = re.findall(r"([\d.]+)\s*([smhd])", value)
        if not units or re.sub(r"[\d.]+\s*[smhd]|\s", "", value):
            raise ValueError("a time is a number of seconds or like 90s, 2h30m, 01:30:00")
        return sum(float(number) * _SECONDS[unit] for number, unit in units)
    return value


Size = Annotated[int, BeforeValidator(_size)]
Duration = Annotated[float, BeforeValidator(_duration)]


class Section(BaseModel):
    """A part of the config: no unknown keys, no values of the wrong kind."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        if isinstance(value, str) and "\0" in value:
            raise ValueError("a zero byte is not possible here")
        if isinstance(value, bool):  # pydantic would take `true` for the number 1
            raise ValueError("true and false are not possible here")
        return value


class ArraysConfig(Section):
    """Arrays of the user's own: where they are and what they are called."""

    path: str
    x: str = "X"
    y: str = "y"
    positive: str | int | float | None = None


class DataConfig(Section):
    """What to train and to test on."""

    source: str | None = None
    train: str | ArraysConfig | None = None
    test: str | ArraysConfig | None = None
    prepare: PrepareOptions = PrepareOptions()

    @model_validator(mode="after")
    def _something(self) -> "DataConfig":
        if self.source is None and self.train is None:
            raise ValueError("give `source` (a named data set or a file) or `train` (a store)")
        if self.source is not None and isinstance(self.train, ArraysConfig):
            raise ValueError("with `source`, `train` is the path of the store to make")
        if self.source is not None and isinstance(self.train, str) and is_address(self.train):
            raise ValueError("with `source`, the store is made on this machine: `train` is a path")
        for place in (self.train, self.test):
            refuse_credentials(place.path if isinstance(place, ArraysConfig) else place or "")
        return self


class KernelConfig(Section):
    """The kernel and its parameters."""

    name: Literal["rbf", "linear", "poly", "laplacian"] = "rbf"
    sigma: float | None = Field(default=None, gt=0)
    gamma: float | None = Field(default=None, gt=0)
    coef0: float = 0.0
    degree: int = Field(default=3, ge=1, le=20)

    @model_validator(mode="after")
    def _width(self) -> "KernelConfig":
        if self.sigma is not None and self.gamma is not None:
            raise ValueError("give sigma or gamma, not both")
        if self.name in ("rbf", "laplacian") and self.sigma is None and self.gamma is None:
            raise ValueError(f"the {self.name} kernel needs sigma or gamma")
        if self.name in ("linear", "poly") and self.sigma is not None:
            raise ValueError(f"the {self.name} kernel has no sigma")
        return self

    @property
    def rate(self) -> float:
        """gamma, whichever way it was given."""
        if self.sigma is None:
            return 1.0 if self.gamma is None else self.gamma
        return 1 / self.sigma if self.name == "laplacian" else 1 / (2 * self.sigma**2)


def normalized_C(C: float, rows: int, features: int) -> float:
    """The C of the formulas for the paper's, of which 1 suits data of any size: C d / n."""
    return C * features / rows


class ReweightConfig(Section):
    """Of a re-weighted SVM: from coefficients to weights; see `bigsvm.solvers.reweight`."""

    function: Literal["identity", "sqrt", "log", "tanh"] = "sqrt"
    floor: float = Field(default=0.1, ge=0)
    ceiling: float = Field(default=1.0, gt=0)

    @model_validator(mode="after")
    def _in_order(self) -> "ReweightConfig":
        if self.floor >= self.ceiling:
            raise ValueError("the floor must be below the ceiling")
        return self


class ModelConfig(Section):
    """The model: what the result is, apart from how it is computed.

    Attributes
    ----------
    weights, sample_weight : str or None
        An array in the store, or a file (.npy, or .txt with a number a line): the margin asked of
        each pattern (`wsvm`, and the first round of `rwsvm`), and the factor of its C.
    class_weight : "balanced", or label -> factor of C
    intercept : float
        The constant added to the kernel; 0 for a decision without intercept.
    rounds, reweight
        Of `rwsvm`.
    """

    algorithm: Literal["fw", "mfw", "wsvm", "rwsvm"] = "mfw"
    C: float = Field(default=1.0, gt=0)
    C_scale: Literal["plain", "normalized"] = "plain"
    kernel: KernelConfig
    intercept: float = Field(default=0.0, ge=0)
    weights: str | None = None
    sample_weight: str | None = None
    class_weight: Literal["balanced"] | dict[str, Annotated[float, Field(ge=0)]] | None = None
    rounds: int = Field(default=2, ge=1)
    reweight: ReweightConfig = ReweightConfig()

    @model_validator(mode="after")
    def _weights_where_they_count(self) -> "ModelConfig":
        if self.weights is None and self.algorithm == "wsvm":
            raise ValueError("the algorithm wsvm needs `weights`: an array in the store, or a file")
        if self.weights is not None and self.algorithm not in ("wsvm", "rwsvm"):
            raise ValueError(
                f"the algorithm {self.algorithm} has no `weights`; take wsvm, or sample_weight"
            )
        for key in ("rounds", "reweight"):
            changed = getattr(self, key) != type(self).model_fields[key].default
            if changed and self.algorithm != "rwsvm":
                raise ValueError(f"the algorithm {self.algorithm} has no `{key}`; take rwsvm")
        return self

    def plain_C(self, rows: int, features: int) -> float:
        """The C of the formulas."""
        return normalized_C(self.C, rows, features) if self.C_scale == "normalized" else self.C


class SolverConfig(Section):
    """How it is computed, and for how long."""

    schedule: Literal["auto", "exact", "block"] = "auto"
    tolerance: float = Field(default=1e-5, gt=0)
    max_iterations: int = Field(default=1_000_000, ge=1)
    time_limit: Duration | None = Field(default=None, gt=0)
    initial: int | Literal["random"] = 0
    hot_set: int = Field(default=HOT_SET, ge=1)
    memory_limit: Size = Field(default=2 * 2**30, gt=0)
    threads: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0)


class RunConfig(Section):
    """Where the run lives, and how often it saves."""

    dir: str | None = None
    snapshot_every: int = Field(default=5000, ge=1)
    checkpoint_every: int | None = Field(default=None, ge=1)
    checkpoint_seconds: Duration = Field(default=60.0, gt=0)
    keep_checkpoints: int = Field(default=2, ge=1)


class ClusterConfig(Section):
    """Who computes: this process, or the workers of a Dask cluster.

    Attributes
    ----------
    kind : {"none", "local", "address", "scheduler_file"}
        This process; workers started on this machine; a cluster that is there already.
    workers, threads_per_worker : int or None
        Of a local cluster (one for each core, and 1). Of another one, `workers` is how many
        to wait for at the start (1), and each has its own number of threads.
    address, scheduler_file : str or None
        Where the scheduler is: like tcp://10.0.0.1:8786, or the file it wrote.
    wait_limit : float
        Seconds to wait for workers when there are none, before the run saves itself and leaves.
    tls_ca, tls_cert, tls_key : str or None
        PEM files: all traffic is encrypted, and only holders of a certificate take part.
    """

    kind: Literal["none", "local", "address", "scheduler_file"] = "none"
    workers: int | None = Field(default=None, ge=1)
    threads_per_worker: int | None = Field(default=None, ge=1)
    address: str | None = None
    scheduler_file: str | None = None
    wait_limit: Duration = Field(default=600.0, ge=0)
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None

    @model_validator(mode="after")
    def _complete(self) -> "ClusterConfig":
        if self.kind in ("address", "scheduler_file") and not getattr(self, self.kind):
            raise ValueError(f"kind {self.kind} needs the key {self.kind!r}")
        files = (self.tls_ca, self.tls_cert, self.tls_key)
        if any(files) and not all(files):
            raise ValueError("TLS needs all of tls_ca, tls_cert and tls_key")
        if all(files) and self.address and not self.address.startswith("tls://"):
            raise ValueError("with TLS the address begins with tls://")
        return self


class Config(Section):
    """A whole run."""

    data: DataConfig
    model: ModelConfig
    solver: SolverConfig = SolverConfig()
    run: RunConfig = RunConfig()
    cluster: ClusterConfig = ClusterConfig()
    tune: TuneOptions | None = None

    def to_yaml(self) -> str:
        """The config as YAML, defaults included; loading it gives the same config."""
        values = self.model_dump(mode="json", exclude={"tune"} if self.tune is None else None)
        return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def load_config(path: Path, settings: Sequence[str] = ()) -> Config:
    """Read and check a config file.

    Parameters
    ----------
    path : Path
    settings : sequence of "section.key=value"
        Values that replace those of the file; each value is read as YAML.

    Returns
    -------
    Config
    """
    return _checked(Config, _read_yaml(path), path, settings)


class _OnlyCluster(Section):
    cluster: ClusterConfig


def cluster_config(where: str, settings: Sequence[str] = ()) -> ClusterConfig:
    """The cluster section for a command that has no config file.

    Parameters
    ----------
    where : str
        "local", the address of a scheduler, or the file that one wrote.
    settings : sequence of "cluster.key=value"
        As for `load_config`.

    Returns
    -------
    ClusterConfig
    """
    section = {"kind": "local"}
    if is_address(where) or re.fullmatch(r"[\w.-]+:\d+", where):
        section = {"kind": "address", "address": where}
    elif where != "local":
        section = {"kind": "scheduler_file", "scheduler_file": where}
    for setting in settings:
        if not setting.startswith("cluster."):
            raise UserError(f"--set {setting}: write it as cluster.key=value")
    return _checked(_OnlyCluster, {"cluster": section}, Path("--cluster"), settings).cluster


_Kind = TypeVar("_Kind", bound=Section)


def _checked(
    kind: type[_Kind], values: dict[str, Any], path: Path, settings: Sequence[str]
) -> _Kind:
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise UserError(f"--set {setting}: write it as section.key=value")
        _assign(values, key.strip().split("."), _parse(text, f"--set {key}"), setting)
    try:
        return kind.model_validate(values)
    except ValidationError as mistakes:
        location, explanation = _explain(mistakes, values)
        raise UserError(f"{_origin(location, path, settings)}: {explanation}") from mistakes


def _origin(location: str, path: Path, settings: Sequence[str]) -> str:
    """Where a wrong value came from: the file, or the last --set that touched it."""
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
            raise UserError(f"--set {setting}: {'.'.join(keys[: depth + 1])} has no keys in it")
        values = inner
    values[keys[-1]] = value


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


def _parse(text: str | bytes, where: str) -> Any:
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


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes()
    except OSError as problem:
        raise UserError(f"{path}: cannot be read ({problem.strerror})") from problem
    values = _parse(text, str(path))
    if not isinstance(values, dict):
        sections = ", ".join(Config.model_fields)
        raise UserError(f"{path}: is not a config; it must have the sections {sections}")
    return values


# A few lines of YAML can name a list of lists of lists of ... that no memory could hold as text.
_short = reprlib.Repr()
_short.maxlevel, _short.maxlist, _short.maxdict = 3, 20, 20
_short.maxstring = _short.maxlong = _short.maxother = 100


def _explain(mistakes: ValidationError, values: Mapping[str, Any]) -> tuple[str, str]:
    """The first mistake: its key, and in one line what is wrong and the nearest known key."""
    errors = mistakes.errors()
    first = min(errors, key=lambda error: (error["type"] != "extra_forbidden", -len(error["loc"])))
    location = [part for part in first["loc"] if part in _keys_along(first["loc"], values)]
    key = ".".join(str(part) for part in location)
    if first["type"] == "extra_forbidden":
        known = _known_keys(location[:-1])
        near = difflib.get_close_matches(str(location[-1]), known, 1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
        return key, f"unknown key {key!r}; {hint}"
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


def _keys_along(location: Sequence[Any], values: Any) -> list[Any]:
    """The parts of pydantic's location that are keys in the file: it adds names of types."""
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
