"""Check settings against the signatures of classes and functions, and build the parts of a system from settings.

A part of a configuration names a class or function under `_target_`; its other keys are arguments. With `_partial_`,
the class or function is not called yet, but the part becomes a callable. The annotations of parameters determine the
allowed values; the types below define ranges of numbers. Configurations may come from other people, together with
cells. Therefore a `_target_` is looked up only in this project and in packages that the user trusts
(`retable.core.trust`). A `_target_` is called only if its result has the type that the setting requires.
"""

import contextlib
import functools
import importlib
import inspect
import json
import math
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Interval, MinLen, MultipleOf

from retable.core.errors import UsageError, closest
from retable.core.trust import Within, is_trusted, named, require_trusted

# No machine has the memory or time for values near the upper bounds of these types.
PositiveInt = Annotated[int, Interval(ge=1, le=10**12)]
NonNegativeInt = Annotated[int, Interval(ge=0, le=10**12)]
Seed = Annotated[int, Interval(ge=0, le=2**32 - 1)]
Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Share = Annotated[float, Interval(ge=0, le=1)]
Rate = Annotated[float, Interval(ge=0, lt=1)]  # share of items to drop, as in dropout; a rate of 1 would drop all items
Warmup = Annotated[float, Interval(ge=0, le=100)]  # warm-up as a share of the run; above 1, warm-up never ends
LearningRate = Annotated[float, Interval(ge=0, le=1000)]
Sizes = Annotated[Sequence[PositiveInt], MinLen(1)]
Filters = Annotated[Sequence[tuple[PositiveInt, PositiveInt]], MinLen(1)]  # (width, number of features) per convolution
Bound = Annotated[float, Gt(0), "or infinite"]  # .inf means no bound
WholeNumber = Annotated[float, Ge(1), MultipleOf(1)]  # has the type float, because YAML reads 1e3 as a float

OWN = "retable."
_MOST = 100_000
_MARKS = ("_target_", "_partial_")
_OF_TEXTS = (
    *("vocab_size", "boundary", "words", "marks", "tokens", "units", "line_end", "seed", "path"),
    *("batch_size", "length"),
)
_ANYTHING = (Any, object, inspect.Parameter.empty)
_OF_VALUES = (int, float, str, bool, Path, list, tuple, dict, Sequence, Iterable, Mapping)

Part = Mapping[str, Any]


class Takes(NamedTuple):
    """Annotation of a setting that is a part, which is a mapping with a `_target_`."""

    within: Within  # the package that the `_target_` must be in
    given: Sequence[str] = ()  # arguments that the caller adds
    partial: bool = False  # whether the part is called later
    several: bool = False  # whether the setting is a mapping from names to parts


class Schema:
    """Base class of groups of settings: a subclass annotates each setting with its type.

    If `closed` is true, settings without annotation are errors.
    """

    closed = False


class SettingError(UsageError):
    """A mistake in one setting, whose `name` is part of the message."""

    def __init__(self, name: str, message: str):
        super().__init__(message)
        self.name = name


def build(part: Part, name: str, place: Any = None, within: Within = OWN, **given: Any) -> Any:
    """Build the object that `part` describes; with `_partial_`, return a callable that builds the object.

    Args:
        part: settings with a `_target_`.
        name: name of the setting in messages.
        place: the type that the result must have; None for any type.
        within: the package that the `_target_` must be in.
        given: additional arguments, which the configuration must not contain.

    Raises: UsageError: `check` finds a mistake, or the target rejects the combination of settings.
    """
    try:
        part = _copied(part, count(1))
    except RecursionError:
        raise UsageError(f"{name} contains itself through a YAML alias; write the settings without the alias") from None
    later = isinstance(part, Mapping) and part.get("_partial_", False)
    check(part, name, place, None if later else given, within=within)
    try:
        ready = _ready(part, within, **given)
        return ready if later else ready()
    except ValueError as error:  # each setting is valid, but not their combination
        raise UsageError(f"{name}: {' '.join(str(error).split())}") from error


def _copied(value: Any, number: Iterator[int]) -> Any:
    """Convert mappings and lists to `dict` and `list`, including nested ones.

    Raises: UsageError: there are more than _MOST values. Values of a YAML alias are counted at each use, so that a
    small file cannot expand without limit.
    """
    if next(number) > _MOST:
        raise UsageError(f"a part has more than {_MOST} settings; copy the cell again from its source")
    if isinstance(value, Mapping):
        return {key: _copied(each, number) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_copied(each, number) for each in value]
    return value


