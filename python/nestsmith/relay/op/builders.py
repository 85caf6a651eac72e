"""Builders of operators by name, and the attributes that they fill in."""

import functools
import inspect
import sys

from ..expr import Call, TupleGetItem, TupleWrapper
from .registry import get

__all__ = ["builder_of", "default_attrs", "make_call"]

_NAMES = {"nn.contrib_conv2d_NCHWc": "nn.contrib_conv2d_nchwc", "contrib_reverse_reshape": "reverse_reshape"}
_SEVERAL = {"variance"}  # whose builders make several calls: all attributes are printed
_SAID = {"pool_size", "axes"}  # printed always


@functools.cache
def builder_of(name):
    """The function that builds calls of an operator, or None."""
    if name in _SEVERAL:
        return None
    found = sys.modules[__package__]
    for part in _NAMES.get(name, name).split("."):
        found = getattr(found, part, None)
    return found if inspect.isfunction(found) else None


@functools.cache
def _signature(name):
    """{parameter: default} of a builder; no entry for parameters that must be given."""
    builder = builder_of(name)
    if builder is None:
        return {}
    return {p.name: p.default for p in inspect.signature(builder).parameters.values() if p.default is not p.empty}


def _plain(v):
    return tuple(map(_plain, v)) if isinstance(v, (list, tuple)) else v


def default_attrs(call):
    """Names of the attributes of a call that its builder gives the same values if they are left out."""
    if not call.op_name:
        return set()
    defaults = _signature(call.op_name)
    same = lambda a, b: type(a) is type(b) and a == b  # noqa: E731
    return {k for k, v in call.attrs.items() if k in defaults and k not in _SAID and same(_plain(v), _plain(defaults[k]))}


def make_call(name, args, attrs, span=None):
    """The call of an operator with the attributes that are given, the others as its builder sets them."""
    builder, made = builder_of(name), None
    if builder is not None:
        known = inspect.signature(builder).parameters
        free = [n for n in known if n not in attrs]  # an attribute may stand before an argument: pad_width, pad_value
        try:
            made = builder(**dict(zip(free, args, strict=False)), **{k: v for k, v in attrs.items() if k in known})
        except (TypeError, ValueError, AttributeError):  # of arguments without types, of parameters that have other names
            made = None
        made = made.astuple() if isinstance(made, TupleWrapper) else made
        made = made.tuple_value if isinstance(made, TupleGetItem) else made  # the first result of several
    if isinstance(made, Call) and made.op_name == name and len(made.args) == len(args) and all(a is b for a, b in zip(made.args, args)):
        filled = {k: v for k, v in made.attrs.items() if k not in attrs}
        given = {k: made.attrs[k] if k in made.attrs and k in known else v for k, v in attrs.items()}
        order = {k: None for k in made.attrs}
        return Call(made.op, args, {**order, **filled, **given}, span=span)
    return Call(get(name), args, {**{k: v for k, v in _signature(name).items() if k not in attrs}, **attrs} if builder is None else attrs, span=span)
