"""Settings against the signatures that they are for: names, types, ranges; and the parts of a system built from them.

A part of a configuration names by `_target_` the class or function that it is for, `_partial_` says that this is called
later, and the rest are arguments. The annotations of parameters say what is allowed, the types below how far it goes.
Configurations come from elsewhere with the cells that they describe. So no `_target_` is looked up outside of this
project and of the packages that the user trusts, see `retable.core.trust`. None is called that makes something else
than what its place takes.
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

# Above is more than any machine holds or counts to.
PositiveInt = Annotated[int, Interval(ge=1, le=10**12)]
NonNegativeInt = Annotated[int, Interval(ge=0, le=10**12)]
Seed = Annotated[int, Interval(ge=0, le=2**32 - 1)]
Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Share = Annotated[float, Interval(ge=0, le=1)]
Rate = Annotated[float, Interval(ge=0, lt=1)]  # of dropout, or of what is forgotten: some must stay
Warmup = Annotated[float, Interval(ge=0, le=100)]  # times the run, which may be cut short before its end
LearningRate = Annotated[float, Interval(ge=0, le=1000)]
Sizes = Annotated[Sequence[PositiveInt], MinLen(1)]
Filters = Annotated[Sequence[tuple[PositiveInt, PositiveInt]], MinLen(1)]  # of convolutions: width, features
Bound = Annotated[float, Gt(0), "or infinite"]  # .inf: none
WholeNumber = Annotated[float, Ge(1), MultipleOf(1)]  # 1e3 too, which YAML reads as a float

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
    """The annotation of a setting that is a part: where its class or function is, and which arguments are `given`."""

    within: Within
    given: Sequence[str] = ()
    partial: bool = False  # it is called later
    several: bool = False  # each part has a name


class Schema:
    """A group of settings by their names: a subclass annotates each. `closed`: no other setting is known."""

    closed = False


class SettingError(UsageError):
    """A mistake in one setting. The message contains its `name`."""

    def __init__(self, name: str, message: str):
        super().__init__(message)
        self.name = name


def build(part: Part, name: str, place: Any = None, within: Within = OWN, **given: Any) -> Any:
    """Call what `part` is for, or with `_partial_` have it ready to be called; `given` are the arguments that no
    configuration holds. UsageError as `check`, and where settings can't be together."""
    try:
        part = _copied(part, count(1))
    except RecursionError:
        raise UsageError(f"{name} has settings that stand within themselves; write them out") from None
    later = isinstance(part, Mapping) and part.get("_partial_", False)
    check(part, name, place, None if later else given, within=within)
    try:
        ready = _ready(part, within, **given)
        return ready if later else ready()
    except ValueError as error:  # of settings that are wrong together
        raise UsageError(f"{name}: {' '.join(str(error).split())}") from error


def _copied(value: Any, number: Iterator[int]) -> Any:
    """With mappings and lists of whatever kind as Python's own. UsageError for more values than anyone writes: those of
    a YAML file whose anchors stand for each other are counted as often as they stand somewhere."""
    if next(number) > _MOST:
        raise UsageError(f"there are more than {_MOST} settings in a part; copy the cell anew from where it came")
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
    """The class or function that a `_target_` names, by the module that defines it: of this project `within` a package,
    or of one that the user trusts. UsageError for any other, of which nothing is imported."""
    if not isinstance(target, str):
        raise UsageError(f"_target_={shown(target)} is none of {named(within)}, and no other is looked up")
    require_trusted(target, within)
    module, _, name = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):  # a mistake in the module itself
            raise
        raise UsageError(_missing(target, str(error.name))) from error
    if found is None:  # a module that nothing has imported yet
        with contextlib.suppress(ModuleNotFoundError):
            found = importlib.import_module(target)
    if inspect.ismodule(found) and found.__name__ == target:
        own = [key for key, each in vars(found).items() if getattr(each, "__module__", None) == target]
        names = ", ".join(key for key in own if not key.startswith("_"))
        raise UsageError(f"{target} is a module; write {target}.NAME{f' of {names}' if names else ''}")
    if not callable(found) or name.startswith("_"):
        raise UsageError(_missing(target, target))
    owner = f"{found.__module__}."
    if not owner.startswith(within) and not is_trusted(owner):
        raise UsageError(_missing(target, target))
    return found


def target_of(part: Any, name: str) -> Callable[..., Any]:
    """`resolve` of what a part is for; UsageError for what is no part, too."""
    if not isinstance(part, Mapping) or "_target_" not in part:
        raise UsageError(f"{name}={shown(part)} should be a part, with a _target_: the class that it is for")
    return resolve(part["_target_"])