def _ready(part: Part, within: Within = OWN, **given: Any) -> Callable[[], Any]:
    own = {key: _built(value) for key, value in part.items() if key not in _MARKS}
    return functools.partial(resolve(part["_target_"], within), **own, **given)


def _built(value: Any) -> Any:
    if not isinstance(value, Mapping) or "_target_" not in value:
        return value
    return _ready(value) if value.get("_partial_") else _ready(value)()


def resolve(target: Any, within: Within = OWN) -> Callable[..., Any]:
    """Import and return the class or function that a `_target_` names.

    The target must be defined in the package `within` of this project, or in a package that the user trusts. Other
    targets are not imported.

    Raises: UsageError: the target is not allowed, does not exist, or is a module.
    """
    if not isinstance(target, str):
        raise UsageError(f"_target_={shown(target)} is not in {named(within)}; write a class or function from there")
    require_trusted(target, within)
    module, _, name = target.rpartition(".")
    try:
        resolved = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):  # the module exists, but an import inside it fails
            raise
        raise UsageError(_missing(target, str(error.name))) from error
    if resolved is None:  # the target may be a module that has not been imported
        with contextlib.suppress(ModuleNotFoundError):
            resolved = importlib.import_module(target)
    if inspect.ismodule(resolved) and resolved.__name__ == target:
        own = [key for key, each in vars(resolved).items() if getattr(each, "__module__", None) == target]
        names = ", ".join(key for key in own if not key.startswith("_"))
        raise UsageError(f"{target} is a module; write {target}.NAME{f' of {names}' if names else ''}")
    if not callable(resolved) or name.startswith("_"):
        raise UsageError(_missing(target, target))
    owner = f"{resolved.__module__}."
    if not owner.startswith(within) and not is_trusted(owner):
        raise UsageError(_missing(target, target))
    return resolved


def target_of(part: Any, name: str) -> Callable[..., Any]:
    """Return the class or function that a part names under `_target_`.

    Args:
        name: name of the part in messages.

    Raises: UsageError: the part has no `_target_`, or the target does not exist.
    """
    if not isinstance(part, Mapping) or "_target_" not in part:
        raise UsageError(f"{name}={shown(part)} must be a mapping with a _target_, a class or function")
    return resolve(part["_target_"])


def _missing(target: str, part: str) -> str:
    return f"there is no {part}; write as _target_ the full name of an existing class or function, not {target}"


