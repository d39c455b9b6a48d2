"""Calls of other services, with failures that say whether another attempt may help."""

from __future__ import annotations

import email.utils
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, Mapping

from ._bytes import dumps, loads
from ._errors import Permanent, Retryable

JSON = Any


@dataclass(frozen=True)
class ApiResponse:
    """An answer; body is parsed JSON or text."""

    status: int
    headers: Mapping[str, str]
    body: JSON

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def retryable(self) -> bool:
        """Another attempt may help: 408, 425, 429 and 5xx."""
        return self.status in (408, 425, 429) or self.status >= 500

    @property
    def retry_after(self) -> float:
        """Seconds from Retry-After, a number or a date; 0 without one."""
        text = next((v for k, v in self.headers.items() if k.lower() == "retry-after"), "")
        if text.strip().isdigit():
            return float(text)
        try:
            return max(email.utils.parsedate_to_datetime(text).timestamp() - time.time(), 0)
        except (TypeError, ValueError):
            return 0

    def check(self) -> ApiResponse:
        """Raises Retryable or Permanent unless the answer is a success."""
        if self.ok:
            return self
        message, code = f"the service answered {self.status}", f"HTTP_{self.status}"
        if self.retryable:
            raise Retryable(message, code=code, error_type="ApiError", after=self.retry_after)
        raise Permanent(message, code=code, error_type="ApiError")


def api_call(
    method: str, url: str, body: JSON = None, headers: Mapping[str, str] | None = None, timeout: float = 30
) -> ApiResponse:
    """Sends one request. A service that cannot be reached is Retryable; check judges answers."""
    if not url.startswith(("http://", "https://")):
        raise Permanent(f"invalid url {url!r}: want http or https", error_type="ApiError")
    data = None if body is None else dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return _response(answer.status, dict(answer.headers.items()), answer.read())
    except urllib.error.HTTPError as e:
        with e:
            return _response(e.code, dict(e.headers.items()), e.read())
    except OSError as e:
        raise Retryable(f"the service cannot be reached: {e}", code="UNREACHABLE", error_type="ApiError") from e


def _response(status: int, headers: Mapping[str, str], content: bytes) -> ApiResponse:
    try:
        return ApiResponse(status, headers, loads(content))
    except ValueError:
        return ApiResponse(status, headers, content.decode(errors="replace"))
