"""The config: everything right is taken, everything wrong is one line that names the key."""

import string
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bigsvm.config import TOLERANCE, Config
from bigsvm.config.file import load_config
from bigsvm.core.errors import UserError
from bigsvm.core.stop_rule import StopRule
from tests.support.trainings import REPOSITORY

GOOD = """
data: {train: my.zarr}
model: {C: 2, kernel: {name: rbf, sigma: 3}}
"""
in_this_folder = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def load(text: str | bytes = GOOD, *sets: str) -> Config:
        path = tmp_path / "my.yaml"
        path.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
        return load_config(path, sets)

    return load


@pytest.fixture
def mistake(load: Any) -> Any:
    def mistake(text: str | bytes = GOOD, *sets: str) -> str:
        with pytest.raises(UserError) as caught:
            load(text, *sets)
        message = str(caught.value)
        assert "\n" not in message, message
        assert len(message) < 500, message
        return message

    return mistake


def test_defaults(load: Any) -> None:
    config = load()
    assert config.data.train == "my.zarr"
    assert config.data.test is None
    assert config.model.algorithm == "mfw"
    assert config.model.C == 2.0
    assert config.model.kernel.rate == 1 / 18
    assert config.solver.schedule == "auto"
    assert config.solver.stop_rule == StopRule(relative=TOLERANCE)
    assert config.solver.time_limit is None
    assert config.solver.initial == 0
    assert config.solver.memory_limit == 2 * 2**30
    assert config.run.keep_checkpoints == 2
    assert config.cluster.kind == "none"


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "configs").glob("*.yaml")), ids=lambda p: p.name
)
def test_the_configs_that_come_along(path: Path) -> None:
    config = load_config(path)
    assert config.run.dir == f"runs/{path.stem}"


def test_set_replaces_values_by_their_type(load: Any) -> None:
    config = load(
        GOOD,
        "model.C=1e-3",
        "model.kernel={name: poly, degree: 4, coef0: 1}",
        "solver.max_iterations=40000",
        "solver.initial=random",
        "solver.time_limit=2h",
        "run.dir='123'",
        "data.test=a=b.zarr",
    )
    assert config.model.C == 0.001
    assert config.model.kernel.degree == 4
    assert config.solver.max_iterations == 40000
    assert config.solver.initial == "random"
    assert config.solver.time_limit == 7200
    assert config.run.dir == "123"
    assert config.data.test == "a=b.zarr"


def test_set_goes_into_sections_and_keys_that_are_not_there(load: Any) -> None:
    config = load("data: {train: t.zarr}\nsolver:\n", "model.kernel.gamma=2", "solver.seed=5")
    assert config.model.kernel.gamma == config.model.kernel.rate == 2
    assert config.solver.seed == 5
    assert load(GOOD, "model.C=3", "model.C=4").model.C == 4, "the last one wins"
    assert load(GOOD, "solver.time_limit=").solver.time_limit is None