def parameters(part: Any, name: str) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of the class or function that a part names.

    Raises: UsageError: the part has no `_target_`, or the target does not exist.
    """
    return inspect.signature(target_of(part, name)).parameters


def check_all(
    values: Mapping[str, Any], schema: Mapping[str, Any], added_by_caller: Collection[str], prefix: str = ""
) -> None:
    """Raise SettingError for the first value that does not fit its annotation in `schema`.

    Args:
        values: settings by name; settings that are not in `schema` are not checked.
        schema: the annotation of each setting: a type, a `Takes` or a `Schema`.
        added_by_caller: arguments that a configuration may set although the caller of the part usually adds them.
        prefix: text before each name in messages.
    """
    for key, value in values.items():
        if key in schema:
            _check_one(value, schema[key], f"{prefix}{key}", added_by_caller)


def _check_one(value: Any, annotation: Any, name: str, added_by_caller: Collection[str]) -> None:
    takes = next((each for each in get_args(annotation) if isinstance(each, Takes)), None)
    if inspect.isclass(annotation) and issubclass(annotation, Schema):
        require(value, Mapping[str, Any], name)
        schema = get_type_hints(annotation, include_extras=True)
        unknown = next((key for key in value if annotation.closed and key not in schema), None)
        if unknown is not None:
            own = f"{name}.{unknown}"
            raise SettingError(own, f"no task has a setting {own}; {closest(unknown, schema)}")
        check_all(value, schema, added_by_caller, f"{name}.")
    elif takes is None:
        require(value, annotation, name)
    elif takes.several:
        require(value, Mapping[str, Any], name)
        for key, each in value.items():
            _check_one(each, Annotated[Any, takes._replace(several=False)], f"{name}.{key}", added_by_caller)
    elif value is not None:
        keys = [*value] if isinstance(value, Mapping) else []
        given = [each for each in takes.given if each not in keys or each not in added_by_caller]
        check(value, name, None, given, takes.within)
        if value.get("_partial_", False) != takes.partial:
            raise SettingError(name, f"{name}._partial_ must be {str(takes.partial).lower()}")


def check(part: Any, name: str, place: Any = None, given: Collection[str] | None = None, within: Within = OWN) -> None:
    """Raise SettingError if the class or function of `part` cannot be called with its settings.

    Args:
        part: settings with a `_target_`.
        name: name of the setting in messages.
        place: the type that the result must have; None for any type.
        given: arguments that the caller adds. None if these arguments are unknown; missing arguments are then not
            detected.
        within: the package that the `_target_` must be in.
    """
    if not isinstance(part, Mapping) or "_target_" not in part:
        raise SettingError(name, f"{name}={shown(part)} must be a mapping with a _target_, a class or function")
    for mark in (key for key in part if str(key).startswith("_") and key not in _MARKS):
        own = f"{name}.{mark}"
        raise SettingError(own, f"{own} is not a setting; the only names with underscores are _target_ and _partial_")
    require(part.get("_partial_", False), bool, f"{name}._partial_")
    try:
        target = resolve(part["_target_"], within)
    except UsageError as error:
        raise SettingError(name, f"{name}: {error}") from error
    if place is not None and not makes(target, place, bool(part.get("_partial_"))):
        raise SettingError(name, f"{name} cannot be {part['_target_']}; it must be {_described(place)}")
    every = inspect.signature(target).parameters
    named = {key: each for key, each in every.items() if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)}
    further = next((each for each in every.values() if each.kind == each.VAR_KEYWORD), None)
    for key, value in part.items():
        if key in _MARKS:
            continue
        own = f"{name}.{key}"
        if given is not None and key in given:
            raise SettingError(own, f"{own}={shown(value)} cannot be set: it comes from the data; remove it")
        if (parameter := named.get(str(key), further)) is None:
            raise _unknown(target, name, str(key), [each for each in named if each not in (given or ())])
        check_value(value, _annotation(target, parameter.annotation), own)
    for key, parameter in named.items():
        if given is not None and parameter.default is parameter.empty and key not in part and key not in given:
            raise SettingError(f"{name}.{key}", f"{name}.{key} is missing; {target.__name__} requires it")


def check_value(value: Any, annotation: Any, name: str) -> None:
    """Raise SettingError if a value does not have the annotated type; values with a `_target_` are passed to `check`.

    Args:
        annotation: type of the parameter.
        name: name of the setting in messages.
    """
    if isinstance(value, Mapping) and "_target_" in value:
        check(value, name, annotation, _given_later(annotation) if value.get("_partial_") else ())
    elif not _is_plain(value):
        raise SettingError(name, f"{name} contains a _target_ but only plain values are allowed; remove it")
    else:
        require(value, annotation, name)


def _given_later(place: Any) -> Collection[str] | None:
    """Return the arguments that the caller adds to a part with `_partial_`, or None if the arguments are unknown.

    For a setting of type `Callable[..., T]`, the caller adds the arguments that are derived from a text.
    """
    calls = [get_args(member) for member in _members(place) if _plain(member) is Callable]
    return _OF_TEXTS if any(call and call[0] is ... for call in calls) else None


def require(value: Any, annotation: Any, name: str) -> None:
    """Raise SettingError if a plain value has the wrong type or is out of range.

    A plain value does not contain a `_target_`.

    Args:
        annotation: type of the parameter.
        name: name of the setting in messages.
    """
    members = _members(annotation)
    if any(each in _ANYTHING for each in members) or (value is None and type(None) in members):
        return
    if annotation == Bound and value == math.inf:
        return
    from pydantic import ValidationError

    nothing = " or null" if type(None) in members else ""
    plain = tuple(each for each in members if _holds_values(each))
    if not plain:
        raise SettingError(name, f"{name}={shown(value)} must be a mapping with a _target_{nothing}")
    try:
        # The value is validated as JSON, because JSON distinguishes numbers from texts and does not distinguish lists
        # from tuples.
        _adapter(typing.Union[plain]).validate_json(json.dumps(value, default=str))  # noqa: UP007
    except ValidationError as error:
        options = dict.fromkeys(expected(each) for each in error.errors(include_url=False))
        raise SettingError(name, f"{name}={shown(value)} should be {' or '.join(options)}{nothing}") from error


def shown(value: Any) -> str:
    """Format a value for a message, in one line of at most 60 characters."""
    json_of = json.JSONEncoder(ensure_ascii=False, check_circular=False, default=str).iterencode
    text = value if isinstance(value, str) else "".join(islice(json_of(value), 61))  # lazy: values can be large
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split()) or repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def expected(error: Mapping[str, Any]) -> str:
    """Describe the value that a pydantic error asks for, such as "a whole number"."""
    inner = [str(place) for place in error["loc"] if isinstance(place, int)]
    where = f" (item {'.'.join(inner)})" if inner else ""
    match error["type"]:
        case "int_type" | "int_from_float" | "int_parsing_size":
            return f"a whole number{where}"
        case "float_type":
            return f"a number{where}"
        case "bool_type":
            return f"true or false{where}"
        case "string_type":
            return f"text{where}"
        case "string_too_short":
            return f"a text that is not empty{where}"
        case "string_too_long":
            return f"a text of at most {error['ctx']['max_length']} characters{where}"
        case "string_pattern_mismatch":
            return f"a text in one line{where}"
        case "list_type" | "tuple_type" | "iterable_type":
            return f"a list{where}"
        case "too_short":
            return f"a list of at least {error['ctx']['min_length']}{where}"
        case "too_long":
            return f"a list of at most {error['ctx']['max_length']}{where}"
        case "dict_type" | "mapping_type" | "model_type":
            return f"settings by name{where}"
        case "json_invalid":
            return "text that can be written"
    return error["msg"].removeprefix("Input should be ").removeprefix("Value error, ") + where


@functools.cache
def _adapter(annotation: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter

    config = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
    return TypeAdapter(annotation, config=config)


def _annotation(target: Callable[..., Any], annotation: Any) -> Any:
    """Evaluate an annotation that is a string; return Any for a name that only type checkers import."""
    if not isinstance(annotation, str):
        return annotation
    owner = inspect.unwrap(target)
    try:
        # The annotation is source code of this project or of a trusted package, so eval is safe.
        return eval(annotation, vars(importlib.import_module(owner.__module__)))  # noqa: S307
    except NameError:
        return Any


def makes(target: Callable[..., Any], place: Any, partial: bool = False) -> bool:
    """Check whether calling a class or function results in a value of the type `place`; return annotations are trusted.

    partial: whether the part has `_partial_`; then `place` must be a Callable that returns the result.
    """
    is_class = inspect.isclass(target)
    made = target if is_class else _annotation(target, inspect.signature(target).return_annotation)
    return _fits(_plain(made), place, partial, is_class)


def _fits(kind: Any, place: Any, partial: bool, is_class: bool) -> bool:
    for member in _members(place):
        required = _plain(member)
        if member in _ANYTHING:
            if is_class:
                return True
        elif required is Callable:
            if partial and _fits(kind, get_args(member)[1], False, is_class):
                return True
        elif not partial and inspect.isclass(kind) and inspect.isclass(required) and _is_a(kind, required):
            return True
    return False


def _is_a(kind: type, required: type) -> bool:
    """Check whether a class is a subclass of `required`, or has all methods of a protocol."""
    if not getattr(required, "_is_protocol", False):
        return issubclass(kind, required)
    members = {name: value for each in required.__mro__[:-1] for name, value in vars(each).items()}
    methods = [name for name, value in members.items() if inspect.isfunction(value)]
    return all(callable(getattr(kind, name, None)) for name in methods if name == "__call__" or name[0] != "_")


def _members(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) in (typing.Union, types.UnionType):
        return tuple(inner for each in get_args(annotation) for inner in _members(each))
    return (type(None) if annotation is None else annotation,)


def _holds_values(annotation: Any) -> bool:
    """Check whether plain values can have this type; other types need a mapping with a `_target_`."""
    kind = _plain(annotation)
    return kind in _OF_VALUES or kind is typing.Literal


def _plain(annotation: Any) -> Any:
    """Return the class in a generic or annotated type, such as `list` for `list[int]`."""
    annotation = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return get_origin(annotation) or annotation


def _described(place: Any) -> str:
    return " or ".join(getattr(each, "__name__", str(each)) for each in _members(place))


def _is_plain(value: Any) -> bool:
    """Check that a value and its nested lists and mappings do not contain a `_target_`."""
    match value:
        case dict():
            return "_target_" not in value and all(map(_is_plain, value.values()))
        case list():
            return all(map(_is_plain, value))
    return True


def _unknown(target: Any, part: str, key: str, known: list[str]) -> SettingError:
    name = f"{part}.{key}"
    near = f"; {closest(key, known)}" if known else ""
    return SettingError(
        name,
        f"{target.__name__} takes no {name}{near}; if the recipe (recipe=) sets it for another choice of {part}, "
        f"change one of the two, or remove the setting: ~{name}",
    )
