"""A Zarr store at a URL: s3://bucket/data.zarr, https://..., anything fsspec can read.

Credentials come from the environment only (for S3 the variables that Amazon's tools read), so that
they appear in no config and no log.

Retries are implemented here because those of s3fs and botocore neither distinguish a wrong URL from
a transient failure nor end with one line that says what to do.
"""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Awaitable, Callable
from typing import Any, cast

from zarr.storage import FsspecStore

from bigsvm.core.errors import Unreachable, UserError
from bigsvm.core.messages import one_line
from bigsvm.core.urls import reject_credentials

# Attempts for one request, besides those of botocore itself (AWS_MAX_ATTEMPTS). Before the first
# answer, a wrong URL is more likely than a transient failure.
_ATTEMPTS = 6
_FIRST_ATTEMPTS = 2
_FIRST_PAUSE = 0.5

# s3fs turns answers into OSErrors: these stand for 5xx, throttling and unknown answers.
_TRANSIENT_ERRNOS = {errno.EBUSY, errno.EIO, errno.EREMOTEIO, errno.ECONNRESET, errno.ETIMEDOUT}
# By name, because their libraries (botocore, aiohttp, fsspec) may not be installed.
_TRANSIENT_NAMES = {"HTTPClientError", "ClientConnectionError", "ClientPayloadError"}
_TRANSIENT_NAMES |= {"ConnectionError", "IncompleteReadError", "ResponseParserError"}
_TRANSIENT_NAMES |= {"FSTimeoutError"}
_NO_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"}


class RemoteStore(FsspecStore):
    """Retries transient failures, and explains lasting ones in one line."""

    url = ""
    _answered = False

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """The value stored under `key`; None if there is none."""
        get = super().get
        return await self._with_retries(lambda: get(key, prototype, byte_range))

    async def exists(self, key: str) -> bool:
        """Whether anything is stored under `key`."""
        exists = super().exists
        return bool(await self._with_retries(lambda: exists(key)))

    async def _with_retries(self, request: Callable[[], Awaitable[Any]]) -> Any:
        attempts = 0
        while True:
            attempts += 1
            try:
                answer = await request()
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as missing:
                if _code(missing) == "NoSuchBucket":
                    raise _explained(self.url, missing, attempts) from missing
                answer = None
            except Exception as error:
                most = _ATTEMPTS if self._answered else _FIRST_ATTEMPTS
                if attempts >= most or not _is_transient(error):
                    raise _explained(self.url, error, attempts) from error
                await asyncio.sleep(_FIRST_PAUSE * 2 ** (attempts - 1))
                continue
            self._answered = True
            return answer


def open_remote_store(url: str) -> RemoteStore:
    """Open the store at `url` for Zarr; a UserError if that kind of URL cannot be read."""
    reject_credentials(url)
    if re.search(r"\.(h5|hdf5)(/|$)", url):
        raise UserError(
            f"{url}: HDF5 is read from local disks only; copy it here, or make a Zarr store of it"
        )
    try:
        found = RemoteStore.from_url(url, read_only=True, allowed_exceptions=())
    except ImportError as missing:
        s3 = re.match(r"s3a?://", url)
        what = "pip install 'bigsvm[s3]'" if s3 else f"install what it needs ({one_line(missing)})"
        raise UserError(f"{url}: cannot be read without one more package; {what}") from missing
    except Exception as problem:
        raise _explained(url, problem, 1) from problem
    store = cast(RemoteStore, found)
    store.url = url
    store.fs.retries = 1  # s3fs would multiply its own attempts with botocore's and ours
    return store


def _is_transient(error: BaseException) -> bool:
    status = getattr(error, "status", None)  # set by aiohttp.ClientResponseError
    if isinstance(status, int):
        return status >= 500 or status in (408, 429)
    if isinstance(error, OSError) and not isinstance(error, PermissionError):
        return isinstance(error, ConnectionError | TimeoutError) or error.errno in _TRANSIENT_ERRNOS
    return bool(_names(error) & _TRANSIENT_NAMES)


def _explained(url: str, error: BaseException, attempts: int) -> UserError | Unreachable:
    """The error to raise for a failure that stays. Quotes no server text, which may hold keys."""
    code, status = _code(error), getattr(error, "status", None)
    if code == "NoSuchBucket":
        bucket = url.partition("://")[2].partition("/")[0]
        return UserError(
            f"{url}: there is no bucket {bucket!r}; check the name, and AWS_ENDPOINT_URL if "
            "the server is not Amazon's"
        )
    if _names(error) & _NO_CREDENTIALS:
        return UserError(
            f"{url}: no credentials in the environment; set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE (a public bucket: FSSPEC_S3_ANON=1)"
        )
    if isinstance(error, PermissionError) or status in (401, 403):
        return UserError(
            f"{url}: access was refused ({code or status or 'no reason given'}); check the "
            "credentials in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
            "AWS_PROFILE) and what they allow"
        )
    if _is_transient(error):
        return Unreachable(
            url,
            f"no proper answer in {attempts} attempts ({code or one_line(error)}); check the URL "
            "and the network; the same command resumes a training",
        )
    return UserError(f"{url}: cannot be read ({code or one_line(error)})")


def _code(error: BaseException) -> str | None:
    """The error code of S3, such as NoSuchBucket."""
    response = getattr(error.__cause__ or error, "response", None)
    return response.get("Error", {}).get("Code") if isinstance(response, dict) else None


def _names(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}
