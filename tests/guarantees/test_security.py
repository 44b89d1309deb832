"""What tests/README.md says of security, where no other test shows it.

Hostile files: test_bad_input, test_fuzz, test_checked_tensors. Downloads: test_download.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import matplotlib
import pytest
import yaml

from bigsvm.core import yaml_dialect
from bigsvm.preparation.sources import SOURCES
from tests.support.trainings import REPOSITORY

MODULES = sorted((REPOSITORY / "bigsvm").rglob("*.py"))
# They run code that is in the data, or hand text to a shell.
MODULES_THAT_RUN_DATA = {
    *("pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "jsonpickle"),
    *("imp", "code", "pty"),
}
CALLS_THAT_RUN_DATA = {
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen", "yaml.unsafe_load"),
    *("yaml.full_load", "yaml.load_all", "runpy.run_path"),
}
# They write to paths that an archive names.
EXTRACTION = {"extract", "extractall", "unpack_archive"}


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text(), str(path)))


def name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def mistakes(path: Path) -> Iterator[str]:
    """What in a source file could run data as code."""
    for node in nodes(path):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            for name in [*names, getattr(node, "module", None) or ""]:
                if name.partition(".")[0] in MODULES_THAT_RUN_DATA:
                    yield f"line {node.lineno}: import of {name}"
        elif isinstance(node, ast.Call):
            called = name_of(node.func)
            if called in CALLS_THAT_RUN_DATA or called.rpartition(".")[2] in EXTRACTION:
                yield f"line {node.lineno}: call of {called}"
            if called == "yaml.load" and name_of(node.args[1]) != "_Loader":
                yield f"line {node.lineno}: yaml.load without the safe loader"
            for keyword in node.keywords:
                given = isinstance(keyword.value, ast.Constant) and bool(keyword.value.value)
                if keyword.arg in ("allow_pickle", "shell") and given:
                    yield f"line {node.lineno}: {keyword.arg}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_nothing_runs_data_as_code(path: Path) -> None:
    assert list(mistakes(path)) == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from joblib import load",
        "eval(x)",
        "import yaml\nyaml.load(x, yaml.Loader)",
        "numpy.load(x, allow_pickle=True)",
        "archive.extractall(folder)",
        "subprocess.run(x, shell=True)",
    ],
)
def test_the_check_would_find_it(text: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(text)
    assert list(mistakes(tmp_path / "wrong.py"))


def test_the_yaml_loader_is_a_safe_one() -> None:
    assert issubclass(yaml_dialect._Loader, yaml.SafeLoader)


def test_all_sources_are_fetched_over_https() -> None:
    addresses = [file.url for source in SOURCES.values() for file in source.files]
    assert len(addresses) >= len(SOURCES)
    assert {urlsplit(address).scheme for address in addresses} == {"https"}


def test_files_follow_the_umask_and_stay_where_they_belong(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "data: {source: synthetic, train: s.zarr, prepare: {rows: 200, features: 2, test_rows: 50}}"
        "\nmodel: {kernel: {sigma: 1}}\nsolver: {max_iterations: 50}\nrun: {snapshot_every: 20}\n"
    )
    home = tmp_path / "home"
    home.mkdir()
    environment = os.environ | dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), str(home))
    # What matplotlib keeps for itself takes long to make. Python and numba keep theirs in the code.
    environment |= {"MPLCONFIGDIR": matplotlib.get_cachedir()}
    environment |= {"PYTHONPATH": str(REPOSITORY), "BIGSVM_CACHE": str(home / "cache")}
    model = "run/model.safetensors"
    commands = (
        *(["train", "c.yaml", "--run-dir", "run"], ["train", "c.yaml", "--run-dir", "run"]),
        *(["evaluate", "run"], ["predict", model, "s.zarr", "p.csv"], ["export", model, "m.onnx"]),
        ["inspect", "run"],
    )
    for command in commands:
        subprocess.run(
            [sys.executable, "-m", f"bigsvm.{command[0]}", *command[1:]],
            cwd=tmp_path,
            env=environment,
            umask=0o027,
            check=True,
            capture_output=True,
        )
    written = {"run", "s.zarr", "p.csv", "m.onnx"}
    made = [path for name in written for path in ((tmp_path / name), *(tmp_path / name).rglob("*"))]
    assert len(made) > 15
    for path in made:
        expected = 0o750 if path.is_dir() else 0o640
        assert path.stat().st_mode & 0o777 == expected, path
    assert {path.name for path in tmp_path.iterdir()} == {"c.yaml", "home", *written}
    assert list(home.rglob("*")) == []
