"""`BigSVC` inside scikit-learn, on real sets."""

import os
import pickle
import re
import signal
import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_iris, load_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import RFE
from sklearn.metrics import brier_score_loss, roc_auc_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from bigsvm import BigSVC
from bigsvm.core.errors import UserError
from bigsvm.estimator import iterates, rows
from bigsvm.export import export
from bigsvm.models.model import load_model
from bigsvm.training.validation import held_out_rows
from tests.support.trainings import HANGS, environment

FOLDS = StratifiedKFold(5, shuffle=True, random_state=0)


@pytest.fixture(scope="module")
def heart(data_dir: Path) -> tuple[np.ndarray, np.ndarray]:
    X, y = load_svmlight_file(str(data_dir / "heart_scale"))
    return X.toarray(), y


@pytest.fixture(scope="module")
def sonar(data_dir: Path) -> tuple[pd.DataFrame, pd.Series]:
    table = pd.read_csv(data_dir / "sonar.all-data", header=None)
    return table.drop(columns=60).rename(columns="band {}".format), table[60]


@pytest.fixture(scope="module")
def magic(data_dir: Path) -> tuple[np.ndarray, np.ndarray]:
    """Enough rows for the sparser algorithm to be chosen."""
    table = pd.read_csv(data_dir / "magic04.data", header=None)[::9]
    return StandardScaler().fit_transform(table[list(range(10))]), table[10].to_numpy()


