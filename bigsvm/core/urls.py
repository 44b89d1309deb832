"""Telling URLs (s3://bucket/data.zarr) from local paths."""

import re
from pathlib import Path

from bigsvm.core.errors import UserError

# In Azure URLs, what precedes the @ is a container, not a user.
_CONTAINER_AT_ACCOUNT = ("abfs", "abfss", "wasb", "wasbs")
_SECRET = re.compile("(sig|signature|token|key|secret|password|credential)[^=&]*=", re.IGNORECASE)


def is_url(text: str) -> bool:
    """Whether `text` is a URL for fsspec rather than a path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*:(//|:)", text) is not None


def strip_file_scheme(text: str) -> str:
    """The path in a file:// URL; any other text unchanged."""
    match = re.match(r"(?:file|local)://(/.*)", text, re.IGNORECASE)
    return match[1] if match else text


def path_or_url(text: str) -> Path | str:
    """A command-line argument as a Path, or unchanged if it is a URL (which Path would garble)."""
    text = strip_file_scheme(text)
    return text if is_url(text) else Path(text)


def reject_credentials(url: str) -> None:
    """Reject a URL that holds a password or signature: it would end up in files and messages."""
    if not is_url(url):
        return
    for part in url.split("::"):  # simplecache::https://...
        scheme, _, rest = part.partition("://")
        user = re.split("[/?#]", rest)[0].rpartition("@")[0]
        query = rest.partition("?")[2]
        has_user = user and (":" in user or scheme.lower() not in _CONTAINER_AT_ACCOUNT)
        if has_user or (query and (scheme.lower().startswith("http") or _SECRET.search(query))):
            raise UserError(
                f"the {scheme}:// URL of a store holds credentials (before an @ or after a ?) that "
                "would be written to files and logs; leave them out: they come from the environment"
            )