def _missing(target: str, part: str) -> str:
    return f"there is no {part}; write as _target_, in place of {target}, the module and name of one that there is"


def parameters(part: Any, name: str) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of the class or function of a part."""
    return inspect.signature(target_of(part, name)).parameters


def check_all(
    values: Mapping[str, Any], schema: Mapping[str, Any], given_else: Collection[str], prefix: str = ""
) -> None:
    """Raise SettingError for a value that does not fit its annotation in `schema`; values without one are not checked.

    An annotation is a type, a `Takes` or a `Schema`. The caller gives a part the arguments that its `Takes` lists;
    those in `given_else` may be set as well.
    """
    for key, value in values.items():
        if key in schema:
            _check_one(value, schema[key], f"{prefix}{key}", given_else)


def _check_one(value: Any, annotation: Any, name: str, given_else: Collection[str]) -> None:
    takes = next((each for each in get_args(annotation) if isinstance(each, Takes)), None)
    if inspect.isclass(annotation) and issubclass(annotation, Schema):
        require(value, Mapping[str, Any], name)
        schema = get_type_hints(annotation, include_extras=True)
        unknown = next((key for key in value if annotation.closed and key not in schema), None)
        if unknown is not None:
            own = f"{name}.{unknown}"
            raise SettingError(own, f"no task reads {own}; {closest(unknown, schema)}")
        check_all(value, schema, given_else, f"{name}.")
    elif takes is None:
        require(value, annotation, name)
    elif takes.several:
        require(value, Mapping[str, Any], name)
        for key, each in value.items():
            _check_one(each, Annotated[Any, takes._replace(several=False)], f"{name}.{key}", given_else)
    elif value is not None:
        keys = [*value] if isinstance(value, Mapping) else []
        given = [each for each in takes.given if each not in keys or each not in given_else]
        check(value, name, None, given, takes.within)
        if value.get("_partial_", False) != takes.partial:
            raise SettingError(name, f"{name}._partial_ should be {str(takes.partial).lower()}")


def check(part: Any, name: str, place: Any = None, given: Collection[str] | None = None, within: Within = OWN) -> None:
    """Raise SettingError for what can't be called with the settings of `part`.

    place: the type of what it is to make, None for any. given: the arguments that the caller adds, None where they are
    not known. within: the package that its `_target_` stands in.
    """
    if not isinstance(part, Mapping) or "_target_" not in part:
        raise SettingError(name, f"{name}={shown(part)} should be a part, with a _target_: the class that it is for")
    for mark in (key for key in part if str(key).startswith("_") and key not in _MARKS):
        own = f"{name}.{mark}"
        raise SettingError(own, f"{own} is no setting; beside _target_ only _partial_ is")
    require(part.get("_partial_", False), bool, f"{name}._partial_")
    try:
        target = resolve(part["_target_"], within)
    except UsageError as error:
        raise SettingError(name, f"{name}: {error}") from error
    if place is not None and not makes(target, place, bool(part.get("_partial_"))):
        raise SettingError(name, f"{name} can't be {part['_target_']}; it has to be {_described(place)}")
    every = inspect.signature(target).parameters
    named = {key: each for key, each in every.items() if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)}
    further = next((each for each in every.values() if each.kind == each.VAR_KEYWORD), None)
    for key, value in part.items():
        if key in _MARKS:
            continue
        own = f"{name}.{key}"
        if given is not None and key in given:
            raise SettingError(own, f"{own}={shown(value)} is no setting: it comes of the data")
        if (parameter := named.get(str(key), further)) is None:
            raise _unknown(target, name, str(key), [each for each in named if each not in (given or ())])
        check_value(value, _annotation(target, parameter.annotation), own)
    for key, parameter in named.items():
        if given is not None and parameter.default is parameter.empty and key not in part and key not in given:
            raise SettingError(f"{name}.{key}", f"{name}.{key} is missing, which {target.__name__} asks for")


def check_value(value: Any, annotation: Any, name: str) -> None:
    """Raise SettingError for a value that is not of the annotated type: for a part, as `check`."""
    if isinstance(value, Mapping) and "_target_" in value:
        check(value, name, annotation, _given_later(annotation) if value.get("_partial_") else ())
    elif not _is_plain(value):
        raise SettingError(name, f"{name} has a _target_ where no part can stand")
    else:
        require(value, annotation, name)


def _given_later(place: Any) -> Collection[str] | None:
    """The arguments of what is called later: of any, those that come of a text."""
    calls = [get_args(member) for member in _members(place) if _plain(member) is Callable]
    return _OF_TEXTS if any(call and call[0] is ... for call in calls) else None


def require(value: Any, annotation: Any, name: str) -> None:
    """Raise SettingError for a plain value that is not of the annotated type, or out of its range."""
    members = _members(annotation)
    if any(each in _ANYTHING for each in members) or (value is None and type(None) in members):
        return
    if annotation == Bound and value == math.inf:
        return
    from pydantic import ValidationError

    nothing = " or null" if type(None) in members else ""
    plain = tuple(each for each in members if _holds_values(each))
    if not plain:
        raise SettingError(name, f"{name}={shown(value)} should be a part, with a _target_{nothing}")
    try:
        # JSON is strict with numbers and texts, and has one kind of list.
        _adapter(typing.Union[plain]).validate_json(json.dumps(value, default=str))  # noqa: UP007
    except ValidationError as error:
        said = dict.fromkeys(expected(each) for each in error.errors(include_url=False))
        raise SettingError(name, f"{name}={shown(value)} should be {' or '.join(said)}{nothing}") from error


def shown(value: Any) -> str:
    """A value as YAML has it, in one line, its beginning where it is long."""
    json_of = json.JSONEncoder(ensure_ascii=False, check_circular=False, default=str).iterencode
    text = value if isinstance(value, str) else "".join(islice(json_of(value), 61))  # the rest is not made
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split()) or repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def expected(error: Mapping[str, Any]) -> str:
    """What a value should be, in the words of pydantic's error."""
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
            return f"a text of at most {error['ctx']['max_length']} letters{where}"
        case "string_pattern_mismatch":
            return f"a text in one line{where}"
        case "list_type" | "tuple_type" | "iterable_type":
            return f"a list{where}"
        case "too_short":
            return f"a list of at least {error['ctx']['min_length']}{where}"
        case "too_long":
            return f"a list of at most {error['ctx']['max_length']}{where}"
        case "dict_type" | "mapping_type" | "model_type":
            return f"settings by their names{where}"
        case "json_invalid":
            return "text that can be written"
    return error["msg"].removeprefix("Input should be ").removeprefix("Value error, ") + where


