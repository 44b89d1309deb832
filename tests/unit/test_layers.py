"""bigsvm/README.md describes the packages as they are."""

import ast
import re
import sys
import tomllib

from tests.support.trainings import REPOSITORY

README = (REPOSITORY / "bigsvm" / "README.md").read_text()


def test_the_diagram_is_the_contract() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    (contract,) = settings["tool"]["importlinter"]["contracts"]
    diagram = README.split("```")[1].strip().splitlines()
    assert [re.split(r"  +", line)[0] for line in diagram] == contract["layers"]
    assert contract["exhaustive"]


def test_every_file_named_exists() -> None:
    named = re.findall(r"`(\w+(?:/\w+)*\.py)`", README)
    assert len(named) > 20
    assert [name for name in named if not (REPOSITORY / "bigsvm" / name).is_file()] == []


def test_what_is_imported_first_is_a_declared_dependency() -> None:
    """`pip install .` is enough for every command; only the estimator needs scikit-learn."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[<>=\[ ]", line)[0] for line in project["dependencies"]}
    modules = declared - {"pyyaml"} | {"yaml", "llvmlite", "bigsvm"} | set(sys.stdlib_module_names)
    for path in sorted((REPOSITORY / "bigsvm").rglob("*.py")):
        allowed = modules | ({"sklearn", "scipy"} if path.parent.name == "estimator" else set())
        for node in ast.parse(path.read_text()).body:
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] in allowed, (path, name)
