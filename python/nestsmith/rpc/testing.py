"""Functions that tests of connections call on a server."""

import numpy as np

from .. import nd
from ..registry import register_func

ARRAY = (np.arange(4), "float32")


def _check_array(y):
    np.testing.assert_equal(y.numpy(), np.ones((3, 4)))


def _fail(name):
    raise ValueError(str(name))


def _return_nd(name):
    array = nd.array(ARRAY[0].astype(ARRAY[1]))
    functions = {"get_arr": lambda: array, "ref_count": lambda: 1, "get_elem": lambda i: float(array.numpy()[i]),
                 "get_arr_elem": lambda arr, i: float(arr.numpy()[i])}  # fmt: skip
    return functions[name]


for _name, _func in {
    "addone": lambda x: x + 1, "strcat": lambda name, x: f"{name}:{x}", "except": _fail, "runtime_str_concat": lambda x, y: x + y,
    "remote_array_func": _check_array, "add_to_lhs": lambda x: lambda y: x + y, "remote_return_nd": _return_nd,
}.items():  # fmt: skip
    register_func(f"rpc.test.{_name}", _func, override=True)
register_func("testing.echo", lambda *args: args[0], override=True)
