"""scripts/reproduce.py: its statistics against scipy, and the command itself on small problems."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from scripts.paper import by_columns
from scripts.paper.initialization import overlaps, pooled
from scripts.paper.partitions import Rows, partition
from scripts.paper.published import cells
from scripts.paper.report import Cell, difference
from scripts.paper.significance import geometric_mean_percent, ranks, wilcoxon
from scripts.paper.tuned import first_without_error, trained_each, validate
from tests.support.trainings import HANGS, REPOSITORY, Train, environment, final

SCRIPT = REPOSITORY / "scripts" / "reproduce.py"


@pytest.mark.parametrize("seed", range(8))
def test_signed_rank_test_is_scipys(seed: int) -> None:
    random = np.random.default_rng(seed)
    first, second = random.normal(0.5, size=10), random.normal(size=10)
    assert wilcoxon(first, second) == pytest.approx(stats.wilcoxon(first, second).pvalue)


@pytest.mark.parametrize("seed", range(8))
def test_signed_rank_test_with_equal_differences_is_scipys(seed: int) -> None:
    random = np.random.default_rng(seed)
    first, second = random.integers(0, 4, size=(2, 10))
    exact = stats.PermutationMethod(n_resamples=10**6)  # more than there are: all of them
    differences = (first - second)[first != second]
    expected = stats.wilcoxon(differences, method=exact).pvalue
    assert wilcoxon(first, second) == pytest.approx(expected)


def test_models_without_difference_have_the_same_rank() -> None:
    low, high = list(range(10)), list(range(100, 110))
    assert wilcoxon(low, low) == 1
    assert ranks({"a": low, "b": high, "c": low}, more_is_better=True) == {"b": 1, "a": 3, "c": 3}
    middle = [value + 50 for value in low]
    order = ranks({"a": low, "b": high, "c": middle}, more_is_better=False)
    assert order == {"a": 1, "c": 2, "b": 3}


def test_geometric_mean_is_scipys() -> None:
    values, reference = np.random.default_rng(0).uniform(1, 9, size=(2, 18))
    expected = 100 * stats.gmean(values / reference)
    assert geometric_mean_percent(values, reference) == pytest.approx(expected)


def test_overlap_is_of_every_pair() -> None:
    sets = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0]], bool)
    assert sorted(overlaps(sets)) == pytest.approx([100 / 3, 100 / 3, 100])


def test_pooled_moments_are_those_of_all_values() -> None:
    parts = [np.arange(5.0), np.arange(20.0)]
    cell = pooled([[part.mean(), np.square(part).mean(), len(part)] for part in parts])
    together = np.concatenate(parts)
    assert (cell.mean, cell.std) == pytest.approx((together.mean(), together.std()))


def test_only_differences_beyond_chance_are_marked() -> None:
    assert difference(Cell(85, 4), Cell(86, 4)) == ""
    assert difference(Cell(85, 4), Cell(95, 4)) == "more"
    assert difference(Cell(8_000), Cell(6_000)) == "fewer"


def test_normalized_C_is_C_times_features_over_rows(train: Train, tmp_path: Path) -> None:
    normalized = ["model.C=1000", "model.C_scale=normalized"]
    train(tmp_path / "normalized", "solver.max_iterations=200", *normalized)
    train(tmp_path / "plain", "solver.max_iterations=200", f"model.C={1000 * 8 / 3000}")
    assert final(tmp_path / "normalized") == final(tmp_path / "plain")


def test_first_point_without_error_is_what_the_grid_chooses(data_dir: Path) -> None:
    rows, _ = partition("iris", 0)
    sigmas, C = (0.25, 1.0), (1e-2, 1.0, 1e2)
    best = validate(rows, sigmas, C).best("fw")
    assert best["validated"] == 1
    assert first_without_error(rows, sigmas, C, "fw") == best


def test_models_on_a_whole_matrix_are_those_by_columns() -> None:
    """Which of the two is taken depends on the memory of the machine."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1400, 4)).astype(np.float32)
    y = np.where(x[:, 0] + rng.normal(scale=0.5, size=1400) > 0, 1, -1).astype(np.int8)
    train, test = Rows(x[:1200], y[:1200]), Rows(x[1200:], y[1200:])
    for sigma in (None, 1.0):
        found = trained_each(train, test, [0.1, 100.0], sigma, ["fw", "mfw"])
        assert found == {
            algorithm: [by_columns.tested(train, test, C, sigma, algorithm) for C in (0.1, 100.0)]
            for algorithm in ("fw", "mfw")
        }


def test_partitions_are_the_papers(data_dir: Path) -> None:
    parts = [partition("mushrooms", number) for number in range(10)]
    assert sorted(len(train) for train, _ in parts) == [7311] * 4 + [7312] * 6
    assert sum(len(test) for _, test in parts) == 8124


def reproduce(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True, text=True, env=environment(), timeout=HANGS,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(scope="module")
def out(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("paper") / "out"
    names = ("datasets", "fixed-C", "exhaustive", "initialization")
    reproduce(*names, "--quick", "--out", str(out))
    return out


def lines(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_report_needs_no_other_file(out: Path) -> None:
    page = (out / "report.html").read_text()
    assert page.count("<table") >= 3
    assert "http" not in page.replace("https://archive.ics.uci.edu", "")


def test_every_cell_of_the_paper_is_beside_ours(out: Path) -> None:
    rows = lines(out / "exhaustive.csv")
    assert len(rows) == 3 * 2 * 3 * 3  # of a quick run: sets, kernels, models, metrics
    for row in rows:
        key = (row["dataset"], row["kernel"], row["model"], row["metric"])
        assert float(row["paper"]) == cells()["exhaustive", *key].mean
        assert float(row["ours"]) > 0
    assert len(lines(out / "initialization.csv")) == 3 * 4


def test_same_command_does_only_what_is_missing(out: Path) -> None:
    units = sorted((out / "work" / "quick" / "initialization").glob("*.json"))
    before = {unit: unit.stat().st_mtime_ns for unit in units}
    units[0].unlink()
    units[1].write_text(units[1].read_text().replace('"most_starts": 20', '"most_starts": 19'))
    reproduce("initialization", "--quick", "--out", str(out))
    changed = [unit for unit in units if unit.stat().st_mtime_ns != before[unit]]
    assert changed == units[:2]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["exhaustiv"], "'exhaustiv' is no table or figure"),
        (["--processes", "0"], "'0' is not a number above 0"),
        (["--miniboone", "/nonexistent"], "--miniboone /nonexistent: there is no such file"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments: list[str], told: str, tmp_path: Path) -> None:
    done = reproduce(*arguments, "--out", str(tmp_path / "out"), code=2)
    assert told in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
