"""What a file or a library says, cut to fit into a message of one line."""

MAX_TOKEN = 40
MAX_REASON = 160


def shown(token: str | bytes) -> str:
    """A token, name or label in quotes, cut where it is long."""
    text = token.decode(errors="replace") if isinstance(token, bytes) else token
    return repr(text[:MAX_TOKEN]) + ("..." if len(text) > MAX_TOKEN else "")


def listed(names: list[str]) -> str:
    """Some names, the first ones of a long list."""
    return ", ".join(map(shown, names[:10])) + (", ..." if len(names) > 10 else "")


def reason(failure: BaseException) -> str:
    """What an exception says, on one line."""
    text = " ".join(str(failure).split()) or type(failure).__name__
    return text[:MAX_REASON] + ("..." if len(text) > MAX_REASON else "")
