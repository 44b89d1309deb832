"""The completion of `bigsvm` in shells, each asked as it asks when a key is pressed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from bigsvm import cli
from bigsvm.completion import config_keys, main


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scripts")
    with pytest.MonkeyPatch.context() as patch:
        for shell in ("bash", "zsh", "fish"):
            with (folder / shell).open("w") as file:
                patch.setattr("sys.stdout", file)
                assert main([shell]) == 0
    return folder


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    quoted = " ".join(f"'{word}'" for word in words)
    ask = (
        f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _bigsvm; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, cwd=script.parent)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["bigsvm", "ev"], ["evaluate"]),
        (["bigsvm", "help", "pred"], ["predict"]),
        (["bigsvm", "report", "--fo"], ["--follow"]),
        (["bigsvm", "prepare", "--scaling", "st"], ["standard"]),
        (["bigsvm", "train", "c.yaml", "--set", "solver.max"], ["solver.max_iterations="]),
        (["bigsvm", "train", "c.yaml", "--set", "model.kernel.si"], ["model.kernel.sigma="]),
        (["bigsvm", "completion", "z"], ["zsh"]),
        (["bigsvm", "inspect", "fi"], ["fish"]),  # a file
    ],
)
def test_bash(scripts: Path, words: list[str], offered: list[str]) -> None:
    assert completed(scripts / "bash", *words) == offered


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh(scripts: Path) -> None:
    ask = f"autoload -Uz compinit && compinit -D; source {scripts / 'zsh'} && print $_comps[bigsvm]"
    done = subprocess.run(["zsh", "-f", "-c", ask], capture_output=True, text=True)
    assert "_bigsvm" in done.stdout and done.stderr == ""


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish(scripts: Path) -> None:
    for line, offered in (("ev", "evaluate"), ("report --fo", "--follow")):
        ask = f"source {scripts / 'fish'}; complete -C 'bigsvm {line}'"
        done = subprocess.run(["fish", "--no-config", "-c", ask], capture_output=True, text=True)
        assert done.stdout.split("\t")[0] == offered and done.stderr == ""


def test_every_key_of_a_config_is_offered() -> None:
    keys = config_keys()
    for key in ("data.train", "model.C", "run.log_to", "cluster.kind", "tune.folds"):
        assert key in keys
    assert "model" not in keys


def test_an_unknown_shell(capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["completion", "tcsh"]) == 2
    assert "tcsh" in capsys.readouterr().err
