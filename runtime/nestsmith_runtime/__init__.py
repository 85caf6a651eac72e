"""Runs networks that nestsmith has compiled and exported (``net.nsm``, ``net.so``), with NumPy and nothing else.

    import nestsmith_runtime
    network = nestsmith_runtime.load("net.nsm")
    y = network(x)

The library beside this file and ``nsrt.h``, which describes it, serve C programs, too.
"""

import ctypes
import os
import pathlib
import threading
import weakref

import numpy as np

__all__ = ["Network", "NetworkError", "load"]
__version__ = "@VERSION@"  # written by .ci/wheel


class NetworkError(RuntimeError):
    """The file, the machine or an argument is at fault; the message says which."""


class _Value(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p), ("ndim", ctypes.c_int32),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("bytes", ctypes.c_size_t)]  # fmt: skip

    def described(self):
        name = self.dtype.decode()
        return tuple(self.shape[: self.ndim]), np.dtype("uint16" if name == "bfloat16" else name)


class _Info(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("target", ctypes.c_char_p), *((f, ctypes.c_int32) for f in (
        "device_type", "n_inputs", "n_outputs", "n_weights")), *((f, ctypes.POINTER(_Value)) for f in ("input", "output", "weight")),
        ("weight_bytes", ctypes.c_size_t), ("context_bytes", ctypes.c_size_t)]  # fmt: skip


class _Options(ctypes.Structure):
    _fields_ = [("device_id", ctypes.c_int32), ("threads", ctypes.c_int32), *((f, ctypes.c_void_p) for f in ("pool", "parallel", "user"))]


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("dtype", ctypes.c_uint8 * 4),
                ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)]  # fmt: skip


class _Kernel(ctypes.Structure):
    _fields_ = [("node", ctypes.c_char_p), ("function", ctypes.c_char_p), ("seconds", ctypes.c_double)]


_lib = ctypes.CDLL(os.fspath(pathlib.Path(__file__).with_name("libnestsmith_rt.so")))
_lib.nsrt_message.restype = ctypes.c_char_p


def _call(name, *args):
    if getattr(_lib, "nsrt_" + name)(*args):
        raise NetworkError(_lib.nsrt_message().decode(errors="replace"))


def _made(name, *args, free):
    """A pointer that the library makes, and its owner: an object that frees it in the end."""
    pointer = ctypes.c_void_p()
    _call(name, *args, ctypes.byref(pointer))
    weakref.finalize(pointer, getattr(_lib, "nsrt_" + free), ctypes.c_void_p(pointer.value)).atexit = False
    return pointer


class Network:
    """An exported network. Threads may call it at the same time: they share the weights, and each has the rest for itself.

    Parameters
    ----------
    path : str or os.PathLike
        A ``.nsm`` or ``.so`` that nestsmith exported. It contains programs, which are run: load only files that you trust.
    threads : int
        Threads of a call on a CPU. 0: a pool that all calls share, of as many threads as there are cores.
    device : int
        Number of the GPU.

    Attributes
    ----------
    inputs, outputs : dict
        Name to (shape, dtype). Values of bfloat16 are held as uint16.
    weights : list of str
    target : str
    """

    def __init__(self, path, threads=0, device=0):
        self._model = _made("open", os.fsencode(path), free="close")
        info = _Info()
        _call("describe", self._model, ctypes.byref(info), ctypes.c_size_t(ctypes.sizeof(info)))
        self.target = info.target.decode()
        self.inputs, self.outputs, weights = (
            {v.name.decode(): v.described() for v in values[:n]}
            for values, n in ((info.input, info.n_inputs), (info.output, info.n_outputs), (info.weight, info.n_weights)))  # fmt: skip
        self._weights, self.weights = weights, list(weights)
        self._options, self._local = _Options(device_id=device, threads=threads), threading.local()

    def _context(self):
        if not hasattr(self._local, "context"):
            size = ctypes.c_size_t(ctypes.sizeof(self._options))
            self._local.context = _made("context_create", self._model, ctypes.byref(self._options), size, free="context_free")
        return self._local.context

    def _array(self, name, value, known):
        shape, dtype = known[name]
        array = np.ascontiguousarray(value)
        if array.shape != shape and not (shape == () and array.shape == (1,)) or array.dtype != dtype:
            raise ValueError(f"{name!r} must be of shape {shape} and type {dtype}; it is of shape {array.shape} and type {array.dtype}")
        return array

    def __call__(self, *args, **kwargs):
        """Runs the network on arrays, by place or by name. Returns an array, or a tuple where there are several outputs."""
        given = {**dict(zip(self.inputs, args)), **kwargs}
        if len(args) + len(kwargs) != len(self.inputs) or set(given) != set(self.inputs):
            names = ", ".join(self.inputs)
            raise TypeError(f"the network takes {len(self.inputs)} inputs ({names}), {len(args) + len(kwargs)} were given: {', '.join(given)}")
        context = self._context()
        for name, value in given.items():
            array = self._array(name, value, self.inputs)
            _call("set", context, name.encode(), array.ctypes, ctypes.c_size_t(array.nbytes))
        _call("run", context)
        results = [np.empty(shape, dtype) for shape, dtype in self.outputs.values()]
        for k, out in enumerate(results):
            _call("get", context, k, out.ctypes, ctypes.c_size_t(out.nbytes))
        return results[0] if len(results) == 1 else tuple(results)

    def profile(self, runs=10):
        """Times every kernel: a list of (node, function, seconds)."""
        n, context = ctypes.c_int32(), self._context()
        _call("profile", context, 1, None, 0, ctypes.byref(n))
        kernels = (_Kernel * n.value)()
        _call("profile", context, int(runs), kernels, n.value, ctypes.byref(n))
        return [(k.node.decode(), k.function.decode(), k.seconds) for k in kernels]

    def replace(self, name, value):
        """Gives a weight another value. To be called before the network is."""
        if name not in self._weights:
            raise ValueError(f"the network has no weight {name!r}; it has {', '.join(self.weights) or 'none that was not folded'}")
        array = self._array(name, value, self._weights)
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        code = {"i": 0, "u": 1, "f": 2, "b": 6}[array.dtype.kind]
        tensor = _Tensor(array.ctypes.data, (1, 0), array.ndim, (code, 8 * array.dtype.itemsize, 1, 0), ctypes.addressof(shape), None, 0)
        _call("replace", self._model, name.encode(), ctypes.byref(tensor))


def load(path, threads=0, device=0):
    """Opens an exported network; see `Network`."""
    return Network(path, threads, device)