@parametrize_with_checks(
    [
        BigSVC(),
        BigSVC(schedule="block", algorithm="fw", random_state=0),
        BigSVC(calibration="sigmoid"),
    ],
    # A row written twice may be in two folds, one of weight 2 is in one.
    expected_failed_checks=lambda estimator: {
        f"check_sample_weight_equivalence_on_{kind}_data": "folds differ, as in scikit-learn's own"
        for kind in ("dense", "sparse")
        if estimator.calibration is not None
    },
)
def test_scikit_learns_own_checks(estimator: BigSVC, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_probabilities_by_folds(magic: tuple, method: Any, tmp_path: Path) -> None:
    X, y = magic
    rows, others = slice(None, None, 2), slice(1, None, 2)
    svc = BigSVC(C=10, calibration=method).fit(X[rows], y[rows])
    p = svc.predict_proba(X[others])[:, 1]
    plain = BigSVC(C=10).fit(X[rows], y[rows])
    np.testing.assert_array_equal(svc.dual_coef_, plain.dual_coef_)
    theirs = CalibratedClassifierCV(BigSVC(C=10), method=method, ensemble=False, cv=5)
    expected = theirs.fit(X[rows], y[rows]).predict_proba(X[others])[:, 1]
    ours, sklearns = (brier_score_loss(y[others], q, pos_label="h") for q in (p, expected))
    assert abs(ours - sklearns) < 0.004 and ours < 0.13
    assert isinstance(clone(svc).calibration, str)
    svc.to_model().save(tmp_path / "m.safetensors")
    np.testing.assert_allclose(
        load_model(tmp_path / "m.safetensors").predict_proba(X[others])[:, 1], p, atol=1e-9
    )
    assert not hasattr(plain, "predict_proba")
    with pytest.raises(AttributeError) as refused:
        plain.predict_proba(X)
    assert 'calibration="sigmoid"' in str(refused.value.__cause__)


@pytest.fixture(scope="module")
def noisy(data_dir: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows on which a narrow kernel overfits; two classes, and for `% 3` three."""
    table = pd.read_csv(data_dir / "magic04.data", header=None)[::6]
    return StandardScaler().fit_transform(table[list(range(10))]), table[10].to_numpy()


@pytest.mark.parametrize("schedule", ["exact", "block"])
def test_early_stopping_keeps_the_best(
    noisy: tuple, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = noisy
    monkeypatch.setattr(iterates, "VALIDATE_EVERY", 200)
    options = {"C": 1000, "sigma": 1.0, "schedule": schedule, "tol": 1e-3}
    svc = BigSVC(early_stopping="auc", validation_fraction=0.3, n_iter_no_change=3, **options)
    svc.set_params(callback=lambda progress: False).fit(X, y)  # a callback: yields every 50 steps
    scores = [line["auc"] for line in svc.validation_scores_]
    best = scores.index(max(scores[:-1]))
    assert svc.status_ == ["early_stopping"] and len(scores) == best + 1 + 3 + 1, scores
    held = held_out_rows(np.where(y == "h", 1, -1), ("g", "h"), 0.3, 0)
    assert not np.isin(svc.support_, held).any()
    f = svc.decision_function(X[held])
    assert roc_auc_score(y[held], f) == pytest.approx(scores[best], abs=1e-9)
    gap = svc.relative_gap_[0]
    assert gap > 1e-3 and np.isfinite(gap)


def test_early_stopping_of_three_classes_and_of_fits_that_converge(noisy: tuple) -> None:
    X, y = load_iris(return_X_y=True)
    svc = BigSVC(early_stopping=True, validation_fraction=0.2).fit(X, y)
    assert svc.status_ == ["converged"] * 3 and svc.score(X, y) > 0.9
    assert len(svc.validation_scores_) == 1
    X, y = noisy
    three = np.where(X[:, 0] > 1, "far", y)
    svc = BigSVC(C=100, sigma=1, early_stopping="accuracy", n_iter_no_change=1).fit(X, three)
    assert set(svc.status_) <= {"early_stopping", "converged"} and svc.score(X, three) > 0.8
    assert len(svc.validation_scores_) > 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"early_stopping": "loss"}, "early_stopping='loss': choose"),
        ({"validation_fraction": 1.5}, "between 0 and 1"),
        ({"validation_fraction": 0.001}, "would hold out 0 of the"),
        ({"n_iter_no_change": 0}, "n_iter_no_change=0: must be 1 or more"),
        ({"algorithm": "rwsvm"}, "not supported by the algorithm rwsvm"),
    ],
)
def test_early_stopping_that_cannot_be(heart: tuple, given: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        BigSVC(**({"early_stopping": True} | given)).fit(*heart)


def test_scikit_learns_callbacks(magic: tuple) -> None:
    callback = pytest.importorskip("sklearn.callback")  # 1.9 and later
    X, y = magic
    monitor = callback.ScoringMonitor(scoring="roc_auc")
    svc = BigSVC(C=10).set_callbacks(monitor).fit(X, y)
    scores = [entry["roc_auc"] for entry in monitor.get_logs().data if "roc_auc" in entry]
    assert len(scores) > 3 and min(scores) < 0.8
    assert max(scores[:1]) == pytest.approx(roc_auc_score(y, svc.decision_function(X)))
    np.testing.assert_array_equal(svc.dual_coef_, BigSVC(C=10).fit(X, y).dual_coef_)

    class Stop:
        calls = 0

        def setup(self, estimator: Any, context: Any) -> None: ...

        def teardown(self, estimator: Any, context: Any) -> None: ...

        def on_fit_task_begin(self, estimator: Any, context: Any) -> None: ...

        def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
            self.calls += 1
            return self.calls == 3

    stop = Stop()
    svc = BigSVC(C=10).set_callbacks(stop).fit(X, y)
    assert svc.status_ == ["callback"] and stop.calls == 4  # and the fit itself
    probable = BigSVC(C=10, calibration="sigmoid").set_callbacks(Stop()).fit(X[::3], y[::3])
    assert probable.predict_proba(X[:5]).shape == (5, 2)


def test_calibrations_that_cannot_be(heart: tuple, stores: dict[str, Path]) -> None:
    X, y = heart
    with pytest.raises(ValueError, match="calibration='platt': choose one of"):
        BigSVC(calibration="platt").fit(X, y)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs rows in memory"):
        BigSVC(calibration="sigmoid").fit(str(next(iter(stores.values()))))
    few = np.append(np.flatnonzero(y > 0)[:1], np.flatnonzero(y < 0))
    with pytest.raises(ValueError, match="needs two rows of every class"):
        BigSVC(calibration="sigmoid").fit(X[few], y[few])


def test_the_solution_is_that_of_the_problem(heart: tuple) -> None:
    """On every support vector y f + alpha / C is the margin; nowhere else is it much less."""
    X, y = heart
    model = BigSVC(C=2.0, gamma=0.1, tol=1e-8, algorithm="fw").fit(X, y)
    alpha = np.zeros(len(y))
    alpha[model.support_] = np.abs(model.dual_coef_[0])
    signs = np.where(y > 0, 1, -1)
    np.testing.assert_array_equal(np.sign(model.dual_coef_[0]), signs[model.support_])
    margins = signs * (rbf_kernel(X, X, gamma=0.1) @ (alpha * signs)) + alpha / 2.0
    np.testing.assert_allclose(margins[model.support_], 1, atol=1e-4)
    assert margins.min() > 1 - 1e-4
    np.testing.assert_allclose(
        model.decision_function(X), rbf_kernel(X, X, gamma=0.1) @ (alpha * signs), atol=1e-4
    )


@pytest.mark.parametrize("load", [load_iris, load_digits])
def test_many_classes_no_worse_than_svc(load: Any) -> None:
    X, y = load(return_X_y=True)
    scores = {}
    for classifier in (SVC(C=10), BigSVC(C=10)):
        pipeline = make_pipeline(StandardScaler(), classifier)
        found = cross_validate(pipeline, X, y, cv=FOLDS, error_score="raise")
        scores[type(classifier)] = found["test_score"].mean()
    assert scores[BigSVC] >= scores[SVC] - 0.01
    model = BigSVC(C=10).fit(X, y)
    classes = len(np.unique(y))
    assert model.decision_function(X).shape == (len(y), classes)
    assert model.dual_coef_.shape == (classes, len(model.support_))
    assert model.n_iter_.shape == (classes,) and model.status_ == ["converged"] * classes
    wrapped = OneVsRestClassifier(BigSVC(C=10)).fit(X, y)
    np.testing.assert_array_equal(wrapped.predict(X), model.predict(X))


def test_words_for_labels_and_names_of_features(sonar: tuple) -> None:
    X, y = sonar
    model = BigSVC(C=10).fit(X, y)
    assert model.feature_names_in_.tolist() == X.columns.tolist() and model.n_features_in_ == 60
    assert set(model.predict(X)) == {"M", "R"} and model.score(X, y) > 0.95
    np.testing.assert_array_equal(model.support_vectors_, np.float32(X)[model.support_])
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X[X.columns[::-1]])


def test_in_a_grid_search_over_a_pipeline(sonar: tuple) -> None:
    pipeline = make_pipeline(StandardScaler(), BigSVC())
    grid = {"bigsvc__C": [0.1, 10], "bigsvc__sigma": [1.0, 8.0], "bigsvc__kernel": ["rbf"]}
    search = GridSearchCV(pipeline, grid, cv=FOLDS, error_score="raise").fit(*sonar)
    assert search.best_score_ > 0.8
    again = pickle.loads(pickle.dumps(search))
    expected = search.decision_function(sonar[0])
    assert again.decision_function(sonar[0]).tobytes() == expected.tobytes()


def test_calibrated_and_cloned(heart: tuple) -> None:
    model = BigSVC(C=1, gamma=0.05, verbose=True, time_limit="5m", random_state=3)
    assert clone(model).get_params() == model.get_params()
    for method in ("sigmoid", "isotonic"):
        calibrated = CalibratedClassifierCV(model, method=method, cv=FOLDS).fit(*heart)
        chances = calibrated.predict_proba(heart[0])
        np.testing.assert_allclose(chances.sum(axis=1), 1)
        assert chances[:, 1].min() < 0.2 < 0.8 < chances[:, 1].max()
        assert calibrated.score(*heart) > 0.8


def test_sparse_rows_are_the_same_rows(data_dir: Path) -> None:
    X, y = load_svmlight_file(str(data_dir / "australian"))
    dense, thin = (BigSVC().fit(rows, y) for rows in (X.toarray(), sparse.csc_array(X)))
    assert dense.dual_coef_.tobytes() == thin.dual_coef_.tobytes()
    assert dense.decision_function(X).tobytes() == thin.decision_function(X.toarray()).tobytes()


def test_too_wide_sparse_rows_are_refused() -> None:
    wide = sparse.eye_array(100_000, 10_000_000, format="csr")
    with pytest.raises(ValueError, match=r"dense it would take.* use a linear model"):
        BigSVC(gamma=1.0).fit(wide, np.arange(100_000) % 2)


def test_wide_sparse_rows_are_predicted_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "CHUNK_BYTES", 4 * 2**20)
    wide = sparse.random_array((500, 20_000), density=0.001, format="csr", random_state=0)
    svc = BigSVC(gamma=0.1).fit(wide[:20], np.arange(20) % 2)
    expected = svc.decision_function(wide[-30:].toarray())
    tracemalloc.start()
    decided = svc.decision_function(wide)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert decided[-30:].tobytes() == expected.tobytes()
    assert peak < 20 * 2**20, "dense they take 38 MiB"


def test_gamma_scale_is_that_of_svc(heart: tuple) -> None:
    X, y = heart
    number = 1 / (X.shape[1] * X.var())
    assert SVC().fit(X, y)._gamma == pytest.approx(number)
    scaled, given = BigSVC().fit(X, y), BigSVC(gamma=number).fit(X, y)
    assert scaled.dual_coef_.tobytes() == given.dual_coef_.tobytes()
    by_sigma = BigSVC(sigma=np.sqrt(1 / (2 * number))).fit(X, y)
    np.testing.assert_allclose(by_sigma.decision_function(X), given.decision_function(X), atol=1e-3)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "linear", "poly"])
def test_every_kernel_learns(sonar: tuple, kernel: str) -> None:
    pipeline = make_pipeline(StandardScaler(), BigSVC(C=10, kernel=kernel, coef0=1.0))
    assert cross_validate(pipeline, *sonar, cv=FOLDS)["test_score"].mean() > 0.7


def test_a_linear_kernel_has_coefficients_of_features(sonar: tuple) -> None:
    X, y = StandardScaler().fit_transform(sonar[0]), sonar[1]
    model = BigSVC(kernel="linear", C=0.1, intercept=1.0).fit(X, y)
    np.testing.assert_allclose(
        X @ model.coef_[0] + model.intercept_, model.decision_function(X), atol=1e-4
    )
    assert model.n_support_.tolist() == [np.sum(y[model.support_] == k) for k in ("M", "R")]
    chosen = RFE(BigSVC(kernel="linear", C=0.1), n_features_to_select=10, step=10).fit(X, y)
    assert chosen.support_.sum() == 10 and chosen.score(X, y) > 0.7
    with pytest.raises(AttributeError, match="linear"):
        _ = BigSVC().fit(X, y).coef_


@pytest.mark.parametrize("schedule", ["exact", "block"])
def test_a_callback_sees_and_ends_the_fit(
    heart: tuple, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bigsvm.estimator.options.HOT_SET", 16)  # many passes over few rows
    seen = []

    def callback(progress: Any) -> bool:
        seen.append(progress)
        return len(seen) == 2

    model = BigSVC(callback=callback, schedule=schedule, tol=1e-9, algorithm="fw").fit(*heart)
    assert model.status_ == ["callback"] and len(seen) == 2
    assert model.n_iter_.tolist() == [seen[-1].iteration]
    assert 0 < seen[0].iteration < seen[1].iteration


def test_limits_end_the_fit_with_a_warning_and_a_model(heart: tuple) -> None:
    for limit, status in (({"max_iter": 40}, "max_iter"), ({"time_limit": 1e-9}, "time_limit")):
        with pytest.warns(ConvergenceWarning, match=status):
            model = BigSVC(**limit).fit(*heart)
        assert model.status_ == [status] and np.isfinite(model.decision_function(heart[0])).all()
    with pytest.warns(ConvergenceWarning):
        assert BigSVC(max_iter=40).fit(*heart).n_iter_.tolist() == [40]


def test_ctrl_c_gives_back_the_model_so_far(heart: tuple) -> None:
    def press(progress: Any) -> None:
        if progress.iteration == 50:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.warns(ConvergenceWarning, match="interrupted"):
            model = BigSVC(callback=press, tol=1e-9).fit(*heart)
        assert model.n_iter_[0] in (50, 51, 100) and model.score(*heart) > 0.6
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_and_lines_in_a_process_of_its_own(data_dir: Path) -> None:
    """A fit that would take very long tells how far it is, and ends when it is told to."""
    code = (
        "import sys, warnings\n"
        "import pandas as pd\n"
        "from bigsvm import BigSVC\n"
        "warnings.simplefilter('ignore')\n"
        "table = pd.read_csv(sys.argv[1], header=None)\n"
        "X, y = table[list(range(10))], table[10]\n"
        "X = (X - X.mean()) / X.std()\n"
        "model = BigSVC(C=1e4, tol=1e-15, verbose=True, schedule=sys.argv[2]).fit(X, y)\n"
        "usable = model.decision_function(X).std() > 0\n"
        "print(model.status_, usable, model.n_iter_[0] > 100)\n"
    )
    for schedule in ("exact", "block"):
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", code, data_dir / "magic04.data", schedule],
            stdout=subprocess.PIPE, text=True, env=environment(threads=2),
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )  # fmt: skip
        assert process.stdout is not None
        iteration = 0
        while iteration < 1000:
            line = re.match(r"\[BigSVC\] iteration ([\d,]+), gap \d", process.stdout.readline())
            assert line is not None
            iteration = int(line[1].replace(",", ""))
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=HANGS)
        assert out.splitlines()[-1] == "['interrupted'] True True"


def test_a_warm_start_resumes(magic: tuple) -> None:
    X, y = magic
    model = BigSVC(warm_start=True, tol=1e-4).fit(X, y)
    cold = BigSVC(tol=1e-5).fit(X, y)
    model.set_params(tol=1e-5).fit(X, y)
    assert model.gap_[0] <= 1e-5 and 0 < model.n_iter_[0] < cold.n_iter_[0]
    assert abs(model.score(X, y) - cold.score(X, y)) < 0.005
    model.fit(X[:1500], y[:1500])  # other rows: from the beginning
    assert model.support_.max() < 1500


def test_the_first_row_is_chosen_by_random_state(magic: tuple) -> None:
    first, same, other = (BigSVC(random_state=seed).fit(*magic) for seed in (0, 0, 1))
    assert first.dual_coef_.tobytes() == same.dual_coef_.tobytes() != other.dual_coef_.tobytes()
    assert abs(first.score(*magic) - other.score(*magic)) < 0.02


@pytest.mark.parametrize(
    "wrong",
    [
        {"C": 0}, {"tol": -1}, {"kernel": "sigmoid"}, {"gamma": "wide"}, {"gamma": -1.0},
        {"sigma": 0}, {"sigma": 1, "kernel": "linear"}, {"algorithm": "sgd"}, {"schedule": "x"},
        {"max_iter": 0}, {"degree": 0}, {"time_limit": "soon"}, {"memory_limit": "much"},
        {"time_limit": -1}, {"memory_limit": -5}, {"sigma": 1e-200}, {"sigma": 1e200},
        {"C": "1"}, {"tol": None}, {"gamma": None}, {"sigma": "1"}, {"max_iter": 10.5},
        {"degree": 2.5, "kernel": "poly"}, {"coef0": np.inf}, {"rounds": "2"}, {"callback": 3},
    ],
)  # fmt: skip
def test_wrong_parameters_are_named(heart: tuple, wrong: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))) as mistake:
        BigSVC(**wrong).fit(*heart)
    assert "\n" not in str(mistake.value)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("rows", "said"),
    [([[0.0, 1e300]], "row 0, column 1"), ([["a", "b"]], "it takes numbers")],
    ids=["too large", "text"],
)
def test_rows_that_a_model_cannot_take_are_named(rows: list, said: str) -> None:
    model = BigSVC().fit([[0.0, 1.0], [1.0, 0.0]], [0, 1]).to_model()
    for precise in (False, True):
        with pytest.raises(UserError, match=said):
            model.decision_function(np.array(rows), precise=precise)


def test_values_beyond_float32_are_refused(heart: tuple) -> None:
    X = heart[0].copy()
    X[3, 2] = 1e60
    with pytest.raises(ValueError, match=r"X\[3, 2\]"):
        BigSVC(gamma=1.0).fit(X, heart[1])


def test_a_decision_of_0_is_the_second_class_everywhere(tmp_path: Path) -> None:
    model = BigSVC(kernel="linear").fit([[1.0], [2.0], [-1.0], [-2.0]], ["a", "a", "b", "b"])
    nowhere = np.zeros((1, 1))
    assert model.decision_function(nowhere) == [0.0]
    model.to_model().save(tmp_path / "m.safetensors")
    export(tmp_path / "m.safetensors", tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    (label,) = session.run(["label"], {"X": nowhere})
    assert model.predict(nowhere).tolist() == ["b"]
    assert (
        load_model(tmp_path / "m.safetensors").predict(nowhere).tolist() == label.tolist() == ["b"]
    )


def test_from_the_estimator_to_onnx(sonar: tuple, tmp_path: Path) -> None:
    X, y = sonar
    model = BigSVC(C=10).fit(X, y)
    model.to_model().save(tmp_path / "m.safetensors")
    loaded = load_model(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    export(tmp_path / "m.safetensors", tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    (label,) = session.run(["label"], {"X": X.to_numpy()})
    np.testing.assert_array_equal(label, model.predict(X))


def test_scikit_learn_is_loaded_only_for_the_estimator() -> None:
    code = (
        "import sys, bigsvm\n"
        "assert 'sklearn' not in sys.modules\n"
        "bigsvm.BigSVC\n"
        "assert 'sklearn' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True)
