"""What tests compare with, and on which targets they run."""

import copy
import functools
import importlib
import inspect
import itertools
import os
import platform
import sys
import time

import numpy as np

from .. import nd, tir
from ..driver import build
from ..error import TVMError
from ..registry import get_global_func, register_func
from ..runtime import Module, device, enabled
from ..te import create_schedule
from ..transform import PassContext

__all__ = [
    "DEFAULT_TEST_TARGETS", "Feature", "FrontendTestModule", "IS_IN_CI", "SKIP_SLOW_TESTS", "TVMError", "after_initializer", "assert_allclose",
    "assert_prim_expr_equal", "call_cpp_ffi", "call_cpp_py_ffi", "call_py_ffi", "check_bool_expr_is_true", "check_numerical_grads",
    "device_enabled", "device_test", "disable_span_filling",
    "echo", "enable_span_filling", "enabled_targets", "exclude_targets", "fast_summation", "fixture", "identity_after", "identity_cpp",
    "initializer", "is_ampere_or_newer", "known_failing_targets", "main", "nop", "object_use_count", "parameter", "parameters",
    "parametrize_targets", "register_ffi", "requires_cuda_compute_version", "requires_nvcc_version", "requires_package", "skip_if_32bit",
    "skip_parameterizations", "slow_summation", "terminate_self", "timeout_job", "xfail_parameterizations",
]  # fmt: skip

IS_IN_CI = os.environ.get("CI", "") == "true"
SKIP_SLOW_TESTS = os.environ.get("SKIP_SLOW_TESTS", "") in ("1", "true", "yes")
DEFAULT_TEST_TARGETS = ["llvm", "cuda", "opencl"]


def assert_allclose(actual, desired, rtol=1e-7, atol=1e-7):
    """AssertionError unless two arrays have one shape and differ by no more than ``atol + rtol * |desired|``.

    Parameters
    ----------
    actual, desired : array, nd.NDArray or number
    rtol, atol : float
        Unlike NumPy's function, `atol` is not 0 if it is not given.
    """
    a, d = (np.asarray(x.numpy() if hasattr(x, "numpy") else x) for x in (actual, desired))
    np.testing.assert_allclose(a.shape, d.shape, err_msg="shapes")
    np.testing.assert_allclose(a, d, rtol=rtol, atol=atol, verbose=True)


def check_numerical_grads(function, input_values, grad_values, function_value=None, delta=1e-3, atol=1e-2, rtol=0.1):
    """AssertionError unless gradients agree with differences of the function.

    Parameters
    ----------
    function : callable
        From arrays, by place or (for a dict of `input_values`) by name, to a number.
    input_values, grad_values : list or dict of array
        Of the first inputs, or those that the dict names.
    function_value : float, optional
        ``function`` at these values.
    delta : float
        How far values are changed.
    atol, rtol : float
        Allowed Euclidean norm of the difference: `rtol` of the gradient's norm, and `atol` times the square root of its number of elements.
    """
    named = isinstance(input_values, dict)
    names = list(input_values) if named else range(len(input_values))
    values = {k: np.array(input_values[k]) for k in names}

    def at(name, index, by):
        changed = values[name].copy()
        changed.reshape(-1)[index] += by
        given = {**values, name: changed}
        return float(function(**given) if named else function(*given.values()))

    here = float(function(**values) if named else function(*values.values())) if function_value is None else float(function_value)
    for name in grad_values if named else range(len(grad_values)):
        slopes = []
        for i in range(values[name].size):
            both = [(at(name, i, by) - here) / by for by in (delta, -delta)]
            # at a corner of the function the slope of either side will do
            given = np.asarray(grad_values[name]).reshape(-1)[i]
            slopes.append(min((*both, sum(both) / 2), key=lambda s, g=given: abs(s - g)))
        slopes = np.array(slopes).reshape(values[name].shape)
        given = np.asarray(grad_values[name])
        off, bound = np.linalg.norm(given - slopes), atol * np.sqrt(slopes.size) + rtol * np.linalg.norm(given)
        if not off <= bound:
            raise AssertionError(f"gradient of {name}: {off} from the slopes (in Euclidean norm), where {bound} is allowed:\n{given}\nand\n{slopes}")


