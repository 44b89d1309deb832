"""The examples of the documents, run as they stand there; and what the documents refer to."""

import re
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bigsvm import load_model
from bigsvm.config import Config, TuneOptions
from bigsvm.config.file import load_config
from tests.support.trainings import REPOSITORY, environment, run_quickly

README = "README.md"
CONFIGS, MODELS = "configs/README.md", "bigsvm/models/README.md"
DOCUMENTS = [
    path
    for folder in (".", "bigsvm", "configs", "scripts", "tests")
    for path in (REPOSITORY.glob("*.md") if folder == "." else (REPOSITORY / folder).rglob("*.md"))
    if path.name != "CHANGELOG.md"  # which also names what is gone
]


def blocks(text: str, language: str) -> list[str]:
    """The blocks of code in some text."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def examples(document: str, heading: str, language: str) -> list[str]:
    """The blocks of code of one section."""
    text = (REPOSITORY / document).read_text()
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = blocks(section, language)
    assert found, f"no {language} example under {heading}"
    return found


def run_commands(block: str, place: Path, **variables: str) -> str:
    """Run each `python ...` line; what pip installs is there already."""
    said = ""
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "pip":
            continue
        assert words[0] == "python", line
        done = run_quickly([sys.executable, *words[1:]], environment() | variables, place)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        said += done.stdout
    return said


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs/quickstart in it, cut short."""
    place = tmp_path_factory.mktemp("readme")
    config = REPOSITORY / "configs" / "quickstart.yaml"
    short = ["prepare.rows=2000", "prepare.test_rows=500", "train=q.zarr"]
    options = " ".join(f"--set data.{setting}" for setting in short)
    run_commands(
        f"python -m bigsvm.train {config} {options} --set solver.max_iterations=300", place
    )
    return place


