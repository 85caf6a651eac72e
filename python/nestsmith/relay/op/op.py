"""Operators and their attributes: what users register for operators of their own, or for those of the package.

Attributes that the build and passes ask for: ``TOpPattern``, ``FTVMCompute`` (loops), ``FTVMLegalize`` (:func:`relay.transform.Legalize`) and
``FTVMAlterOpLayout`` (:func:`relay.transform.AlterOpLayout`). Others are kept for those who ask with ``get_attr``.
"""

import enum

from ...nd import array
from ..expr import Call
from .registry import Op, get, names, register_custom

__all__ = [
    "Op", "OpPattern", "get", "list_op_names", "register", "register_attr", "register_compute", "register_pattern", "register_stateful",
    "register_legalize", "register_alter_op_layout", "register_convert_op_layout", "register_infer_correct_layout", "register_gradient",
    "register_mixed_precision_conversion", "register_strategy", "register_schedule", "register_injective_schedule",
    "register_broadcast_schedule", "register_reduce_schedule", "register_shape_func", "register_external_compiler",
    "register_fake_quantization_to_integer", "register_optional_fake_quantization_to_integer", "register_primal_gradient", "debug",
]  # fmt: skip


class OpPattern(enum.IntEnum):
    """How an operator may be fused."""

    ELEMWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_ELEMWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


def register(op_name, describe=""):
    """A new operator, which gets its type from ``get(op_name).add_type_rel(...)`` and its loops from :func:`register_compute`. Raises
    ValueError if the name is taken."""
    return register_custom(op_name, describe)


def list_op_names():
    """Names of all operators, sorted."""
    return names()


def register_attr(op_name, attr_key, value=None, level=10):
    """Gives the operator `op_name` an attribute; without `value` a decorator."""

    def give(v):
        get(op_name).set_attr(attr_key, v, level)
        return v

    return give(value) if value is not None else give


def register_pattern(op_name, pattern, level=10):
    """How an operator may be fused: an :class:`OpPattern`."""
    return register_attr(op_name, "TOpPattern", OpPattern(pattern), level)


def register_stateful(op_name, stateful, level=10):
    """Whether calls of an operator with equal arguments may differ."""
    get(op_name).set_attr("TOpIsStateful", bool(stateful), level)


def _of(key):
    def give(op_name, value=None, level=10):
        return register_attr(op_name, key, value, level)

    give.__doc__ = f"Gives an operator the attribute ``{key}``; without a value a decorator."
    return give


register_compute = _of("FTVMCompute")
register_legalize = _of("FTVMLegalize")
register_alter_op_layout = _of("FTVMAlterOpLayout")
register_convert_op_layout = _of("FTVMConvertOpLayout")
register_infer_correct_layout = _of("FInferCorrectLayout")
register_gradient = _of("FPrimalGradient")
register_primal_gradient = register_gradient
register_mixed_precision_conversion = _of("FTVMMixedPrecisionConversionType")
register_strategy = _of("FTVMStrategy")
register_schedule = _of("FTVMSchedule")
register_fake_quantization_to_integer = _of("FTVMFakeQuantizationToInteger")
register_optional_fake_quantization_to_integer = _of("FTVMOptionalFakeQuantizationToInteger")


def register_injective_schedule(op_name, level=10):
    """Accepted: every operator without records gets a default schedule."""
    return register_attr(op_name, "FTVMSchedule", "injective", level)


register_broadcast_schedule = register_reduce_schedule = register_injective_schedule


def register_shape_func(op_name, data_dependent, shape_func=None):
    """Keeps a function that computes an operator's shape at run time."""

    def give(f):
        get(op_name).set_attr("FShapeFunc", f)
        get(op_name).set_attr("TShapeDataDependent", data_dependent)
        return f

    return give(shape_func) if shape_func is not None else give


def register_external_compiler(op_name, fexternal=None, level=10):
    """Keeps which compiler of the user's takes an operator: attribute ``target.<compiler>`` of a predicate."""
    return register_attr(op_name, "FTVMExternalCompiler", fexternal, level)


def debug(expr, debug_func=None):
    """`expr`; when it is evaluated by ``create_executor("debug")``, `debug_func` (None: a breakpoint) sees its value."""
    return Call(_debug_op(), [expr], {"debug_func": debug_func})


def _debug_op():
    if "debug" in names():
        return get("debug")
    op = register_custom("debug", "shows a value to a function")
    op.add_type_rel("Identity")

    def show(attrs, x):
        (attrs.debug_func or (lambda value: breakpoint()))(array(x))  # noqa: T100
        return x

    op.evaluate = show
    return op
