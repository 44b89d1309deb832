"""A Zarr store at an address: s3://bucket/data.zarr, https://..., whatever fsspec can read.

Credentials come from the environment alone (for S3 what Amazon's own tools read there), so that
neither a config nor a log can give them away.
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

# Tries of one request, on top of those botocore makes by itself (AWS_MAX_ATTEMPTS of them). Where
# nothing has ever answered, the address is more likely wrong than the trouble passing.
_TRIES = 6
_TRIES_AT_FIRST = 2
_FIRST_PAUSE = 0.5

# s3fs makes an OSError of a server's answer: these come of 5xx, of throttling, of answers unknown.
_PASSING_NUMBERS = {errno.EBUSY, errno.EIO, errno.EREMOTEIO, errno.ECONNRESET, errno.ETIMEDOUT}
# By name, for the libraries they are from (botocore, aiohttp, fsspec) may not be installed.
_PASSING_NAMES = {"HTTPClientError", "ClientConnectionError", "ClientPayloadError"}
_PASSING_NAMES |= {"ConnectionError", "IncompleteReadError", "ResponseParserError"}
_PASSING_NAMES |= {"FSTimeoutError"}
_NO_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"}


class RemoteStore(FsspecStore):
    """Tries again what may pass, and says in one line what will not."""

    address = ""
    _answered = False

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """What is stored under `key`; None where there is nothing."""
        get = super().get
        return await self._tried(lambda: get(key, prototype, byte_range))

    async def exists(self, key: str) -> bool:
        """Whether anything is stored under `key`."""
        exists = super().exists
        return bool(await self._tried(lambda: exists(key)))

    async def _tried(self, request: Callable[[], Awaitable[Any]]) -> Any:
        tries = 0
        while True:
            tries += 1
            try:
                answer = await request()
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as missing:
                if _code(missing) == "NoSuchBucket":
                    raise _explained(self.address, missing, tries) from missing
                answer = None
            except Exception as error:
                most = _TRIES if self._answered else _TRIES_AT_FIRST
                if tries >= most or not _may_pass(error):
                    raise _explained(self.address, error, tries) from error
                await asyncio.sleep(_FIRST_PAUSE * 2 ** (tries - 1))
                continue
            self._answered = True
            return answer


def open_remote_store(address: str) -> RemoteStore:
    """The store at `address`, for zarr to read; a UserError where none can be reached that way."""
    reject_credentials(address)
    if re.search(r"\.(h5|hdf5)(/|$)", address):
        raise UserError(
            f"{address}: HDF5 is read from the disks of this machine only; copy it here, or make a "
            "Zarr store of it"
        )
    try:
        found = RemoteStore.from_url(address, read_only=True, allowed_exceptions=())
    except ImportError as missing:
        s3 = re.match(r"s3a?://", address)
        what = "pip install 'bigsvm[s3]'" if s3 else f"install what it needs ({one_line(missing)})"
        raise UserError(f"{address}: cannot be read without one more package; {what}") from missing
    except Exception as problem:
        raise _explained(address, problem, 1) from problem
    store = cast(RemoteStore, found)
    store.address = address
    store.fs.retries = 1  # s3fs would multiply its own tries with botocore's and with ours
    return store


def _may_pass(error: BaseException) -> bool:
    status = getattr(error, "status", None)  # of aiohttp.ClientResponseError
    if isinstance(status, int):
        return status >= 500 or status in (408, 429)
    if isinstance(error, OSError) and not isinstance(error, PermissionError):
        return isinstance(error, ConnectionError | TimeoutError) or error.errno in _PASSING_NUMBERS
    return bool(_names(error) & _PASSING_NAMES)


def _explained(address: str, error: BaseException, tries: int) -> UserError | Unreachable:
    """The one line for an error that is here to stay. Servers' own words may hold keys: no."""
    code, status = _code(error), getattr(error, "status", None)
    if code == "NoSuchBucket":
        bucket = address.partition("://")[2].partition("/")[0]
        return UserError(
            f"{address}: there is no bucket {bucket!r}; check the name, and AWS_ENDPOINT_URL if "
            "the server is not Amazon's"
        )
    if _names(error) & _NO_CREDENTIALS:
        return UserError(
            f"{address}: no credentials in the environment; set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE (a public bucket: FSSPEC_S3_ANON=1)"
        )
    if isinstance(error, PermissionError) or status in (401, 403):
        return UserError(
            f"{address}: access was refused ({code or status or 'no reason given'}); check the "
            "credentials in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
            "AWS_PROFILE) and what they allow"
        )
    if _may_pass(error):
        return Unreachable(
            address,
            f"no proper answer in {tries} tries ({code or one_line(error)}); check the address "
            "and the network; a training goes on with the same command",
        )
    return UserError(f"{address}: cannot be read ({code or one_line(error)})")


def _code(error: BaseException) -> str | None:
    """S3's name for what is wrong, such as NoSuchBucket."""
    response = getattr(error.__cause__ or error, "response", None)
    return response.get("Error", {}).get("Code") if isinstance(response, dict) else None


def _names(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}
