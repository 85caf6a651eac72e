"""What template tuners learn of a schedule, for who trains models of their own: the loops of its program and the buffers that each
of them touches."""

import numpy as np

from .. import _core
from ..target import Target
from .log import decode

__all__ = ["flatten_itervar_feature", "get_buffer_curve_sample_flatten", "get_flatten_name", "get_itervar_feature",
           "get_itervar_feature_flatten"]

_ATTRIBUTES, _WORDS, _COUNTS = ("length", "nest", "top_down", "bottom_up"), 11, ("add", "mul", "div")
_NAMES = {"_attr_": ["length", "nest_level", "topdown", "bottomup", *(f"ann_{k}" for k in range(_WORDS))], "_arith_": list(_COUNTS)}
_TOUCH = ["stride", "mod", "count", "reuse", "T_count", "T_reuse"]


def _program(sch, args):
    return sch._core, list(args), (Target.current() or Target("llvm")).engine()


def get_itervar_feature(sch, args, take_log=False):
    """The loops of a schedule's program, outermost first.

    Parameters
    ----------
    sch : te.Schedule
    args : list of te.Tensor
        Of the function.
    take_log : bool
        Every number but the nesting level x as log2(x + 1), of negative ones as -log2(1 - x).

    Returns
    -------
    list
        A list per loop: ``["_itervar_", name]``, ``["_attr_", length, nesting level, product of the lengths from the outermost to this
        one, accesses in it, 11 zeros and ones for its kind]``, ``["_arith_", additions, multiplications, divisions]`` and for every
        access ``[name, stride, mod, count, reuse, count and reuse of a thread]``.
    """
    program = _program(sch, args)
    row, at, out = get_itervar_feature_flatten(sch, args).tolist(), 0, []
    for loop in _core.loop_facts(*program):
        sizes = len(_ATTRIBUTES) + _WORDS, len(_COUNTS), *(len(_TOUCH) for _ in loop["touch"])
        parts = []
        for n in sizes:
            parts.append(row[at : at + n])
            at += n
        if not take_log:
            parts[0][: len(_ATTRIBUTES)] = [loop[k] for k in _ATTRIBUTES]
            parts[1:] = [[loop[k] for k in _COUNTS], *map(list, loop["touch"].values())]
        names = "_attr_", "_arith_", *loop["touch"]
        out.append([["_itervar_", loop["name"]], *([name, *part] for name, part in zip(names, parts))])
    return out


def flatten_itervar_feature(fea):
    """The numbers of what `get_itervar_feature` gives as one array."""
    return np.concatenate([part[1:] for loop in fea for part in loop[1:]])


def get_itervar_feature_flatten(sch, args, take_log=True):
    """The same numbers at once: what ``XGBTuner(feature_type="itervar")`` learns from, as an array of float32."""
    if not take_log:
        return flatten_itervar_feature(get_itervar_feature(sch, args)).astype(np.float32)
    return _core.loop_vector(*_program(sch, args), "itervar")


def get_flatten_name(fea):
    """A name for each number of the flat features.

    Parameters
    ----------
    fea : list or str
        What `get_itervar_feature` gives, or the line of a log.

    Returns
    -------
    list of str

    Raises
    ------
    ValueError
        The line is of a log of version 0.1.
    """
    if isinstance(fea, str):
        found = decode(fea)
        if found is None:
            raise ValueError("the line is of a log of version 0.1, which is not read any more")
        with found[0].target:
            fea = get_itervar_feature(*found[0].task.instantiate(found[0].config))
    names = [(loop[0][1], part[0], _NAMES.get(part[0], _TOUCH)[k]) for loop in fea for part in loop[1:] for k in range(len(part) - 1)]
    return [".".join((f"f{i}", *name)) for i, name in enumerate(names)]


def get_buffer_curve_sample_flatten(sch, args, sample_n=30):
    """How reuse grows over the loops: what ``XGBTuner(feature_type="curve")`` learns from.

    Parameters
    ----------
    sch : te.Schedule
    args : list of te.Tensor
    sample_n : int
        Points of each curve. Raises ValueError outside 1..1000.

    Returns
    -------
    array of float32
        8 * sample_n numbers for each buffer of the innermost loops.
    """
    return _core.loop_vector(*_program(sch, args), "curve", sample_n)
