"""The examples of configs/from-a-table.md, run as they stand there, in their order."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.support.real_table import NAMES, magic_table
from tests.support.trainings import HANGS, REPOSITORY, environment, run_quickly

DOCUMENT = REPOSITORY / "configs" / "from-a-table.md"


@pytest.fixture
def place(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the examples start from, in the working directory."""
    magic_table(data_dir, 1500).to_csv(tmp_path / "showers.csv", index=False)
    new = magic_table(data_dir, 300, seed=1)
    new = new.assign(id=range(7000, 7300), remark="no, nothing")
    new[["id", *reversed(NAMES), "remark"]].to_csv(tmp_path / "new.csv", index=False)
    magic_table(data_dir, 400, seed=3).to_csv(tmp_path / "more.csv", index=False)
    messy = magic_table(data_dir, 900, seed=2).assign(id=range(900))
    messy["kind"] = messy["fAlpha"].gt(20).map({True: "wide", False: "narrow"})
    messy.loc[::7, "fWidth"] = None
    messy[["id", "kind", *NAMES, "class"]].to_csv(tmp_path / "messy.csv", index=False)
    messy[:200][["kind", *reversed(NAMES), "class"]].to_csv(tmp_path / "later.csv", index=False)
    messy[200:250].to_csv(tmp_path / "later-2.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(line: str) -> str:
    """Run one command line of the document, in a shell where it needs one."""
    command = re.sub(r"\bbigsvm (?=[a-z])", f"{shlex.quote(sys.executable)} -m bigsvm ", line)
    if line.startswith("bigsvm ") and not re.search(r"[|<>*?$&;~]", line):
        done = run_quickly(shlex.split(command), environment())
    else:
        done = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, timeout=HANGS, env=environment()
        )
    assert done.returncode == 0, f"{line}: {done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout


def test_the_examples_work(place: Path) -> None:
    blocks = re.findall(r"```(sh|python)\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    names: dict = {}
    for language, block in blocks:
        if language == "python":
            exec(block, names)
            continue
        for line in block.replace("\\\n", " ").splitlines():
            run(line.partition(" #")[0])
    assert len(names["labels"]) == 300
    predicted = pd.read_csv(place / "messy-predictions.csv")["label"]
    assert names["answers"].tolist() == predicted.tolist()
    assert len((place / "predictions.csv").read_text().splitlines()) == 301
    assert "probability_g,probability_h" in (place / "probable.csv").read_text()
    assert (place / "runs/early/best.safetensors").exists()
