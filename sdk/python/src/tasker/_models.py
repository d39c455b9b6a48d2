"""Converts JSON to the types of handlers: dataclasses, models of pydantic, and collections of them."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, TypeVar, Union

from ._errors import Permanent

JSON = Any
T = TypeVar("T")


def converted(value: JSON, model: type[T], of: str, error_type: str) -> T:
    """The value as an object of the model. One that does not fit is a Permanent failure: the next attempt gets
    the same."""
    try:
        return typing.cast(T, _of(model, value))
    except (TypeError, ValueError, KeyError, AttributeError) as e:
        reason = f"{type(e).__name__} {e}" if isinstance(e, KeyError) else str(e)
        raise Permanent(
            f"{of} does not fit {getattr(model, '__name__', model)}: {reason}", error_type=error_type
        ) from e


def has_field(model: object, name: str) -> bool:
    """Whether a model has a field of the name itself."""
    fields = (
        getattr(model, "model_fields", None)
        or getattr(model, "__dataclass_fields__", None)
        or getattr(model, "__annotations__", {})
    )
    return name in fields


def _of(model: Any, value: JSON) -> Any:
    if model is Any or model is object:
        return value
    if callable(validate := getattr(model, "model_validate", None)):
        return validate(value)  # pydantic
    if callable(parse := getattr(model, "from_dict", None)):
        return parse(value)  # generated from a template
    if dataclasses.is_dataclass(model):
        return _dataclass(model, value)
    origin, arguments = typing.get_origin(model), typing.get_args(model)
    if origin in (Union, types.UnionType):
        return _union(arguments, value)
    if origin in (list, tuple, set) and isinstance(value, list):
        items = arguments[:1] if origin is not tuple or arguments[1:] == (...,) else arguments
        if len(items) == 1:
            return origin(_of(items[0], item) for item in value)
        if len(items) != len(value):
            raise ValueError(f"{len(value)} items: want {len(items)}")
        return tuple(_of(one, item) for one, item in zip(items, value))
    if origin is dict and isinstance(value, dict):
        return {key: _of(arguments[1], item) for key, item in value.items()}
    return _plain(origin or model, value)


def _plain(model: Any, value: JSON) -> Any:
    """A value of a built-in type; an integer is a float and a Decimal too."""
    if not isinstance(model, type) or typing.is_typeddict(model):
        return value
    name = model.__name__
    if model in (str, int, float, bool, list, dict, bytes):
        fits = isinstance(value, model) and not (model in (int, float) and isinstance(value, bool))
        if fits or model is float and _numeric(value):
            return value
        raise TypeError(f"{type(value).__name__} instead of {name}")
    if name == "Decimal" and _numeric(value):
        return model(str(value))
    return value


def _numeric(value: JSON) -> bool:
    return not isinstance(value, bool) and (isinstance(value, (int, float)) or type(value).__name__ == "Decimal")


def _union(arguments: tuple[Any, ...], value: JSON) -> Any:
    if value is None and type(None) in arguments:
        return None
    errors = []
    for one in arguments:
        if one is not type(None):
            try:
                return _of(one, value)
            except (TypeError, ValueError, KeyError) as e:
                errors.append(str(e))
    raise TypeError("; ".join(errors))


def _dataclass(model: Any, value: JSON) -> Any:
    if not isinstance(value, dict):
        raise TypeError(f"{type(value).__name__} instead of an object")
    try:
        hints = typing.get_type_hints(model)
    except NameError:  # of types that exist for type checkers only
        hints = {}
    known = {f.name: hints.get(f.name, Any) for f in dataclasses.fields(model) if f.init}
    return model(**{name: _of(known[name], item) for name, item in value.items() if name in known})