def enable_span_filling():
    """A context in which importers note on what they make which part of the model it is of, as they do anyway."""
    return PassContext(config={"relay.frontend.fill_span": True})


def disable_span_filling():
    """A context in which importers note nothing of that kind: the span of what they make is empty."""
    return PassContext(config={"relay.frontend.fill_span": False})


def assert_prim_expr_equal(lhs, rhs):
    """ValueError unless two expressions are provably equal."""
    if not importlib.import_module("nestsmith.arith").Analyzer().can_prove_equal(lhs, rhs):
        raise ValueError(f"{lhs} and {rhs} are not equal")


def check_bool_expr_is_true(bool_expr, vranges, cond=None):
    """AssertionError unless a condition holds for all values of its variables.

    Parameters
    ----------
    bool_expr : Expr
    vranges : dict of Var to Range
    cond : Expr, optional
        Where it does not hold nothing is asked.
    """
    bool_expr = bool_expr if cond is None else tir.any(tir.Not(cond), bool_expr)
    te = importlib.import_module("nestsmith.te")
    ranges = [r for r in vranges.values()]

    def value(*places):
        put = dict(zip(vranges, (r.min + p for r, p in zip(ranges, places))))
        return tir.stmt_functor.substitute(bool_expr, put).astype("int32")

    all_values = te.compute([r.extent for r in ranges], value)
    out = nd.empty(tuple(int(n) for n in all_values.shape), "int32")
    build(create_schedule(all_values.op), [all_values], "llvm")(out)
    wrong = np.argwhere(out.numpy() == 0)
    if len(wrong):
        where = {str(v): int(w) + int(r.min) for v, r, w in zip(vranges, ranges, wrong[0])}
        raise AssertionError(f"{bool_expr} does not hold for {where}")


# ---- targets and features ----


def device_enabled(target):
    """Whether a target (a name or text) can be compiled for and its device is there."""
    if not isinstance(target, str):
        raise TypeError(f"target is {type(target).__name__}; device_enabled takes its text")
    kind = target.split()[0]
    return enabled(kind) and device(kind, 0).exist and (kind != "opencl" or os.environ.get("TVM_TEST_TARGETS") or not _on_a_cpu())


def _on_a_cpu():
    """Whether the OpenCL device is this machine's CPU: tests of GPUs run there only if ``$TVM_TEST_TARGETS`` names it."""
    return device("opencl", 0).device_name.lower().startswith(("pocl", "pthread", "cpu", "basic"))


@functools.lru_cache(maxsize=1)
def _known_targets():
    named = os.environ.get("TVM_TEST_TARGETS", "").strip()
    return tuple(t.strip() for t in named.split(";") if t.strip()) if named else tuple(DEFAULT_TEST_TARGETS)


def enabled_targets():
    """(target, device) of those of ``$TVM_TEST_TARGETS`` (split by ``;``; default `DEFAULT_TEST_TARGETS`) that can run here."""
    return [(t, device(t.split()[0], 0)) for t in _known_targets() if device_enabled(t)]


def _pytest():
    import pytest

    return pytest


