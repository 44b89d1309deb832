"""How commands are called: messages say `python -m bigsvm.train`, or `bigsvm train` to who does."""

from collections.abc import Iterator
from contextlib import contextmanager

AS_MODULE, AS_PROGRAM = "python -m bigsvm.", "bigsvm "
_called_as = AS_MODULE


@contextmanager
def called_as_program() -> Iterator[None]:
    """Inside the block, commands are called `bigsvm COMMAND`."""
    global _called_as
    _called_as = AS_PROGRAM
    try:
        yield
    finally:
        _called_as = AS_MODULE


def as_called(text: str) -> str:
    """A text that names commands as modules, with the commands as they are called."""
    return text.replace(AS_MODULE, _called_as)
