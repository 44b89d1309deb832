"""The nearest known word to a mistyped one."""

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A question such as "did you mean 'train'?", or None where no known word is near."""
    near = difflib.get_close_matches(word, list(known), 1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else None
