"""Checks at the doors of the package: one function per kind of argument, and ``@checked``, which
reads them from annotations.

A door is what a notebook, the command line or the README calls. A door checks its arguments once;
the functions behind it do not check again. ``function.__wrapped__`` is a checked function without
its checks, for inner loops.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from torch import Tensor

Check = Callable[[str, Any], Any]
F = TypeVar("F", bound=Callable[..., Any])
LARGEST = 1e100


def shown(value: Any) -> str:
    """A value as an error message shows it: numbers and short texts as they are, tensors by shape,
    others by type.
    """
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)} and dtype {value.dtype}"
    if value is None or isinstance(value, (bool, int, float, str)):
        text = repr(value)
        return text if len(text) <= 40 else text[:37] + "..."
    return f"a {type(value).__name__}"


def number(name: str, value: Any, low: float = -LARGEST, high: float = LARGEST) -> float:
    """A finite number from ``low`` to ``high``. By default at most 1e100 in size, so that a square
    and a sum of squares are finite.

    Raises:
        TypeError: not a number.
        ValueError: NaN, infinite, or outside the range.
    """
    return _in_range(name, value, numbers.Real, "a number", low, high)


def whole_number(name: str, value: Any, low: float = -1e15, high: float = 1e15) -> int:
    """A whole number from ``low`` to ``high``; 8.0 is not one.

    Raises:
        TypeError: not a whole number.
        ValueError: outside the range.
    """
    return _in_range(name, value, numbers.Integral, "a whole number", low, high)


def positive(name: str, value: Any, hint: str = "") -> float:
    """A number above 0; ``hint`` goes behind "a positive number"."""
    if not 0 < number(name, value) < LARGEST:
        raise ValueError(f"{name} is {shown(value)}: expected a positive number{hint}.")
    return value


def _in_range(name: str, value: Any, kind: type, noun: str, low: float, high: float) -> Any:
    right_kind = isinstance(value, kind) and not isinstance(value, bool)
    if not right_kind or not low <= value <= high:
        error = ValueError if right_kind else TypeError
        raise error(f"{name} is {shown(value)}: expected {noun} {_between(low, high)}.")
    return value


def _between(low: float, high: float) -> str:
    """A range in words; a bound that only keeps numbers finite is said as such."""
    if -low == high:
        return f"of size at most {high:.12g}"
    if high in (1e15, LARGEST):
        return f"of at least {low:.12g}"
    return f"from {low:.12g} to {high:.12g}"


def probability(name: str, value: Any) -> float:
    """A number from 0 to 1."""
    return number(name, value, 0.0, 1.0)


def one_of(name: str, value: Any, names: Collection[Any]) -> Any:
    """One of a few values.

    Raises:
        ValueError: another value; the message lists all.
    """
    try:
        known = value in names
    except (TypeError, RuntimeError):  # not hashable, or a tensor, which has no single truth value
        known = False
    if not known:
        raise ValueError(f"{name} is {shown(value)}: expected one of {', '.join(map(str, names))}.")
    return value


def instance(name: str, value: Any, kind: type) -> Any:
    """A value of one type.

    Raises:
        TypeError: of another type.
    """
    if not isinstance(value, kind):
        noun = "text" if kind is str else kind.__name__
        raise TypeError(f"{name} is {shown(value)}: expected a {noun}.")
    return value


def tensor(
    name: str, value: Any, dims: str = "", low: float = -LARGEST, high: float = LARGEST
) -> Tensor:
    """A tensor of numbers from ``low`` to ``high``; ``dims`` names its dimensions, ``"N T"`` say,
    "" is any shape.

    Raises:
        TypeError: not a tensor, or complex.
        ValueError: another number of dimensions, empty, or a number that is NaN, infinite or
            outside the range.
    """
    instance(name, value, Tensor)
    if value.is_complex():
        raise TypeError(f"{name} has dtype {value.dtype}: expected real numbers.")
    if dims and (value.ndim != len(dims.split()) or value.numel() == 0):
        raise ValueError(
            f"{name} has shape {list(value.shape)}: expected "
            f"[{dims.replace(' ', ', ')}], not empty."
        )
    bad = ~((value >= low) & (value <= high))
    if bad.any():
        raise ValueError(
            f"{name} holds {value[bad][0].item()}: expected numbers {_between(low, high)}."
        )
    return value


def at_most(what: str, amount: float, limit: float) -> None:
    """Refuse work that would take too long or too much memory.

    Raises:
        ValueError: names the limit.
    """
    if not amount <= limit:
        raise ValueError(
            f"{what} would be {amount:.3g}, more than the limit of {limit:.3g}: "
            "choose smaller sizes."
        )


def at_most_power(what: str, base: float, exponent: float, limit: float) -> None:
    """The same for ``base ** exponent``, which is never computed."""
    if exponent * math.log(base) > math.log(limit):
        raise ValueError(
            f"{what} would be {base:g} ** {exponent:g}, more than the limit of {limit:.3g}: "
            "choose smaller sizes."
        )


Probability = Annotated[float, probability]
OpenProbability = Annotated[float, functools.partial(number, low=1e-9, high=1 - 1e-9)]
NonNegative = Annotated[float, functools.partial(number, low=0.0)]
Positive = Annotated[float, functools.partial(number, low=1e-12, high=1e12)]
LogProbs = Annotated[Tensor, functools.partial(tensor, dims="A", low=-1e15, high=1e-5)]
Logits = Annotated[Tensor, functools.partial(tensor, dims="A", low=-1e15, high=1e15)]
Logit = Annotated[float, functools.partial(number, low=-20.0, high=20.0)]
Hazard = Annotated[float, functools.partial(number, low=1e-6, high=1 - 1e-6)]
Cap = Annotated[int, functools.partial(whole_number, low=1, high=4096)]
Ddof = Annotated[int, functools.partial(whole_number, low=0, high=1)]
Alpha = Annotated[float, functools.partial(number, low=-10.0, high=10.0)]
GroupSize = Annotated[int, functools.partial(whole_number, low=2, high=512)]
Count = Annotated[int, functools.partial(whole_number, low=1, high=10**6)]
Index = Annotated[int, functools.partial(whole_number, low=0, high=2**31)]


# --- annotations


def checked(function: F) -> F:
    """Check every argument that is given by its annotation, before the function runs; a check may
    also convert.

    ``Annotated[kind, check]`` calls ``check(name, value)``. Without it: ``float`` is a finite
    number, ``int`` a whole number, ``Tensor`` holds finite numbers, a class is an instance of it, a
    sequence is checked entry by entry and is not empty.
    """
    signature = inspect.signature(function)

    @functools.cache
    def checks() -> dict[str, Check]:
        bare = types.FunctionType(
            function.__code__, function.__globals__, closure=function.__closure__
        )
        bare.__annotations__ = {n: a for n, a in function.__annotations__.items() if n != "return"}
        return {n: check_of(hint) for n, hint in get_type_hints(bare, include_extras=True).items()}

    @functools.wraps(function)
    def door(*args: Any, **keywords: Any) -> Any:
        bound = signature.bind(*args, **keywords)
        for name, check in checks().items():
            if name in bound.arguments:
                bound.arguments[name] = check(name, bound.arguments[name])
        _same_sizes(bound.arguments, checks())
        return function(*bound.args, **bound.kwargs)

    return cast(F, door)


def _same_sizes(arguments: Mapping[str, Any], checks: Mapping[str, Check]) -> None:
    """A letter in the dimensions of several tensors stands for one size."""
    sizes: dict[str, tuple[str, int]] = {}
    for name, value in arguments.items():
        dims = getattr(checks.get(name), "keywords", {}).get("dims", "")
        for letter, size in zip(dims.split(), getattr(value, "shape", ()), strict=False):
            first, expected = sizes.setdefault(letter, (name, size))
            if size != expected:
                raise ValueError(
                    f"{name} has {letter} = {size} entries but {first} has {expected}: "
                    "they must agree."
                )


def check_of(hint: Any) -> Check:
    """The check of one annotation."""
    origin = get_origin(hint) or hint
    inner = get_args(hint)
    if origin is Annotated:
        return inner[1]
    if origin in (Union, types.UnionType):
        return functools.partial(_either, options=inner)
    if origin is Literal:
        return functools.partial(one_of, names=inner)
    if inner and inspect.isclass(origin) and issubclass(origin, Iterable):
        return functools.partial(_collection, kind=origin, inner=inner)
    by_type: dict[Any, Check] = {float: number, int: whole_number, Tensor: tensor, Any: _anything}
    return by_type.get(origin) or functools.partial(instance, kind=origin)


def _anything(name: str, value: Any) -> Any:
    return value


def _either(name: str, value: Any, options: tuple[Any, ...]) -> Any:
    """The first option that fits; None fits where it is an option. The error is that of the first
    option.
    """
    if value is None and type(None) in options:
        return None
    errors = []
    for option in options:
        try:
            return check_of(option)(name, value)
        except (TypeError, ValueError, LookupError) as error:
            errors.append(error)
    raise errors[0]


def _collection(name: str, value: Any, kind: type, inner: tuple[Any, ...]) -> Any:
    """Every entry of a sequence, or every value of a mapping, is of its kind."""
    wrong = isinstance(value, str | bytes) or not isinstance(value, kind)
    if wrong or not len(value):
        found = "empty" if not wrong else shown(value)
        raise TypeError(f"{name} is {found}: expected a {kind.__name__} with at least one entry.")
    if isinstance(value, Mapping):
        check = check_of(inner[1])
        return {key: check(f"{name}[{key!r}]", entry) for key, entry in value.items()}
    kinds = inner if kind is tuple and Ellipsis not in inner else (inner[0],) * len(value)
    if len(kinds) != len(value):
        raise ValueError(f"{name} has {len(value)} entries: expected {len(kinds)}.")
    entries = [
        check_of(hint)(f"{name}[{i}]", entry)
        for i, (hint, entry) in enumerate(zip(kinds, value, strict=True))
    ]
    return tuple(entries) if isinstance(value, tuple) else entries
