"""A client for object stores: S3 and compatible ones, Google Cloud Storage, Azure Blob Storage, or a folder."""

import importlib
from datetime import timedelta
from typing import Any

_CONNECT_S = 5.0
_RETRIES = 2  # of a request, within its timeout


class ObjectsUnavailable(Exception):
    """The object store did not answer, or refused."""


class Objects:
    """The objects below a URL, e.g. `s3://bucket/prefix`.

    Credentials and endpoint are read from the environment, e.g. AWS_ACCESS_KEY_ID and AWS_ENDPOINT: see
    https://developmentseed.org/obstore/latest/authentication. All methods but the constructor raise ObjectsUnavailable.
    """

    def __init__(self, url: str, *, timeout_s: float) -> None:
        """`timeout_s`: limit on each request, retries included. Raises ValueError: the URL cannot be used."""
        try:
            self._obstore: Any = importlib.import_module("obstore")
            stores: Any = importlib.import_module("obstore.store")
        except ImportError as error:
            raise ValueError("SANDBOX_CHECKPOINTS_URL needs obstore: pip install 'sandbox-server[objects]'") from error
        try:
            self._store: Any = (
                stores.from_url(url, mkdir=True)
                if url.startswith("file:")
                else stores.from_url(
                    url,
                    client_options={
                        "timeout": timedelta(seconds=timeout_s),
                        "connect_timeout": timedelta(seconds=min(_CONNECT_S, timeout_s)),
                        "allow_http": True,  # only if the endpoint says so; https otherwise
                    },
                    retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=timeout_s)},
                )
            )
        except (self._obstore.exceptions.BaseError, ValueError) as error:
            raise ValueError(f"SANDBOX_CHECKPOINTS_URL={url}: {error}") from error

    async def put(self, key: str, data: bytes) -> None:
        """Write an object atomically."""
        try:
            await self._obstore.put_async(self._store, key, data, use_multipart=False)
        except self._errors as error:
            raise _told(error) from error

    async def get(self, key: str, most_bytes: int) -> bytes | None:
        """Read an object; None if there is none, or it is larger than the limit."""
        try:
            found = await self._obstore.get_async(self._store, key)
            return bytes(await found.bytes_async()) if found.meta["size"] <= most_bytes else None
        except FileNotFoundError:
            return None
        except self._errors as error:
            raise _told(error) from error

    async def keys(self, folder: str) -> list[str]:
        """The keys below a folder."""
        try:
            return [str(meta["path"]) for meta in await self._obstore.list(self._store, folder).collect_async()]
        except self._errors as error:
            raise _told(error) from error

    async def remove(self, key: str) -> None:
        """Remove an object. Idempotent."""
        try:
            await self._obstore.delete_async(self._store, key)
        except FileNotFoundError:
            pass
        except self._errors as error:
            raise _told(error) from error

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        return (self._obstore.exceptions.BaseError, OSError, ValueError)


def _told(error: Exception) -> ObjectsUnavailable:
    return ObjectsUnavailable(" ".join(str(error).split())[:300])
