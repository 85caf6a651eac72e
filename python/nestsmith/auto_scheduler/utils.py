"""Small helpers of the auto-scheduler, in TVM's place."""

import concurrent.futures
import importlib
import traceback

import numpy as np

from .. import _absent
from ..contrib.popen_pool import kill_child_processes
from ..topi.util import get_const_int, get_const_tuple
from .measure import shorten
from .workload_keys import calc_workload_dis_factor, decode_workload_key
from .workload_registry import deserialize_args, get_func_name, serialize_args

__all__ = ["array_mean", "calc_workload_dis_factor", "call_func_with_thread", "call_func_with_timeout",
           "decode_workload_key", "deserialize_args", "get_const_int", "get_const_tuple", "get_func_name",
           "kill_child_processes", "list_to_tuple", "make_traceback_info", "serialize_args", "to_str_round"]


def __getattr__(name):
    if name in ("check_remote", "request_remote"):  # these need the extra `cluster`
        return getattr(importlib.import_module("nestsmith.rpc"), name)
    raise _absent.attribute_error(__name__, name)


def list_to_tuple(x):
    """A list as a tuple, with the lists in it."""
    return tuple(list_to_tuple(y) if isinstance(y, list) else y for y in x)


def to_str_round(x, decimal=6):
    """Text of numbers with so many decimals; lists in brackets."""
    if isinstance(x, str):
        return x
    if isinstance(x, (list, tuple, np.ndarray)):
        return "[" + ", ".join(to_str_round(y, decimal) for y in x) + "]"
    if isinstance(x, dict):
        return str({k: to_str_round(v, decimal) for k, v in x.items()})
    if isinstance(x, int):
        return str(x)
    if isinstance(x, (float, np.floating)):
        return f"%.{decimal}f" % x
    raise ValueError(f"cannot write {type(x).__name__} as a number")


def array_mean(arr):
    """Mean of numbers, or of objects with a ``value``, as the costs of a result."""
    return sum(float(getattr(x, "value", x)) for x in arr) / len(arr)


def make_traceback_info():
    """The traceback of the exception that is handled, shortened as in records."""
    return shorten(traceback.format_exc())


def call_func_with_thread(func, args, kwargs):
    """``func(*args, **kwargs)`` in a separate thread; its exception is raised here."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(func, *args, **kwargs).result()


def call_func_with_timeout(worker, timeout, func, args=(), kwargs=None):
    """What ``func(*args, **kwargs)`` returns in a `contrib.popen_pool.PopenWorker`, or the exception: a TimeoutError after so many
    seconds."""
    worker.send(func, args, kwargs, timeout)
    try:
        return worker.recv()
    except Exception as e:  # noqa: BLE001 - it is the result
        return e
