"""An attribute of an operator for the time of a block."""

from ..op.op import get, register_attr as _register

__all__ = ["TempOpAttr"]


class TempOpAttr:
    """Context manager: the operator `op_name` has the attribute `attr_key` with this value, afterwards the former one."""

    def __init__(self, op_name, attr_key, attr_value):
        self.op, self.key, self.value = get(op_name), attr_key, attr_value

    def __enter__(self):
        self.before = self.op.get_attr(self.key)
        _register(self.op.name, self.key, self.value)
        return self

    def __exit__(self, *exc):
        self.op.reset_attr(self.key)
        if self.before is not None:
            _register(self.op.name, self.key, self.before)
