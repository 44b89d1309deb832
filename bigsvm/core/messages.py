"""One-line messages (quoted names, shortened errors, durations, sizes) and progress reports."""

import difflib
import shlex
from collections.abc import Callable, Iterable, Sequence

# How long operations report progress: (what is being done, amount done, total or None if unknown).
# `bigsvm.terminal` displays it.
Progress = Callable[[str, int, int | None], None]

METRIC_NAMES = {
    "auc": "AUC", "accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "f1": "F1"
}  # fmt: skip
MAX_TOKEN = 40
MAX_REASON = 500
SPARSE_ADVICE = (
    "use a linear model (LIBLINEAR, scikit-learn's LinearSVC), or make fewer features of them "
    "(TruncatedSVD, SelectKBest)"
)


def quoted(token: str | bytes) -> str:
    """A token, name or label in quotes, cut if it is long."""
    text = token.decode(errors="replace") if isinstance(token, bytes) else token
    return repr(text[:MAX_TOKEN]) + ("..." if len(text) > MAX_TOKEN else "")


def quoted_list(names: list[str]) -> str:
    """The first ten names, quoted."""
    return ", ".join(map(quoted, names[:10])) + (", ..." if len(names) > 10 else "")


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """A question such as "did you mean 'train'?", or None where no known word is near."""
    near = difflib.get_close_matches(word, list(known), 1, cutoff=cutoff)
    return f"did you mean {near[0]!r}?" if near else None


def columns_there(asked: str, names: Sequence[str]) -> str:
    """What a table has instead of a column that was asked for: the nearest name, or the first."""
    return did_you_mean(asked, names) or f"it has {quoted_list(list(names))}"


def option(name: str, value: str) -> str:
    """An option with its value, as it can be pasted into a shell."""
    return f"--{name} {shlex.quote(value)}"


def shell_command(name: str, path: object) -> str:
    """A command with a path, as it can be pasted into a shell."""
    return f"python -m bigsvm.{name} {shlex.quote(str(path))}"


def one_line(error: BaseException, limit: int = MAX_REASON) -> str:
    """The message of an exception on one line, cut if it is long; its type if it has none."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:limit] + ("..." if len(text) > limit else "")


def format_duration(seconds: float) -> str:
    """A duration such as 45 s, 12 min or 3.2 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def format_bytes(count: float) -> str:
    """A size such as 12 B, 3.4 MiB or 2 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.3g} {unit}" if count < 100 else f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def no_progress(what: str, done: int, total: int | None) -> None:
    """Ignore a progress report."""