class Feature:
    """What a test needs; an object is a decorator that skips the test where that is missing.

    Parameters
    ----------
    name : str
    long_name : str, optional
        For messages.
    run_time_check, compile_time_check : callable, optional
        Without arguments; whether it is there.
    target_kind_enabled, target_kind_hardware : str, optional
        A kind of target that is needed.
    parent_features : str or list of str, optional
        Other features that are needed.
    """

    all: dict = {}
    registered = False  # whether pytest knows the names as marks: with the plugin

    def __init__(self, name, long_name=None, cmake_flag=None, target_kind_enabled=None, compile_time_check=None, target_kind_hardware=None,
                 run_time_check=None, parent_features=None):  # fmt: skip
        self.name, self.long_name = name, long_name or name
        self.parents = [parent_features] if isinstance(parent_features, str) else list(parent_features or [])
        self._compiles = [compile_time_check, target_kind_enabled and (lambda: enabled(target_kind_enabled))]
        self._runs = [run_time_check, target_kind_hardware and (lambda: device_enabled(target_kind_hardware))]
        Feature.all[name] = self

    def here(self, support_required="compile-and-run"):
        """Whether it is there: what compiles, or ("compile-and-run") what runs, too."""
        checks = [*self._compiles, *(self._runs if support_required == "compile-and-run" else ())]
        return all(f() for f in checks if f) and all(Feature.all[p].here(support_required) for p in self.parents)

    def marks(self, support_required="compile-and-run"):
        """Marks of pytest for parameters."""
        if support_required not in ("compile-and-run", "compile-only", "optional"):
            raise ValueError(f"support_required is {support_required!r}; it is 'compile-and-run', 'compile-only' or 'optional'")
        wanted = support_required != "optional"
        mark = [_pytest().mark.skipif(not self.here(support_required), reason=f"needs {self.long_name}")] if wanted else []
        return [*([getattr(_pytest().mark, self.name)] if Feature.registered else ()), *mark]

    def __call__(self, func=None, *, support_required="compile-and-run"):
        if func is None:
            return functools.partial(self, support_required=support_required)
        for mark in self.marks(support_required):
            func = mark(func)
        return func

    @classmethod
    def require(cls, name, support_required="compile-and-run"):
        """A decorator for the feature of a name."""
        if name not in cls.all:
            raise ValueError(f"feature {name!r} is unknown; there are {', '.join(cls.all)}")
        return cls.all[name](support_required=support_required)


def _processor(*flags):
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            known = next((line for line in f if line.startswith(("flags", "Features"))), "").split()
    except OSError:
        return False
    return set(flags) <= set(known)


def _capability(least):
    gpu = device("cuda", 0)
    return gpu.exist and tuple(int(x) for x in str(gpu.compute_version).split(".")) >= least


_X86 = platform.machine() in ("x86_64", "AMD64")
for _name, _check in {
    "llvm": lambda: enabled("llvm"), "x86": lambda: _X86, "rpc": lambda: True, "32bit": lambda: sys.maxsize < 2**32,
    "arm_dot": lambda: _processor("asimddp"), "aarch64_sve": lambda: _processor("sve"), "x86_avx512": lambda: _processor("avx512f", "avx512bw"),
    "x86_vnni": lambda: _processor("avx512_vnni"), "x86_amx": lambda: _processor("amx_int8"),
    "cuda": lambda: device_enabled("cuda"), "opencl": lambda: device_enabled("opencl"), "tensorcore": lambda: _capability((7, 0)),
    "cudagraph": lambda: device_enabled("cuda"), "gpu": lambda: device_enabled("cuda") or device_enabled("opencl"),
}.items():  # fmt: skip
    Feature(_name, run_time_check=_check)
    globals()[f"requires_{_name}"] = Feature.all[_name]
for _name in ("cudnn", "cublas", "nvptx", "vulkan", "metal", "rocm", "mps", "hexagon", "micro", "ethosn", "ethosu",
              "corstone300", "cmsisnn", "libtorch", "vitis_ai", "openclml", "cutlass", "matrixcore", "hipblas",
              "rocblas", "dnnl", "coreml", "tensorrt", "openblas", "avx512", "cascadelake", "skylake_avx512", "nnapi",
              "opencl_vulkan", "adreno_opencl_vulkan"):
    Feature(_name, f"{_name}, which this package does not use", compile_time_check=lambda: False)
    globals()[f"requires_{_name}"] = Feature.all[_name]
uses_gpu = Feature("uses_gpu", compile_time_check=lambda: True)
skip_if_wheel_test = Feature("not_in_wheels", run_time_check=lambda: True)
slow = Feature("slow", "slow tests (SKIP_SLOW_TESTS is set)", run_time_check=lambda: not SKIP_SLOW_TESTS)