@functools.cache
def _adapter(annotation: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter

    config = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
    return TypeAdapter(annotation, config=config)


def _annotation(target: Callable[..., Any], annotation: Any) -> Any:
    """The type that it stands for; any where its name is only known to type checkers."""
    if not isinstance(annotation, str):
        return annotation
    owner = inspect.unwrap(target)
    try:
        # Source code of the project's own, or of a package that the user trusts.
        return eval(annotation, vars(importlib.import_module(owner.__module__)))  # noqa: S307
    except NameError:
        return Any


def makes(target: Callable[..., Any], place: Any, partial: bool = False) -> bool:
    """Whether what a class or function makes, or if `partial` makes later, can stand where `place` is asked for: by the
    class, or by what the function says that it returns."""
    is_class = inspect.isclass(target)
    made = target if is_class else _annotation(target, inspect.signature(target).return_annotation)
    return _fits(_plain(made), place, partial, is_class)


def _fits(kind: Any, place: Any, partial: bool, is_class: bool) -> bool:
    for member in _members(place):
        wanted = _plain(member)
        if member in _ANYTHING:
            if is_class:
                return True
        elif wanted is Callable:
            if partial and _fits(kind, get_args(member)[1], False, is_class):
                return True
        elif not partial and inspect.isclass(kind) and inspect.isclass(wanted) and _is_a(kind, wanted):
            return True
    return False


def _is_a(kind: type, wanted: type) -> bool:
    """Whether a class is another one, or has the methods of a protocol."""
    if not getattr(wanted, "_is_protocol", False):
        return issubclass(kind, wanted)
    members = {name: value for each in wanted.__mro__[:-1] for name, value in vars(each).items()}
    methods = [name for name, value in members.items() if inspect.isfunction(value)]
    return all(callable(getattr(kind, name, None)) for name in methods if name == "__call__" or name[0] != "_")


def _members(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) in (typing.Union, types.UnionType):
        return tuple(inner for each in get_args(annotation) for inner in _members(each))
    return (type(None) if annotation is None else annotation,)


def _holds_values(annotation: Any) -> bool:
    """Whether values have this type, and not parts alone."""
    kind = _plain(annotation)
    return kind in _OF_VALUES or kind is typing.Literal


def _plain(annotation: Any) -> Any:
    """The class of a generic type, or of one in a range."""
    annotation = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return get_origin(annotation) or annotation


def _described(place: Any) -> str:
    return " or ".join(getattr(each, "__name__", str(each)) for each in _members(place))


def _is_plain(value: Any) -> bool:
    """Whether no part hides in a list or a mapping."""
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
        f"{target.__name__} takes no {name}{near}; a recipe that brings it (recipe=) is for another choice of {part}: "
        f"choose another of the two, or leave the setting out, ~{name}",
    )
