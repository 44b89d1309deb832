"""Bad input: models, rows for them, runs to evaluate, command lines."""

from pathlib import Path

from bigsvm.preparation.pipeline import prepare
from tests.support import bad_files as bad
from tests.support.bad_case import NAN, Case


def model(words: str, content: bad.Content) -> Case:
    said = ("m.safetensors", *words.split("|"))
    return Case("predict m.safetensors good.zarr out.csv", {"m.safetensors": content}, said)


def renamed_store(path: Path) -> None:
    """A store of the same features in another order."""
    raw = path.with_suffix(".csv")
    raw.write_text(bad.CSV.replace("a,b", "b,a", 1))
    prepare(raw, path)


CASES: dict[str, Case] = {
    # Models, and rows for them
    "model: not there": Case(
        "predict no.safetensors good.csv o.csv", {}, ("no.safetensors", "no such file")
    ),
    "model: a folder without one": Case(
        "predict folder good.csv o.csv", {"folder/x": "1"}, ("folder", "model.safetensors")
    ),
    "model: a header of 10 GB": model("damaged", bad.safetensors_header_of(10 * 2**30)),
    "model: a pickle": model("damaged, or not", bad.PICKLE),
    "model: empty": model("damaged, or not", b""),
    "model: cut": model("damaged", bad.copied("run/model.safetensors", bad.shortened)),
    "model: a flipped bit": model(
        "damaged|checksum", bad.copied("run/model.safetensors", bad.one_bit_flipped)
    ),
    "model: a checkpoint": model(
        "checkpoint",
        bad.copied("run/checkpoints/checkpoint-0000000000.safetensors", lambda path: None),
    ),
    "model: of a later version": model(
        "bigsvm model 99", bad.copied("run/model.safetensors", bad.about(format="bigsvm model 99"))
    ),
    "model: unknown kernel": model(
        "not a valid model", bad.copied("run/model.safetensors", bad.about(kernel={"name": "exec"}))
    ),
    "model: NaN inside": model("finite", bad.copied("run/model.safetensors", bad.coefficient(NAN))),
    "predict: other number of features": Case(
        "predict run/model.safetensors n.csv o.csv",
        {"n.csv": "1,2,3,4,yes\n"},
        ("n.csv", "4 features", "has 2", "training data"),
    ),
    "predict: labels taken for a feature": Case(
        "predict run/model.safetensors n.csv o.csv",
        {"n.csv": "1,2\n3,4\n"},
        ("n.csv", "1 features", "--no-labels"),
    ),
    "predict: columns of other names": Case(
        "predict run/model.safetensors n.csv o.csv",
        {"n.csv": "a,c,class\n1,2,yes\n"},
        ("n.csv", "no column 'b', which the model needs", "it has 'a', 'c', 'class'"),
    ),
    "predict: a store of columns of other names": Case(
        "predict run/model.safetensors b.zarr o.csv",
        {"b.zarr": renamed_store},
        ("b.zarr", "feature 1 is 'b'", "the model has 'a'", "prepared together"),
    ),
    "evaluate: a test set of columns of other names": Case(
        "evaluate run --test b.zarr/train",
        {"b.zarr": renamed_store},
        ("b.zarr", "feature 1 is 'b'", "the model has 'a'", "prepared together"),
    ),
    "predict: other labels": Case(
        "predict run/model.safetensors n.csv o.csv",
        {"n.csv": "1,2,maybe\n"},
        ("n.csv", "'maybe'", "'yes'"),
    ),
    "predict: NaN": Case(
        "predict run/model.safetensors n.csv o.csv",
        {"n.csv": "1,nan,yes\n"},
        ("n.csv", "line 1, column 2"),
    ),
    "predict: no rows": Case(
        "predict run/model.safetensors n.csv o.csv", {"n.csv": "a,b,class\n"}, ("n.csv", "no rows")
    ),
    "predict: no input": Case("predict run/model.safetensors no.csv o.csv", {}, ("no.csv",)),
    "predict: no such group": Case(
        "predict run/model.safetensors good.zarr/tset o.csv", {}, ("good.zarr", "'tset'", "test")
    ),
    "predict: output of no format": Case(
        "predict run/model.safetensors good.csv o.txt", {}, ("o.txt", ".csv")
    ),
    "predict: output exists": Case(
        "predict run/model.safetensors good.csv good.csv", {}, ("good.csv", "--overwrite")
    ),
    "predict: output is the input": Case(
        "predict run/model.safetensors good.csv good.csv --overwrite", {}, ("good.csv", "an input")
    ),
    "predict: no folder": Case(
        "predict run/model.safetensors good.csv no/o.csv", {}, ("no/o.csv", "create it")
    ),
    "predict: option of stores": Case(
        "predict run/model.safetensors good.csv o.csv --x X", {}, ("--x", "good.csv")
    ),
    # Runs to evaluate
    "evaluate: not there": Case("evaluate none", {}, ("none", "no such run directory")),
    "evaluate: no run": Case("evaluate good.zarr", {}, ("good.zarr", "no snapshots")),
    "evaluate: names no test set": Case("evaluate run", {}, ("run/config.yaml", "--test")),
    "evaluate: no such test set": Case("evaluate run --test no.zarr", {}, ("no.zarr", "no such")),
    "evaluate: labels missing": Case(
        "evaluate run --labels a b", {}, ("--labels", "2 given for 1")
    ),
    "evaluate: no picture": Case("evaluate run --picture p.pdf", {}, ("p.pdf", "*.png")),
    "evaluate: the config is broken": Case(
        "evaluate run", {"run/config.yaml": "data: ["}, ("run/config.yaml, line 1", "expected")
    ),
    "evaluate: a damaged snapshot": Case(
        "evaluate run --test good.zarr",
        {"run/snapshots/model-00000007.safetensors": b"half"},
        ("model-00000007.safetensors", "damaged"),
    ),
    # The command line
    "command: a path too long": Case(f"prepare good.csv {'x' * 300}.zarr", {}, ("xxx", "too long")),
    "command: a file for a folder": Case(
        "predict run/model.safetensors good.csv good.csv/o.csv", {}, ("good.csv/o.csv", "no folder")
    ),
    "command: unknown": Case("trian good.yaml", {}, ("trian", "train")),
    "command: no config": Case("train", {}, ("CONFIG.yaml", "--help")),
    "command: unknown option": Case("train good.yaml --rund-dir r", {}, ("--rund-dir", "--help")),
    "command: no value": Case("train good.yaml --set", {}, ("--set", "--help")),
    "command: unknown format": Case(
        "prepare good.csv new.zarr --format xls", {}, ("--format", "xls", "csv")
    ),
}