def skip_if_32bit(reason="needs 64 bits"):
    """Decorator: skips a test on processors of 32 bits."""
    return _pytest().mark.skipif(sys.maxsize < 2**32, reason=reason)


def requires_package(*packages):
    """Decorator: skips a test where one of these packages cannot be imported."""

    def missing(package):
        try:
            importlib.import_module(package)
        except ImportError:
            return True
        return False

    absent = [p for p in packages if missing(p)]
    return _pytest().mark.skipif(bool(absent), reason=f"needs the packages {', '.join(absent)}")


def requires_cuda_compute_version(major_version, minor_version=0):
    """Decorator: skips a test without a GPU of at least this compute capability."""
    return _pytest().mark.skipif(not _capability((major_version, minor_version)), reason=f"needs compute capability {major_version}.{minor_version}")


def requires_nvcc_version(major_version, minor_version=0, release_version=0):
    """Decorator: skips a test without a CUDA compiler of at least this release."""
    try:
        here = tuple(map(int, importlib.import_module("nestsmith.contrib.nvcc").get_cuda_version().split(".")))
    except RuntimeError:
        here = ()
    wanted = major_version, minor_version, release_version
    return _pytest().mark.skipif(here < wanted[: len(here) or 1], reason=f"needs CUDA {'.'.join(map(str, wanted))}")


def is_ampere_or_newer():
    """Whether there is a GPU of compute capability 8.0 or more."""
    return _capability((8, 0))


# ---- parameters and fixtures of pytest ----
_groups = itertools.count()


def parameter(*values, ids=None, by_dict=None):
    """A fixture that takes these values one after the other.

    Parameters
    ----------
    values : any
    ids : list of str, optional
        Their names.
    by_dict : dict, optional
        Names and values, in place of both. Raises RuntimeError if they are given, too.
    """
    if by_dict is not None:
        if values or ids:
            raise RuntimeError("parameter takes values and ids, or by_dict, not both")
        ids, values = list(by_dict), list(by_dict.values())

    @_pytest().fixture(params=list(values), ids=ids)
    def as_fixture(*_cls, request):
        return request.param

    return as_fixture


def parameters(*value_sets, ids=None):
    """Fixtures that take values together: one for each place of the sets. `nestsmith.testing.plugin` has to be a plugin of pytest.

    Raises ValueError if the sets differ in length.
    """
    if len({len(v) for v in value_sets}) > 1:
        raise ValueError(f"sets of parameters have one length, these have {sorted({len(v) for v in value_sets})}")
    group, out = next(_groups), []
    for values in zip(*value_sets):

        def as_fixture(*_cls, request):
            return request.param

        as_fixture.parametrize_group, as_fixture.parametrize_values, as_fixture.parametrize_ids = group, values, ids
        out.append(_pytest().fixture(as_fixture))
    return out


def fixture(func=None, *, cache_return_value=False):
    """A fixture; with `cache_return_value` its value is made once for each set of arguments, and every test gets a copy of it."""
    if func is None:
        return functools.partial(fixture, cache_return_value=cache_return_value)
    if not cache_return_value or os.environ.get("TVM_TEST_DISABLE_CACHE", "0") not in ("", "0"):
        return _pytest().fixture(func)
    made: dict = {}

    @functools.wraps(func)
    def cached(*args, **kwargs):
        known = inspect.signature(func).bind(*args, **kwargs).arguments
        try:
            key = tuple((k, v if isinstance(v, (int, float, str, bool, tuple, type(None))) else repr(v)) for k, v in known.items())
            hash(key)
        except TypeError:
            return func(*args, **kwargs)
        if key not in made:
            made[key] = func(*args, **kwargs)
        return copy.deepcopy(made[key])

    return _pytest().fixture(cached)


def target_params(targets):
    """Parameters of pytest for targets; those that cannot run here are skipped."""
    return [_pytest().param(t, marks=() if device_enabled(t.split()[0]) else _pytest().mark.skip(reason=f"{t} is not there")) for t in targets]


