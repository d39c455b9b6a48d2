"""JSON with exact numbers, and a form for bytes."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import re
import secrets
from dataclasses import dataclass
from decimal import Decimal, DecimalException
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
            raise ValueError(
                f"invalid content_type {self.content_type[:64]!r}: "
                f"want a media type of at most {_MAX_TYPE} bytes, such as image/png"
            )

    @property
    def base64(self) -> str:
        """The data as they are on the wire."""
        return base64.b64encode(self.data).decode()


def dumps(value: JSON) -> str:
    """The JSON text of a value. It may have Bytes, Decimals, dataclasses and pydantic models in it; numbers keep all
    of their digits."""
    try:
        text = _ENCODER.encode(value)
    except ValueError as e:
        if "int_max_str_digits" in str(e):  # the limit that protects programs from slow conversions of input
            text = _ENCODER.encode(_marked_integers(value))
        elif "Out of range float" in str(e):
            raise ValueError(_NOT_FINITE) from e
        else:
            raise
    return _MARKED.sub(r"\1", text) if _MARK in text else text


def loads(text: str | bytes) -> JSON:
    """The value of a JSON text, with Bytes in it. A number that a float would change is a Decimal."""
    text = text if isinstance(text, str) else text.decode()
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError as e:
        if "int_max_str_digits" not in str(e):
            raise
        return _SLOW_DECODER.decode(text)


# The encoder of the standard library writes no number but its own. Others are texts with a mark in front of them, random
# for each process, until the whole text is there.
_MARK = secrets.token_hex(16)
_MARKED = re.compile(f'"{_MARK}([^"]*)"')
_NOT_FINITE = "invalid number: JSON has no NaN and no Infinity"


def _form(value: object) -> JSON:
    if isinstance(value, Bytes):
        return {"$bytes": value.base64, "content_type": value.content_type}
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError(_NOT_FINITE)
        return _MARK + str(value)
    if isinstance(value, type):
        raise TypeError(f"the class {value.__name__} is not JSON serializable")
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json")  # a model of pydantic
    if dataclasses.is_dataclass(value):
        if callable(convert := getattr(value, "to_dict", None)):
            return convert()  # generated from a template
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _marked_integers(value: JSON) -> JSON:
    """The value with all integers as Decimals, which have no limit of digits."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if isinstance(value, dict):
        return {key: _marked_integers(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_marked_integers(item) for item in value]
    return value


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_form)


def _number(text: str) -> float | Decimal:
    """A float if it has the same value, else a Decimal."""
    number = float(text)
    if repr(number) == text:
        return number
    try:
        exact = Decimal(text)
        return number if Decimal(repr(number)) == exact else exact
    except DecimalException as e:
        raise ValueError(f"invalid number {text[:64]!r}: want an exponent of at most 18 digits") from e


def _integer(text: str) -> int:
    """An integer of any length."""
    return int(Decimal(text))


def _constant(text: str) -> JSON:
    raise ValueError(_NOT_FINITE)


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


_DECODER = json.JSONDecoder(object_hook=_bytes_or_object, parse_float=_number, parse_constant=_constant)
_SLOW_DECODER = json.JSONDecoder(
    object_hook=_bytes_or_object, parse_float=_number, parse_int=_integer, parse_constant=_constant
)
