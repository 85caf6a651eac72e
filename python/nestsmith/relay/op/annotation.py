"""Marks on values: where fusion ends, what is computed on which device, what is not stored. They do not change the value."""

from ... import topi
from .registry import ELEMWISE, FOLLOW, OPAQUE, as_expr, call, register, tensor

__all__ = ["stop_fusion", "checkpoint", "on_device", "compiler_begin", "compiler_end", "bitpack_start", "bitpack_end"]


def _mark(name, pattern=ELEMWISE):
    register(name, pattern, lambda attrs, types: types[0] if types[0] is not None else tensor(types, 0),
             lambda attrs, x: x, loops=lambda a, x, c, t: topi.identity(x[0]), colour=FOLLOW)  # fmt: skip


for _name in ("on_device", "annotation.checkpoint", "annotation.compiler_begin", "annotation.compiler_end", "annotation.bitpack_start",
              "annotation.bitpack_end"):  # fmt: skip
    _mark(_name)
_mark("annotation.stop_fusion", OPAQUE)


def stop_fusion(data):
    """`data`, which is not fused with what reads it."""
    return call("annotation.stop_fusion", [as_expr(data)])


def checkpoint(data):
    """`data`, which a gradient would compute again instead of storing it."""
    return call("annotation.checkpoint", [as_expr(data)])


def on_device(body, device=None, constrain_result=False, constrain_body=True):
    """`body`, marked with a device. Networks run on one device, the target's."""
    return call("on_device", [as_expr(body)], device=str(device), constrain_result=bool(constrain_result), constrain_body=bool(constrain_body))


def compiler_begin(data, compiler):
    """`data`, marked as the begin of a part for a compiler of the user's."""
    return call("annotation.compiler_begin", [as_expr(data)], compiler=str(compiler))


def compiler_end(data, compiler):
    """`data`, marked as the end of a part for a compiler of the user's."""
    return call("annotation.compiler_end", [as_expr(data)], compiler=str(compiler))


def bitpack_start(data):
    """`data`, marked as the begin of a part whose numbers are packed."""
    return call("annotation.bitpack_start", [as_expr(data)])


def bitpack_end(data):
    """`data`, marked as the end of a part whose numbers are packed."""
    return call("annotation.bitpack_end", [as_expr(data)])