@pytest.mark.parametrize(
    ("setting", "part"),
    [
        ("solver.tolerance", "section.key=value"),
        ("=5", "section.key=value"),
        ("model.C.x=5", "model.C is not a section"),
        ("solver.tolerence=1", "did you mean 'tolerance'"),
        ("solvr.tolerance=1", "did you mean 'solver'"),
        ("model.kernel.sigmas=1", "did you mean 'sigma'"),
        ("data.prepare.scalling=minmax", "did you mean 'scaling'"),
        ("data.train={path: a.h5, xx: f}", "unknown key 'data.train.xx'; did you mean 'x'"),
        ("model.C=[", "--set model.C"),
        (".=1", "unknown key"),
        ("solver.=1", "unknown key"),
    ],
)
def test_wrong_set(mistake: Any, setting: str, part: str) -> None:
    assert part in mistake(GOOD, setting)


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("model.C=-1", "model.C = -1"),
        ("model.C=0", "model.C = 0"),
        ("model.C=.nan", "model.C = nan"),
        ("model.C=.inf", "model.C = inf"),
        ("model.C=1e999", "model.C = inf"),
        ("model.C=many", "model.C = 'many'"),
        ("model.C=[1, 2]", "model.C = [1, 2]"),
        ("model.C=true", "model.C"),
        ("model.C=", "model.C"),
        ("model.kernel.sigma=0", "model.kernel.sigma = 0"),
        ("model.kernel.sigma=.nan", "model.kernel.sigma"),
        ("model.kernel.gamma=1", "model.kernel: give sigma or gamma, not both"),
        ("model.kernel.name=gauss", "model.kernel.name = 'gauss'"),
        ("model.kernel={}", "model.kernel: the rbf kernel needs sigma or gamma"),
        ("model.kernel={name: linear, sigma: 1}", "model.kernel: the linear kernel has no sigma"),
        ("model.kernel=rbf", "model.kernel"),
        ("model.algorithm=smo", "model.algorithm = 'smo'"),
        ("solver.tolerance=-1e-5", "solver.tolerance"),
        ("solver.max_iterations=0", "solver.max_iterations = 0"),
        ("solver.max_iterations=1.5", "solver.max_iterations = 1.5"),
        ("solver.max_iterations=1e400", "solver.max_iterations"),
        ("solver.max_iterations=true", "solver.max_iterations"),
        ("solver.initial=first", "solver.initial = 'first'"),
        ("solver.memory_limit=much", "solver.memory_limit = 'much'"),
        ("solver.memory_limit=-5", "solver.memory_limit"),
        ("solver.memory_limit=1.2.3GB", "solver.memory_limit"),
        ("solver.memory_limit=0B", "solver.memory_limit"),
        (f"solver.memory_limit={'9' * 400}GB", "solver.memory_limit"),
        ("solver.time_limit=soon", "solver.time_limit = 'soon'"),
        ("solver.time_limit=2h30", "solver.time_limit"),
        ("solver.time_limit=-3", "solver.time_limit"),
        (f"solver.time_limit='{'9' * 400}:00'", "solver.time_limit"),
        ("solver.threads=0", "solver.threads = 0"),
        ("run.keep_checkpoints=0", "run.keep_checkpoints = 0"),
        ("run.dir=5", "run.dir = 5"),
        ("data.train=5", "data.train = 5"),
        ("data.train={x: features}", "data.train.path"),
        ("data.prepare={test_rows: 5, test_fraction: 0.5}", "data.prepare"),
        ("data.prepare.clip=-1", "data.prepare.clip"),
        ("cluster.kind=moon", "cluster.kind = 'moon'"),
        ("model=5", "model"),
        ("data=", "data"),
    ],
)
def test_wrong_values(mistake: Any, setting: str, key: str) -> None:
    message = mistake(GOOD, setting)
    assert key in message
    assert f"--set {setting.partition('=')[0]}: " in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("model: {kernel: {gamma: 1}}", "'data' is missing"),
        ("data: {train: a}", "'model' is missing"),
        ("data: {train: a}\nmodel: {C: 1}", "'model.kernel' is missing"),
        ("data: {}\nmodel: {kernel: {gamma: 1}}", "data: give `source`"),
        (GOOD + "model: {C: 3}", "line 4, column 1: the key 'model' is given twice"),
        ("data: {train: a, train: b}", "the key 'train' is given twice"),
        ("data: {train: [}", "line 1"),
        ("5: 6", "a key must be text"),
        ("", "is not a config"),
        ("- data", "is not a config"),
        ("just text", "is not a config"),
        (b"\xff\xfe\x00", "my.yaml"),
        (b"data: \x00", "my.yaml"),
        ("data: !!python/object/apply:os.system [ls]", "line 1"),
        ("data: &d {train: *d}", "my.yaml"),
        ("data: &d [*d]", "my.yaml"),
        ("[" * 5000, "my.yaml"),
        ("data: !!timestamp soon", "my.yaml"),
        ("data: !!int ''", "my.yaml"),
        ("data: !!bool perhaps", "my.yaml"),
        ("data: {train: a}\nmodel: {kernel: {gamma: 1}, C: 2001-99-99}", "my.yaml"),
    ],
)
def test_wrong_files(mistake: Any, text: str | bytes, part: str) -> None:
    assert part in mistake(text)


def test_a_long_value_is_not_shown_whole(mistake: Any) -> None:
    mistake(GOOD, f"model.C={'x' * 5000}")
    mistake(GOOD, f"model.C={list(range(2000))}")


def test_lists_that_no_memory_could_hold_as_text(mistake: Any) -> None:
    levels = ["&a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"&a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 30)]
    bomb = f"[{', '.join(levels)}]"
    assert "model.C" in mistake(GOOD.replace("C: 2", f"C: {bomb}"))
    assert "data.train" in mistake(GOOD.replace("my.zarr", bomb))
    assert "unknown key 'bomb'" in mistake(f"{GOOD}bomb: {bomb}\n")


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.yaml: cannot be read"):
        load_config(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="cannot be read"):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512MiB", 512 * 2**20),
        ("2GiB", 2 * 2**30),
        ("1.5gib", 3 * 2**29),
        ("800 MB", 800_000_000),
        ("3kb", 3000),
        ("123456", 123456),
        ("1e9", 10**9),
        ("1TB", 10**12),
        ("77B", 77),
    ],
)
def test_sizes(load: Any, text: str, size: int) -> None:
    assert load(GOOD, f"solver.memory_limit={text}").solver.memory_limit == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("2h30m", 9000),
        ("2h 30m", 9000),
        ("1.5h", 5400),
        ("1d", 86400),
        ("01:30:00", 5400),
        ("1:30:00", 5400),
        ("'1:30:00'", 5400),
        ("02:05", 125),
        ("2:05", 125),
        ("0.25", 0.25),
    ],
)
def test_durations(load: Any, text: str, seconds: float) -> None:
    assert load(GOOD, f"solver.time_limit={text}").solver.time_limit == seconds
    assert load(GOOD, f"run.checkpoint_seconds={text}").run.checkpoint_seconds == seconds


