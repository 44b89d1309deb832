"""bigsvm/README.md describes the packages as they are."""

import re
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
