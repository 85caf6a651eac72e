"""Operators: what is known of them, and attributes that users give them."""

from ..relay.op.op import register_attr as _register_attr
from ..relay.op.registry import Op

__all__ = ["Op", "register_op_attr"]


def register_op_attr(op_name, attr_key, value=None, level=10):
    """Gives the operator `op_name` an attribute; without `value` a decorator. The last one counts."""
    return _register_attr(op_name, attr_key, value, level)