def parametrize_targets(*targets):
    """Decorator: runs a test for each of these targets (without any: `enabled_targets`), as its argument ``target``."""
    if len(targets) == 1 and callable(targets[0]):
        return parametrize_targets()(targets[0])
    return lambda func: _pytest().mark.parametrize("target", target_params(targets or _known_targets()), scope="session")(func)


def exclude_targets(*targets):
    """Decorator: a test that takes ``target`` does not run for these kinds."""
    return _noted("tvm_excluded_targets", targets)


def known_failing_targets(*targets):
    """Decorator: a test that takes ``target`` is expected to fail for these kinds."""
    return _noted("tvm_known_failing_targets", targets)


def _noted(name, targets):
    def note(func):
        setattr(func, name, list(targets))
        return func

    return note


def _parameterizations(mark, params, reason):
    def note(func):
        func.nestsmith_marked = [*getattr(func, "nestsmith_marked", ()), *((p, getattr(_pytest().mark, mark)(reason=reason)) for p in params)]
        return func

    return note


def skip_parameterizations(*skip_params, reason):
    """Decorator: skips the cases of a test with these names."""
    return _parameterizations("skip", skip_params, reason)


def xfail_parameterizations(*xfail_params, reason):
    """Decorator: expects the cases of a test with these names to fail."""
    return _parameterizations("xfail", xfail_params, reason)


def main():
    """Runs the tests of the file that calls it, and ends the process with pytest's status."""
    sys.exit(_pytest().main([sys._getframe(1).f_globals["__file__"], *sys.argv[1:]]))


# ---- functions for tests of functions: other processes and machines can call them ----


def echo(*args):
    """The first argument."""
    return args[0]


def nop(*args):
    """Nothing."""


def identity_cpp(x):
    """The argument."""
    return x


def object_use_count(x):
    """References to an object, without this call's own."""
    return sys.getrefcount(x) - 3


def device_test(dev, device_type, device_id):
    """The device, which has to be of this type and number."""
    assert (dev.device_type, dev.device_id) == (device_type, device_id)
    return dev


def identity_after(x, sleep):
    """The first argument, after so many seconds."""
    if sleep:
        time.sleep(sleep)
    return x


def terminate_self():
    """Ends the process."""
    sys.exit(-1)


def fast_summation(n):
    """0 + 1 + ... + n - 1 by a formula."""
    return n * (n - 1) // 2


def slow_summation(n):
    """0 + 1 + ... + n - 1, number by number."""
    return sum(range(n))


def timeout_job(n):
    """Takes so many seconds and a bit."""
    time.sleep(n * 1.5)


_state = [0, 0, 0]


def initializer(*states):
    """Sets the state that `after_initializer` returns."""
    _state[: len(states)] = states


def after_initializer():
    """The state that `initializer` has set in this process."""
    return tuple(_state)


def register_ffi():
    """Registers ``testing.nested_identity``-like functions for `call_py_ffi` and its relatives."""
    register_func("testing.identity_py", lambda x: x, override=True)


def call_py_ffi(arg):
    """The argument, by a global function of Python that `register_ffi` has registered."""
    return get_global_func("testing.identity_py")(arg)


call_cpp_py_ffi = call_py_ffi


def call_cpp_ffi(arg):
    """The argument, by the global function ``testing.echo``."""
    return get_global_func("testing.echo")(arg)


class FrontendTestModule(Module):
    """A module of Python functions: ``m["name"] = function``."""

    def __init__(self):
        super().__init__("frontend_test")

    def __setitem__(self, name, func):
        self._functions[name] = func


def _raise_later(kind):
    def fail(*args):
        raise TVMError(f"{kind}: an error on request")

    return fail


for _name, _func in {"echo": echo, "nop": nop, "test_raise_error_callback": _raise_later, "identity_cpp": identity_cpp}.items():
    register_func(f"testing.{_name}", _func, override=True)