def test_models_from_python_and_elsewhere(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    features = load_model("runs/quickstart/model.safetensors").n_features
    (code,) = examples(README, "Models, from Python and elsewhere", "python")
    exec(code, {"X": np.zeros((3, features))})
    (commands,) = examples(README, "Models, from Python and elsewhere", "sh")
    assert "max_iterations" in run_commands(commands, place)


def test_a_report(place: Path) -> None:
    shutil.copytree(place / "runs" / "quickstart", place / "runs" / "other", dirs_exist_ok=True)
    (commands,) = examples("bigsvm/inspection/README.md", "A report", "sh")
    assert run_commands(commands, place).splitlines() == [
        "written: runs/quickstart/report.html",
        "written: both.html",
    ]


def test_messages_and_completion(place: Path) -> None:
    (commands,) = examples("bigsvm/inspection/README.md", "Messages and completion", "sh")
    train, completion = commands.splitlines()
    short = "--set data.train=q.zarr --set data.prepare={} --set data.source=null"
    shutil.copytree(REPOSITORY / "configs", place / "configs", dirs_exist_ok=True)
    run_commands(f"{train} {short} --set solver.max_iterations=300", place)
    assert "INFO max_iterations after 300 iterations" in (place / "train.log").read_text()
    printed, file = completion.partition("#")[0].split(">")
    assert file.strip().endswith(".bash")
    assert "complete -F _bigsvm bigsvm" in run_commands(printed, place)


def test_tensorboard_and_mlflow(place: Path) -> None:
    (commands,) = examples("bigsvm/inspection/README.md", "TensorBoard and MLflow", "sh")
    short = "--set data.train=q.zarr --set data.prepare={} --set data.source=null"
    shutil.copytree(REPOSITORY / "configs", place / "configs", dirs_exist_ok=True)
    run_commands(commands.rstrip() + f" {short} --set solver.max_iterations=300", place)
    assert list((place / "runs/logged/tensorboard").glob("events.*"))
    assert (place / "runs/logged/mlruns").is_dir()


def test_export(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").symlink_to(place / "runs")
    monkeypatch.chdir(tmp_path)
    (commands,) = examples(MODELS, "Export", "sh")
    run_commands(commands, tmp_path)
    (code,) = examples(MODELS, "Export", "python")
    names: dict = {}
    exec(code, names)
    assert names["label"].shape == names["decision"].shape == (3,)


def test_as_a_scikit_learn_classifier(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(place)
    (place / "mine.zarr").symlink_to("q.zarr")
    (in_memory,) = examples(README, "As a scikit-learn classifier", "python")
    exec(in_memory, {})
    assert 0.94 < float(capsys.readouterr().out) <= 1
    document = (REPOSITORY / "bigsvm/estimator/README.md").read_text()
    stopped, weighted, probable, early, streamed = blocks(document, "python")
    names: dict = {}
    exec(stopped, names)
    assert "'callback'" in capsys.readouterr().out
    assert names["svc"].status_ == ["converged"] * 10
    exec(weighted, names)
    exec(probable, names)
    assert "0.9" in capsys.readouterr().out
    exec(early, names)
    assert "balanced_accuracy" in capsys.readouterr().out
    exec(streamed, names)
    assert 0.7 < float(capsys.readouterr().out) <= 1
    command = "python -m bigsvm.predict mine.safetensors mine.zarr mine.csv"
    assert "accuracy" in run_commands(command, place)


def test_prediction_at_scale(place: Path) -> None:
    (commands,) = examples(MODELS, "Prediction at scale", "sh")
    assert "30,000 rows" in run_commands(commands, place)
    one, other = (place / f"answers.{format}" for format in ("csv", "parquet"))
    assert pd.read_csv(one).equals(pd.read_parquet(other))


def test_your_own_data(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.normal(size=(400, 6)), columns=list("abcdef"))
    table.head(20).to_csv(tmp_path / "new.csv", index=False)
    table["class"] = np.where(table["a"] + table["b"] ** 2 > 1, "high", "low")
    table.to_csv(tmp_path / "mine.csv.gz", index=False)
    shutil.copytree(REPOSITORY / "configs", tmp_path / "configs")
    (commands,) = examples(README, "Your own data", "sh")
    assert "converged" in run_commands(commands, tmp_path)
    assert set(pd.read_csv(tmp_path / "answers.csv")["label"]) == {"high", "low"}


def test_more_than_two_classes(place: Path) -> None:
    shutil.copytree(REPOSITORY / "configs", place / "configs", dirs_exist_ok=True)
    (commands,) = examples(CONFIGS, "More than two classes", "sh")
    said = run_commands(commands, place)
    assert "converged" in said and "10 classes" in said
    assert "precision" in said
    assert (place / "runs" / "digits" / "confusion.csv").exists()


def test_weights(place: Path) -> None:
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.normal(size=(300, 3)), columns=["a", "b", "importance"])
    table["importance"] = np.arange(300) % 3
    table["class"] = np.where(table["a"] * table["b"] > 0, "like", "unlike")
    table.to_csv(place / "mine.csv", index=False)
    shutil.copytree(REPOSITORY / "configs", place / "configs", dirs_exist_ok=True)
    (commands,) = examples(CONFIGS, "Weights", "sh")
    said = run_commands(commands, place)
    assert "converged" in said and "smallest 0, largest 2" in said
    model = load_model(place / "runs" / "weighted" / "model.safetensors")
    assert model.intercept != 0 and model.n_features == 2


def test_tuning(data_dir: Path, tmp_path: Path) -> None:
    (commands,) = examples(CONFIGS, "Tuning", "sh")
    grid = (REPOSITORY / "configs" / "heart.yaml").read_text()
    assert "count: 11" in grid
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "heart.yaml").write_text(grid.replace("count: 11", "count: 3"))
    said = run_commands(commands, tmp_path, BIGSVM_CACHE=str(tmp_path / "cache"))
    assert "fw, the best 9 of 9:" in said
    assert "converged after" in said


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_what_a_document_refers_to_is_there(document: Path) -> None:
    text = document.read_text()
    for target in re.findall(r'\]\(([^)\s]+)\)|src="([^"]+)"', text):
        path, _, anchor = "".join(target).partition("#")
        if "://" in path:
            continue
        linked = document.parent / path if path else document
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
            slugs = [
                re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings
            ]
            assert anchor in slugs, target
    for path in re.findall(r"`([\w.-]+/[\w./-]+\.(?:py|md|yaml|sh|sbatch))`", text):
        assert (REPOSITORY / path).exists() or (document.parent / path).exists(), path
    for name in re.findall(r"`(\w+\.py)`", text):
        assert list(document.parent.rglob(name)), name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_command_can_be_called_as_it_stands(document: Path) -> None:
    """Those of clusters and long runs are not run, but modules, configs and keys are right."""
    text = document.read_text()
    lines = [line for block in blocks(text, "sh") for line in block.splitlines()]
    lines += re.findall(r"^    (python -m .*)$", text, re.MULTILINE)
    lines += re.findall(r"`(python -m [^`]*)`", text)
    for line in lines:
        words = shlex.split(line, comments=True)
        if words[:2] != ["python", "-m"] or words[2] == "pytest":
            continue
        assert find_spec(words[2]) is not None, line
        settings = [words[k + 1] for k, word in enumerate(words) if word == "--set"]
        for config in [word for word in words if re.fullmatch(r"configs/[\w-]+\.yaml", word)]:
            load_config(REPOSITORY / config, settings)


def test_every_key_of_a_config_is_described() -> None:
    text = (REPOSITORY / CONFIGS).read_text()
    table = text.split("\n## Every key\n")[1].split("\n## ")[0]
    for section in ("data", "model", "solver", "cluster", "run"):
        described = " ".join(row for row in table.splitlines() if row.startswith(f"| `{section}."))
        for key in Config.model_fields[section].annotation.model_fields:
            assert f"`{key}`" in described or f"`{section}.{key}`" in described, f"{section}.{key}"
    tune = text.split("\n## Tuning\n")[1]
    for key in TuneOptions.model_fields:
        assert f"`tune.{key}`" in tune, key
