"""JSON, with a form for bytes."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import Any

JSON = Any

_MAX_TYPE = 255
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA_TYPE = re.compile(rf'{_TOKEN}/{_TOKEN}( *; *{_TOKEN}=({_TOKEN}|"([ !#-\[\]-~]|\\[ -~])*"))*')


@dataclass(frozen=True)
class Bytes:
    """Opaque bytes with their media type, where everything else is JSON: as the result of a handler, or
    anywhere inside of results, contexts and checkpoints. They are stored in base64."""

    data: bytes
    content_type: str = "application/octet-stream"

    def __post_init__(self) -> None:
        if not isinstance(self.data, bytes):
            raise TypeError(f"invalid data of type {type(self.data).__name__}: want bytes")
        if len(self.content_type) > _MAX_TYPE or not _MEDIA_TYPE.fullmatch(self.content_type):
            raise ValueError(f"invalid content_type {self.content_type[:64]!r}: want a media type of at most {_MAX_TYPE} bytes, such as image/png")

    @property
    def base64(self) -> str:
        """The data as they are on the wire."""
        return base64.b64encode(self.data).decode()


def dumps(value: JSON) -> str:
    """The JSON text of a value that may have Bytes in it."""
    return _ENCODER.encode(value)


def loads(text: str | bytes) -> JSON:
    """The value of a JSON text, with Bytes in it."""
    return _DECODER.decode(text if isinstance(text, str) else text.decode())


def _form(value: object) -> JSON:
    if isinstance(value, Bytes):
        return {"$bytes": value.base64, "content_type": value.content_type}
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_form)


def _bytes_or_object(value: dict[str, JSON]) -> JSON:
    if len(value) != 2 or "$bytes" not in value:
        return value
    text, content_type = value["$bytes"], value.get("content_type")
    if not isinstance(text, str) or not isinstance(content_type, str):
        return value
    try:
        found = Bytes(binascii.a2b_base64(text.encode("ascii")), content_type)
    except ValueError:
        return value
    return found if found.base64 == text else value


_DECODER = json.JSONDecoder(object_hook=_bytes_or_object)
