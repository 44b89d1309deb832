"""Bad input: configs, and what `--set` puts in them."""

from tests.support import bad_files as bad
from tests.support.bad_case import Case, config


def config_text(words: str, text: str | bytes) -> Case:
    return Case("train c.yaml", {"c.yaml": text}, ("c.yaml", *words.split("|")))


def setting(words: str, text: str) -> Case:
    return Case(f"train good.yaml --set {text}", {}, tuple(words.split("|")))


CASES: dict[str, Case] = {
    # The config
    "config: not there": Case("train none.yaml", {}, ("none.yaml", "cannot be read")),
    "config: a folder": Case("train good.zarr", {}, ("good.zarr", "cannot be read")),
    "config: without an end": Case("train /dev/zero", {}, ("/dev/zero", "128 KiB")),
    "config: 8 MB": config_text("128 KiB", "data: [" + "1, " * 2_700_000 + "1]\n"),
    "config: of a run, 8 MB": Case(
        "evaluate run",
        {"run/config.yaml": "data: [" + "1, " * 2_700_000 + "1]\n"},
        ("run/config.yaml", "128 KiB"),
    ),
    "config: empty": config_text("is not a config|data, model", ""),
    "config: a list": config_text("is not a config", "- data\n- model\n"),
    "config: binary": config_text("is not YAML", b"\x89PNG\r\n\x1a\n\0\0\0\xff"),
    "config: a tab": config_text("line 2, column 1|\\t", "data:\n\ttrain: good.zarr\n"),
    "config: a key twice": config_text(
        "line 5|'model' is given twice", bad.config("\nmodel: {C: 2}\n")
    ),
    "config: unknown section": config("unknown key 'solvr'|'solver'", solvr="{}"),
    "config: unknown key": config(
        "unknown key 'solver.tolerence'|'tolerance'", solver="{tolerence: 1e-3}"
    ),
    "config: no data": config_text("'data' is missing", "model: {kernel: {gamma: 1}}\n"),
    "config: nothing to train on": config("data: give `source`", data="{}"),
    "config: code": config_text("line 1", "data: !!python/object/apply:os.system [touch pwned]\n"),
    "config: C negative": config(
        "model.C = -1|greater than 0", model="{C: -1, kernel: {gamma: 1}}"
    ),
    "config: C text": config("model.C = 'big'|number", model="{C: big, kernel: {gamma: 1}}"),
    "config: C nan": config("model.C = nan|finite", model="{C: .nan, kernel: {gamma: 1}}"),
    "config: C true": config("model.C|true and false", model="{C: yes, kernel: {gamma: 1}}"),
    "config: sigma 0": config(
        "model.kernel.sigma = 0|greater than 0", model="{kernel: {sigma: 0}}"
    ),
    "config: sigma far too small": config(
        "model.kernel|sigma = 1e-200|too far", model="{kernel: {sigma: 1e-200}}"
    ),
    "config: sigma too small": config(
        "model.kernel|sigma = 1e-160|too far", model="{kernel: {sigma: 1e-160}}"
    ),
    "config: sigma far too large": config(
        "model.kernel|sigma = 1e+200|too far", model="{kernel: {sigma: 1e200}}"
    ),
    "config: gamma too large": config(
        "model.kernel|gamma = 1e+99|too far", model="{kernel: {gamma: 1e99}}"
    ),
    "config: a sigma of the grid too small": Case(
        "tune c.yaml",
        {"c.yaml": bad.config(tune="{sigma: [1, 1e-200]}")},
        ("c.yaml", "tune.sigma = 1e-200", "too far"),
    ),
    "config: sigma and gamma": config(
        "model.kernel|not both", model="{kernel: {sigma: 1, gamma: 1}}"
    ),
    "config: no width": config("model.kernel|needs sigma or gamma", model="{kernel: {name: rbf}}"),
    "config: unknown kernel": config(
        "model.kernel.name = 'rbff'|'rbf'", model="{kernel: {name: rbff, sigma: 1}}"
    ),
    "config: degree 0": config(
        "model.kernel.degree = 0|greater", model="{kernel: {name: poly, degree: 0}}"
    ),
    "config: gamma of a linear kernel": config(
        "model.kernel: the linear kernel has no gamma", model="{kernel: {name: linear, gamma: 2}}"
    ),
    "config: coef0 of a linear kernel": config(
        "model.kernel: the linear kernel has no coef0", model="{kernel: {name: linear, coef0: 2}}"
    ),
    "config: degree of an rbf kernel": config(
        "model.kernel: the rbf kernel has no degree", model="{kernel: {sigma: 1, degree: 2}}"
    ),
    "config: prepare without a source": config(
        "data: `prepare` applies to a `source`",
        data="{train: good.zarr, prepare: {scaling: standard}}",
    ),
    "config: an empty prepare without a source": Case(
        "train c.yaml --run-dir r",
        {"c.yaml": bad.config(data="{train: good.zarr, prepare: {}}")},
    ),
    "config: no algorithm": config(
        "model.algorithm = 'smo'|'mfw'", model="{algorithm: smo, kernel: {gamma: 1}}"
    ),
    "config: tolerance 0": config("solver.tolerance = 0|greater than 0", solver="{tolerance: 0}"),
    "config: tolerance of a whole margin": config(
        "solver.tolerance = 1|less than 1", solver="{tolerance: 1}"
    ),
    "config: two stop rules": config(
        "solver|tolerance (relative to the margin) or absolute_tolerance, not both",
        solver="{tolerance: 0.01, absolute_tolerance: 1e-5}",
    ),
    "config: half an iteration": config(
        "solver.max_iterations = 1.5|integer", solver="{max_iterations: 1.5}"
    ),
    "config: no iterations": config("solver.max_iterations = 0", solver="{max_iterations: 0}"),
    "config: time in words": config(
        "solver.time_limit = 'soon'|2h30m", solver="{time_limit: soon}"
    ),
    "config: memory in words": config(
        "solver.memory_limit = 'lots'|512MiB", solver="{memory_limit: lots}"
    ),
    "config: memory with two points": config(
        "solver.memory_limit = '1.2.3GB'|512MiB", solver="{memory_limit: 1.2.3GB}"
    ),
    "config: time with two points": config(
        "solver.time_limit = '1.2.3s'|2h30m", solver="{time_limit: 1.2.3s}"
    ),
    "config: too little memory": Case(
        "train c.yaml",
        {"c.yaml": bad.config(solver="{memory_limit: 1MiB}")},
        ("solver.memory_limit = 1 MiB", "at least", "interpreter", " 1 MiB a hot set"),
    ),
    "config: no threads": config("solver.threads = 0", solver="{threads: 0}"),
    "config: seed below 0": config("solver.seed = -1", solver="{seed: -1}"),
    "config: initial too far": Case(
        "train c.yaml",
        {"c.yaml": bad.config(solver="{initial: 999}")},
        ("solver.initial = 999", "rows 0 to 29"),
    ),
    "config: no snapshots": config("run.snapshot_every = 0", run="{snapshot_every: 0}"),
    "config: no checkpoint": config("run.keep_checkpoints = 0", run="{keep_checkpoints: 0}"),
    "config: unknown cluster": config("cluster.kind = 'moon'", cluster="{kind: moon}"),
    "config: a stranger's cluster": Case(
        "train c.yaml",
        {"c.yaml": bad.config(cluster="{kind: address, address: 'tcp://8.8.8.8:8786'}")},
        ("tcp://8.8.8.8:8786", "could run code here", "--set cluster.address="),
    ),
    "config: a section is a number": config("solver", solver="5"),
    "config: prepare option": config(
        "unknown key 'data.prepare.scalling'|'scaling'",
        data="{source: good.csv, prepare: {scalling: minmax}}",
    ),
    "config: a zero byte": config("run.dir|zero byte", run=r'{dir: "a\0b"}'),
    "config: numbers as text": Case(
        "train c.yaml --run-dir r",
        {"c.yaml": bad.config(solver="{max_iterations: '20', tolerance: '1e-3'}")},
    ),
    "config: Windows line ends": Case(
        "train c.yaml --run-dir r", {"c.yaml": bad.config().replace("\n", "\r\n").encode()}
    ),
    "config: byte order mark": Case(
        "train c.yaml --run-dir r", {"c.yaml": b"\xef\xbb\xbf" + bad.config().encode()}
    ),
    # --set
    "set: no value": setting("--set model.C|section.key=value", "model.C"),
    "set: wrong value": setting("--set model.C: model.C = -1|greater than 0", "model.C=-1"),
    "set: unknown key": setting("--set solver.tolerence: |'tolerance'", "solver.tolerence=1"),
    "set: not YAML": setting("--set model.C", "model.C=["),
    "set: into a number": setting("--set model.C.x=1|is not a section", "model.C.x=1"),
    "set: unknown source": setting(
        "nosuch|no such file|miniboone", "'data={source: nosuch, prepare: {rows: 5}}'"
    ),
    "set: no such store": setting("no.zarr|no such store|prepare", "data.train=no.zarr"),
}
