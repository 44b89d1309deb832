"""The page that `report` writes, in a real browser; and the one it serves during a training."""

import json
import re
import shutil
import signal
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from bigsvm.calibrate import calibrate
from bigsvm.core.errors import UserError
from bigsvm.report import main
from tests.support import small_run
from tests.support.browser import CHROMIUM, Browser, open_browser
from tests.support.small_run import add_snapshot, make_model, make_run, make_store, write_summary
from tests.support.trainings import REPOSITORY

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
SNAPSHOTS = {100: 40, 200: 90, 300: 70}
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("data") / "s.zarr")


def add_metrics(run: Path, last: int = 300) -> None:
    with (run / "metrics.jsonl").open("w") as file:
        for k in range(10, last + 1, 10):
            report = {"iteration": k, "pass": k // 50, "gap": 2 / k, "relative_gap": 1 / k}
            report |= {"objective": 1 + 1 / k, "working": k, "support": k // 2}
            file.write(json.dumps(report | {"seconds": 0.1 * k, "rss": 10**8 + k}) + "\n")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, store: Path) -> list[Path]:
    """A run that ended, one whose classes and source are named like an attack, one of 3 classes."""
    place = tmp_path_factory.mktemp("runs")
    plain = make_run(place / "plain", store, SNAPSHOTS, final=(350, 75))
    add_metrics(plain)
    (plain / "validation.jsonl").write_text('{"iteration": 100, "accuracy": 0.5, "auc": 0.7}\n{')
    calibrate(plain / "model.safetensors", str(store / "test"))
    shares = {"accuracy": 0.5, "balanced_accuracy": 0.5}
    shares |= {"majority": {"label": NASTY, "share": 0.6}}
    versions = {"versions": {"bigsvm": "0", "python": NASTY}}
    (plain / "summary.json").write_text(
        json.dumps({"status": "converged", "iterations": 350, **shares, **versions})
    )
    nasty = shutil.copytree(plain, place / "nasty")
    for path in nasty.glob("snapshots/*"):
        path.unlink()
    (nasty / "config.yaml").write_text(f"data: {{source: '{NASTY}'}}\n")
    model = make_model(store, 350, 75, classes=(NASTY, "b"), about={"source": NASTY, "C": 1.0})
    model.save(nasty / "model.safetensors")
    (nasty / "confusion.csv").write_text(f"class,{NASTY},b\n{NASTY},5,1\nb,2,7\n")
    return [plain, nasty]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def report(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@needs_browser
def test_the_page_draws_every_figure_without_errors_or_network(
    runs: list[Path], browser: Browser, tmp_path: Path
) -> None:
    out = tmp_path / "both.html"
    browser.requests.clear()
    assert report(*runs, "--out", out, "--labels", "first", NASTY) == 0
    browser.open(out.as_uri())
    assert browser.errors == [] and browser.requests == [out.as_uri()]
    figures = browser.run("[...document.querySelectorAll('figure')].map(f => f.dataset.figure)")
    for title in ("Relative gap", "Objective", "Support vectors", "Accuracy", "AUC", "Resident"):
        assert [name.split(" / ")[-1] for name in figures if name.startswith(title)] == [
            "iteration",
            "training time",
        ]
    assert sum(name.startswith(("ROC", "Precision and recall", "Cal")) for name in figures) == 3
    # The curve of a class always predicted spans the figure, and bins of a calibration are dots.
    level = "figure[data-figure='Accuracy / iteration'] g[clip-path] path.reference"
    assert browser.run(f'document.querySelector("{level}").getBBox().width') > 300
    dots = "figure[data-figure^=Calibration] g[clip-path] circle"
    assert browser.run(f"document.querySelectorAll('{dots}').length") > 0
    drawn = "[...document.querySelectorAll('figure')].every(f => f.querySelector('path.curve'))"
    assert browser.run(drawn)
    assert browser.run("document.querySelectorAll('table.confusion').length") == 2
    assert not browser.run(
        "/NaN|undefined|Infinity/.test(document.body.innerHTML.split('<script')[0])"
    )
    # Names from data are text: nothing ran, and no element was made of them.
    assert browser.run("document.querySelectorAll('main img, main script').length") == 0
    text = browser.run("document.querySelector('main').innerText")
    assert text.count(NASTY) > 5
    assert "no better than always predicting" in text and "Brier score" in text
    browser.media(scheme="dark")
    dark = browser.run("getComputedStyle(document.body).backgroundColor")
    browser.media("print", "dark")  # paper is white, whatever the screen is
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert dark != "rgb(255, 255, 255)"
    browser.media()


@needs_browser
def test_values_on_hover_and_zoom_by_dragging(
    runs: list[Path], browser: Browser, tmp_path: Path
) -> None:
    report(runs[0], "--out", tmp_path / "one.html")
    browser.open((tmp_path / "one.html").as_uri())
    legend = "document.querySelector('figure[data-figure^=AUC] .legend').innerText"
    assert browser.run(legend).split() == ["test", "validation"]
    figure = "document.querySelector('figure[data-figure=\"Relative gap / iteration\"]')"
    browser.run(f"{figure}.scrollIntoView()")
    place = f"{figure}.querySelector('svg').getBoundingClientRect()"
    x, y, width, height = browser.run(f"(r => [r.x, r.y, r.width, r.height])({place})")
    middle = y + height / 2
    browser.mouse("Moved", x + width - 20, middle)
    tip = browser.run(f"{figure}.querySelector('.tip').innerText")
    assert tip.splitlines() == ["iteration: 300", "0.0033333"]
    browser.mouse("Pressed", x + 0.4 * width, middle, button="left", clickCount=1)
    browser.mouse("Moved", x + 0.6 * width, middle, button="left")
    browser.mouse("Released", x + 0.6 * width, middle, button="left", clickCount=1)
    browser.wait(f"{figure}.querySelector('button')")
    labels = f"[...{figure}.querySelectorAll('text')].map(t => t.textContent)"
    shown = [int(text) for text in browser.run(labels) if text.isdecimal()]
    assert shown and min(shown) >= 90 and max(shown) <= 190
    browser.run(f"{figure}.querySelector('button').click()")
    assert "300" in browser.run(labels)
    assert browser.errors == []


@needs_browser
def test_a_run_is_followed_in_the_browser(store: Path, browser: Browser, tmp_path: Path) -> None:
    run = make_run(tmp_path / "live", store, {100: 40})
    add_metrics(run, 100)
    process = small_run.start("bigsvm.report", run, "--follow")
    assert process.stdout is not None
    try:
        address = re.search(r"http://127\.0\.0\.1:\d+/\S+/", process.stdout.readline())[0]
        browser.open(address)
        last = "document.querySelector('figure[data-figure=\"Accuracy / iteration\"]')"
        browser.wait(f"{last}?.querySelectorAll('circle').length === 1")
        add_metrics(run, 300)
        add_snapshot(run, store, 200, 90)
        browser.wait(f"{last}?.querySelectorAll('circle').length === 2")
        write_summary(run, "time_limit")
        browser.wait("document.querySelector('.status').textContent.startsWith('time_limit')")
        assert browser.errors == []
        root = address.rsplit("/", 2)[0]
        for path in (
            "/",
            "/data.json",
            f"{address[len(root) :]}../etc/passwd",
            "/../metrics.jsonl",
        ):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(root + path)
        browser.call("Page.navigate", url="about:blank")
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert out == f"written: {run / 'report.html'}\n"
    assert "time_limit" in (run / "report.html").read_text()


def test_runs_without_scores_or_summary_have_a_page(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run = make_run(tmp_path / "run", store, {})
    report(run)
    page = (run / "report.html").read_text()
    assert "not begun" in page and "there is no model yet" in page
    shutil.rmtree(run)
    make_run(run, tmp_path / "gone.zarr", {})
    add_snapshot(run, store, 100, 40)
    add_metrics(run)
    report(run)
    assert "not scored on the test set" in (run / "report.html").read_text()
    assert "gone.zarr" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none"], "none: is not a run directory"),
        (["."], ".: is not a run directory"),
        (["none", "--out", "x.pdf"], "--out x.pdf: a report is an HTML file"),
        (["none", "--out", "no/x.html"], "--out no/x.html: there is no folder no"),
        (["a", "a"], "a run directory is named twice"),
    ],
)
def test_mistakes(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=re.escape(said)):
        main(arguments)


def test_the_files_of_the_page_are_package_data() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    package = REPOSITORY / "bigsvm" / "inspection"
    patterns = settings["tool"]["setuptools"]["package-data"]["bigsvm.inspection"]
    packed = {path for pattern in patterns for path in package.glob(pattern)}
    assert packed == set((package / "page").iterdir())
    assert {path.name for path in packed} == {"report.html", "report.css", "report.js"}
