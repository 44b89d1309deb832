"""A case of bad input: see test_bad_input, and the tables bad_*.CASES.

A case is a command line, the files it needs besides the good ones, and the words its one line on
stderr must have: the file or option, the place in it, and what to do. A case without words is one
that looks odd and has to work.
"""

from typing import NamedTuple

from tests.support import bad_files as bad

NAN, INF = float("nan"), float("inf")


class Case(NamedTuple):
    command: str
    files: dict[str, bad.Content] = {}  # noqa: RUF012
    words: tuple[str, ...] = ()


def config(words: str, **sections: str) -> Case:
    """A config that is right but for these sections."""
    return Case("train c.yaml", {"c.yaml": bad.config(**sections)}, ("c.yaml", *words.split("|")))