words = st.text(string.printable, max_size=12) | st.sampled_from(
    [
        "1e5",
        "1E5",
        "5e-3",
        "01:30",
        "no",
        "null",
        "~",
        "1_000",
        "0x1f",
        "2001-01-01",
        "=",
        "<<",
        "é",
        "\u2028",
    ]
)
numbers = st.floats(allow_nan=False, allow_infinity=False)


def test_absolute_tolerance_takes_the_place_of_the_relative_one(load: Any, tmp_path: Path) -> None:
    solver = load(GOOD, "solver.absolute_tolerance=1e-5").solver
    assert solver.stop_rule == StopRule(absolute=1e-5)
    again = load(GOOD + "solver: {absolute_tolerance: 1e-5}", "solver.absolute_tolerance=null")
    assert again.solver.stop_rule == StopRule(relative=TOLERANCE)
    other = load(
        GOOD + "solver: {absolute_tolerance: 1e-5, tolerance: null}",
        "solver.absolute_tolerance=null",
        "solver.tolerance=0.1",
    )
    assert other.solver.stop_rule == StopRule(relative=0.1)


@pytest.mark.parametrize(
    ("solver", "told"),
    [
        ("{tolerance: 1e-3, absolute_tolerance: 1e-5}", "absolute_tolerance, not both"),
        (f"{{tolerance: {TOLERANCE}, absolute_tolerance: 1e-5}}", "absolute_tolerance, not both"),
        ("{tolerance: null}", "give tolerance or absolute_tolerance"),
        ("{tolerance: 1}", "less than 1"),
        ("{absolute_tolerance: 0}", "greater than 0"),
    ],
)
def test_one_stop_rule_and_one_that_means_something(load: Any, solver: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        load(GOOD + f"solver: {solver}")


@in_this_folder
@example("1e5", 1.0, 1)
@given(words, numbers.filter(lambda c: c > 0), st.integers(0, 10**12))
def test_to_yaml_and_back(tmp_path: Path, word: str, C: float, seed: int) -> None:
    config = Config.model_validate(
        {
            "data": {"source": word, "test": {"path": word, "x": word, "positive": word}},
            "model": {"C": C, "kernel": {"gamma": min(max(C, 1e-30), 1e30)}},
            "solver": {
                "seed": seed,
                "absolute_tolerance": C,
                "time_limit": "2h",
                "memory_limit": "3GiB",
            },
            "run": {"dir": word},
        }
    )
    path = tmp_path / "again.yaml"
    path.write_text(config.to_yaml(), encoding="utf-8")
    assert load_config(path) == config


def loads_or_says_why(path: Path, sets: tuple[str, ...] = ()) -> None:
    try:
        config = load_config(path, sets)
    except UserError as mistake:
        assert str(mistake)
    else:
        assert isinstance(config, Config)


keys = st.sampled_from(
    (
        *("data", "train", "test", "source", "positive", "prepare", "model", "kernel", "sigma"),
        *(
            "name",
            "C",
            "solver",
            "time_limit",
            "memory_limit",
            "initial",
            "tolerance",
            "run",
            "dir",
        ),
    )
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | words | st.dates()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys | words, inner, max_size=4),
)


@in_this_folder
@given(st.dictionaries(keys, values, max_size=5))
def test_any_yaml_loads_or_is_a_user_error(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "any.yaml"
    path.write_text(yaml.dump(value), encoding="utf-8")
    loads_or_says_why(path)


@in_this_folder
@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda t: t.encode("utf-8", "replace")))
def test_any_bytes_load_or_are_a_user_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "any.yaml"
    path.write_bytes(content)
    loads_or_says_why(path)


@in_this_folder
@given(
    st.lists(keys | words, min_size=1, max_size=4).map(".".join),
    words | scalars.map(lambda v: yaml.dump(v).removesuffix("...\n")),
)
def test_any_set_loads_or_is_a_user_error(tmp_path: Path, key: str, text: str) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    loads_or_says_why(path, (f"{key}={text}",))
    loads_or_says_why(path, (key + text,))


@in_this_folder
@given(st.integers(0, len(GOOD) - 1), st.text(max_size=3), st.integers(0, 3))
def test_a_typing_mistake_loads_or_is_a_user_error(
    tmp_path: Path, place: int, typed: str, removed: int
) -> None:
    path = tmp_path / "typed.yaml"
    text = GOOD[:place] + typed + GOOD[place + removed :]
    path.write_bytes(text.encode("utf-8", "replace"))
    loads_or_says_why(path)
