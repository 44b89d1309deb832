"""One-line messages (quoted names, shortened errors, durations, sizes) and progress reports."""

from collections.abc import Callable

# How long operations report progress: (what is being done, amount done, total or None if unknown).
# `bigsvm.terminal` displays it.
Progress = Callable[[str, int, int | None], None]

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
