"""What ``relay.build`` returns: the graph, the programs and the parameters, ready to be put on a device or into a file.

The stored form (csrc/program/container.c) is the symbol ``nestsmith_graph_data`` of a shared library. A binary that does not
fit the machine where the file is loaded is compiled again from its source, once, through the on-disk cache.
"""

import json
import logging
import os
import pathlib
import tempfile
import threading
import warnings

import numpy as np

from .. import _core, check, forks
from ..compiling import compile_source
from ..error import TVMError, TVMValueError
from ..numerics import stored
from ..target import Target
from . import library
from .module import OperatorModule, export_blob, register_loader, whole_file
from .ndarray import uninitialised
from .params import ShapeTuple, String, arrays_at, bytes_of, load_param_dict
from .sources import export_source
from .timing import evaluator, time_calls

__all__ = ["GraphExecutorFactoryModule", "GraphRuntime", "LibModule", "from_bytes", "load_library"]

logger = logging.getLogger("nestsmith")


class LibModule:
    """The compiled functions of a network, by name. ``imported_modules[0].get_source()`` is the device code."""

    def __init__(self, kernels, target):
        self.kernels, self.target = kernels, target
        self.type_key = target.kind.name
        self._loaded = {}
        forks.renew(self)._forked()

    def _forked(self):
        self._lock = threading.Lock()

    imported_modules = property(lambda self: [self])

    def get_source(self, fmt=""):
        """The source text of all functions, or of the one called `fmt`."""
        if fmt in self.kernels:
            return self.kernels[fmt].source
        return "\n".join(k.source for k in self.kernels.values())

    def get_lib(self):
        return self

    def load(self, handle):
        """Functions loaded on an engine device: name -> DeviceModule."""
        with self._lock:
            key = id(handle)
            if key not in self._loaded:
                self._loaded[key] = handle, {n: self._load_one(handle, k) for n, k in self.kernels.items()}
            return self._loaded[key][1]

    def _load_one(self, handle, kernel):
        foreign = None
        if kernel.binary is not None:
            try:
                return handle.load(kernel.binary, kernel.manifest)
            except TVMError as e:
                if isinstance(e, ValueError):
                    raise
                foreign = e  # made for another machine
        info = handle.info() if hasattr(handle, "info") else {}
        engine = self.target.engine(sm=info.get("sm"))
        if foreign and not self._made_again():
            raise foreign
        kernel.binary, _ = compile_source(self.target, kernel.source, kernel.name, engine=engine)
        return handle.load(kernel.binary, kernel.manifest)

    def _made_again(self):
        """Whether programs that do not fit this machine can be compiled here: not for a processor that the target names."""
        return self.target.mcpu in ("", "native") and not self.target.foreign and _core.build_available(self.target.engine())[0]

    def check(self, name):
        """Raises TVMError for programs that cannot run on this CPU, nor be compiled again; `name` is that of the library."""
        if self.target.kind.device_type != 1:
            return
        for kernel in self.kernels.values():
            try:
                _core.object_check(kernel.binary, name) if kernel.binary else None
            except TVMError as e:
                if isinstance(e, ValueError) or not self._made_again():
                    raise
                logger.warning("%s was made for another processor; its programs are compiled again for this one", name)
                return

    def get_function(self, name, query_imports=False):
        """One function of the network as a callable on arrays: inputs, then outputs."""
        if name not in self.kernels:
            raise AttributeError(f"the library has no function {name!r}; it has {', '.join(self.kernels)}")
        k = self.kernels[name]
        return OperatorModule(k.source, k.manifest, k.binary, self.target)[name]

    __getitem__ = get_function

    def export_library(self, file_name, fcompile=None, **kwargs):
        raise ValueError("export the factory that relay.build returned, not its library part")


class GraphRuntime:
    """A network on a device. Functions are reached by name (``rt["run"]``) or as methods; users wrap it in a
    GraphModule."""

    _FUNCTIONS = ("set_input", "set_input_zero_copy", "set_output_zero_copy", "run", "get_output", "get_input",
                  "get_num_outputs", "get_num_inputs", "get_input_index", "get_input_info", "load_params",
                  "share_params", "run_from_inputs")

    def __init__(self, graph_json, lib, params, device, original_names=()):
        self.lib, self.graph_json = lib, graph_json
        self._open(_core.GraphExec(device.handle(), graph_json, lib.load(device.handle())), device, original_names)
        if os.environ.get("NESTSMITH_CUDA_GRAPH", "1") == "0":
            self.core.replay(False)
        for name, value in (params or {}).items():
            self._upload(self._index[name], value)
            self._params.add(name)

    def _open(self, core, device, original_names):
        self.core, self.device = core, device
        self._inputs = core.inputs()
        self._index = {name: i for i, (name, _) in enumerate(self._inputs)}
        self._outputs = core.outputs()
        self._params = set()
        self._original = set(original_names)

    @classmethod
    def over(cls, core, device, params, original_names=()):
        """The network of an executor that is elsewhere: `core` does what the engine's GraphExec does; `params` are names of inputs
        that have their values."""
        out = cls.__new__(cls)
        out.lib, out.graph_json = None, ""
        out._open(core, device, original_names)
        out._params.update(params)
        return out

    # ---- values in and out ----
    def _where(self, key):
        if isinstance(key, str):
            if key not in self._index:
                hint = check.did_you_mean(key, self._index)
                if key in self._original:
                    hint = "; it was a parameter of the network, but its value has become part of the compiled constants"
                listed = check.some(map(repr, self.get_input_info()[0]), 10)
                raise TVMError(f"Could not find {key!r} in the graph's inputs{hint}; there are: {listed or 'none'}")
            return self._index[key]
        if not 0 <= int(key) < len(self._inputs):
            raise IndexError(f"there is no input {key}; the network has {len(self._inputs)}, counted from 0")
        return int(key)

    def _upload(self, index, value):
        name, (entry, shape, dtype) = self._inputs[index]
        if tuple(value.shape) != tuple(shape):
            raise TVMValueError(f"input {name!r} has shape {tuple(shape)}, the array has shape {tuple(value.shape)}")
        if getattr(value.dtype, "kind", "f") not in "biufV":
            raise TypeError(f"input {name!r} is {dtype}, the array is {value.dtype}; it must hold real numbers")
        buffer = getattr(value, "buffer", None)
        if buffer is not None and str(value.dtype) == dtype and value.device == self.device:
            self.core.set(entry, buffer)
            return
        host = value.numpy() if hasattr(value, "numpy") and not isinstance(value, np.ndarray) else np.asarray(value)
        self.core.set(entry, np.ascontiguousarray(host if dtype == "bfloat16" else host.astype(dtype, copy=False)))

    def set_input(self, key, value):
        """Copies `value` (array of the input's shape) into an input by name or index."""
        if not hasattr(value, "shape"):
            value = np.asarray(value)
        self._upload(self._where(key), value)

    def set_input_zero_copy(self, key, value):
        """Uses the memory of `value`, an NDArray on this device, as the input from now on."""
        self._bind(self._inputs[self._where(key)][1], value)

    def set_output_zero_copy(self, key, value):
        """Writes an output into the memory of `value`, an NDArray on this device, from now on."""
        index = int(str(key).rsplit(":", 1)[-1])
        self._bind(self._outputs[self._output(index)], value)

    def _bind(self, described, value):
        entry, shape, dtype = described
        if value is None:
            self.core.bind(entry, None)
            return
        if tuple(value.shape) != tuple(shape) or str(value.dtype) != dtype:
            raise TVMValueError(f"expected shape {tuple(shape)} and dtype {dtype}, got {tuple(value.shape)} and "
                                f"{value.dtype}")
        if value.device != self.device:
            raise TVMValueError(f"the array lies on {value.device}, the network on {self.device}")
        self.core.bind(entry, value.buffer)

    def _output(self, index):
        n = check.integer("output", index)
        if not 0 <= n < len(self._outputs):
            raise IndexError(f"there is no output {n}; the network has {len(self._outputs)}, counted from 0")
        return n

    def _fetch(self, described, out):
        entry, shape, dtype = described
        if out is None:
            out = uninitialised(shape, dtype, self.device)
        if tuple(out.shape) != tuple(shape) or str(out.dtype) != dtype:
            raise TVMValueError(f"out has shape {tuple(out.shape)} and dtype {out.dtype}; expected {tuple(shape)} and "
                                f"{dtype}")
        if out.device == self.device:
            self.core.get(entry, out.buffer)
            return out
        host = np.empty(shape, stored(dtype))
        self.core.get(entry, host)
        out.copyfrom(host)
        return out

    def get_output(self, index, out=None):
        """Output number `index` as an NDArray on the device (or in `out`)."""
        return self._fetch(self._outputs[self._output(index)], out)

    def get_input(self, key, out=None):
        """The present value of an input or parameter."""
        return self._fetch(self._inputs[self._where(key)][1], out)

    def get_num_outputs(self):
        return len(self._outputs)

    def get_num_inputs(self):
        """Number of inputs, parameters included."""
        return len(self._inputs)

    def get_input_index(self, name):
        """Index of an input; -1 if there is none of this name."""
        return self._index.get(name, -1)

    def get_input_info(self):
        """(shapes, dtypes) by name of the inputs that are no parameters."""
        real = [(n, d) for n, d in self._inputs if n not in self._params]
        return {n: ShapeTuple(d[1]) for n, d in real}, {n: String(d[2]) for n, d in real}

    def kernel_seconds(self, runs):
        """(seconds of each node of the graph, 0 where it has no kernel; seconds of a run; whether the nodes add up to it). Each is timed
        in `runs` rounds or more, and times that other work on the machine has disturbed do not count. On a GPU each kernel is repeated
        alone; its weights are as cold as all memory of the network leaves them, its instructions as cold as other kernels do."""
        return self.core.node_times(runs, [self._inputs[self._index[name]][1][0] for name in self._params])

    def load_params(self, data):
        """Sets parameters from the bytes of a parameter file. One warning tells the names that are no input, one those of
        weights that became constants when the network was compiled: they keep the values that they had then."""
        self._take_params(load_param_dict(bytes(data)))

    def share_params(self, other, data):
        """Uses the parameters of another executor on the same device for every name in the parameter file; names as in
        `load_params`."""
        shared = {n: other.get_input(n) if n in other._index else None for n in load_param_dict(bytes(data))}
        self._take_params(shared)

    def _take_params(self, values):
        self._warn_of_others(values)
        for name, value in values.items():
            if name in self._index and value is not None:
                self._upload(self._index[name], value)
                self._params.add(name)

    def _warn_of_others(self, names):
        wrong = check.unmatched(names, {**self._index, **dict.fromkeys(self._original)})
        if wrong:
            warnings.warn(f"the parameter file holds names that are no input of the network: {wrong}", stacklevel=5)
        bound = sorted(n for n in names if n in self._original and n not in self._index)
        if bound:
            warnings.warn(f"the values of {check.some(bound, 3)} became constants when the network was compiled; those of the "
                          "parameter file are not used (to change weights later, build without params=)", stacklevel=5)

    # ---- running ----
    def run(self):
        """Runs the network; asynchronous on GPUs. Raises ValueError naming the inputs that were never set."""
        self.core.run()

    def run_from_inputs(self, *inputs):
        """Copies inputs in, runs, and copies all outputs to the host."""
        for i, value in enumerate(inputs):
            self._upload(i, value)
        self.core.run()
        return [self.get_output(i).numpy() for i in range(len(self._outputs))]

    @property
    def mode(self):
        """How the last run was executed: "cuda graph" or "kernels"."""
        return "cuda graph" if self.core.captured else "kernels"

    def time_evaluator(self, func_name, dev=None, *args, **options):
        """A function that times ``run`` or ``run_from_inputs`` and returns a BenchmarkResult, whose ``mode`` says how runs were executed;
        options as of `Module.time_evaluator`. A warning names inputs that were never set."""
        if func_name not in ("run", "run_from_inputs"):
            raise ValueError(f"cannot time {func_name!r}; use 'run'")
        if dev is not None and dev != self.device:
            raise ValueError(f"the network is on {self.device}, it cannot be timed on {dev}")

        def start(given):
            unset = self.core.unset() if func_name == "run" else ""
            if unset:
                warnings.warn(f"the time is that of zeros as inputs: {unset} never set", stacklevel=4)
            if func_name == "run_from_inputs":
                self.run_from_inputs(*given)
            self.core.time(2)  # warm up, and capture where runs are replayed

        def block(given, number, flush):
            if func_name == "run":
                return self.core.time(number, flush)
            return time_calls(lambda: self.run_from_inputs(*given), self.device, number, flush)

        timed = evaluator(start, block, *args, **options)

        def evaluate(*given):
            result = timed(*given)
            result.mode = self.mode
            return result

        return evaluate

    def get_function(self, name, query_imports=False):
        if name not in self._FUNCTIONS:
            raise AttributeError(f"the graph executor has no function {name!r}; it has {', '.join(self._FUNCTIONS)}")
        return getattr(self, name)

    __getitem__ = get_function


class Foreign:
    """In place of the engine's executor: a network for another machine, which can be described and exported, not run."""

    def __init__(self, graph_json, target):
        self._graph, self._target = json.loads(graph_json), target

    def _described(self, node, output=0):
        entry, attrs = self._graph["node_row_ptr"][node] + output, self._graph["attrs"]
        return entry, tuple(attrs["shape"][1][entry]), attrs["dltype"][1][entry]

    def inputs(self):
        return [(self._graph["nodes"][n]["name"], self._described(n)) for n in self._graph["arg_nodes"]]

    def outputs(self):
        return [self._described(*head[:2]) for head in self._graph["heads"]]

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        raise TVMError(f"the network was compiled for {self._target.attrs['mtriple']}, this machine is {os.uname().machine}: "
                       "export(path) writes it for there")  # fmt: skip


class GraphExecutorFactoryModule:
    """The compiled network. ``lib["default"](device)`` puts it on a device; unpacks as (graph JSON, library, params). `forms`: of
    parameters that are larger than what they were made of, name -> (the original, how the runtime makes the parameter of it)."""

    def __init__(self, graph_json_str, kernels, params, libmod_name, target, original_names=(), forms=None):
        self.graph_json_str, self.params, self.libmod_name, self.target = graph_json_str, params, libmod_name, target
        self.kernels, self.original_names, self.forms = kernels, list(original_names), dict(forms or {})
        self.lib = LibModule(kernels, target)

    def get_graph_json(self):
        return self.graph_json_str

    get_executor_config = get_graph_json
    graph_json = property(get_graph_json)

    def get_params(self):
        return self.params

    def get_lib(self):
        return self.lib

    module = property(lambda self: self)

    def _create(self, *devices):
        if not devices:
            raise ValueError("give the device the network shall run on, for example lib['default'](nestsmith.cuda(0))")
        dev = devices[0]
        if dev.device_type != self.target.kind.device_type:
            raise TVMValueError(f"the network was compiled for {self.target.kind.name}, it cannot run on {dev}")
        return GraphRuntime(self.graph_json_str, self.lib, self.params, dev, self.original_names)

    def _functions(self):
        return {self.libmod_name: self._create, "cuda_graph_create": self._create,
                "debug_create": lambda _name, *d: self._create(*d), "get_graph_json": self.get_graph_json,
                "get_graph_params": self.get_params, "remove_params": self._without_params}

    def get_function(self, name, query_imports=False):
        if not isinstance(name, str):
            raise ValueError(f"functions are named by strings, not {type(name).__name__}")
        if name not in self._functions():
            raise AttributeError(f"the library has no function {name!r}; it has {', '.join(self._functions())}")
        return self._functions()[name]

    __getitem__ = get_function

    def implements_function(self, name):
        return name in self._functions()

    def __reduce__(self):
        return from_bytes, (self.to_bytes(),)

    def _without_params(self):
        return GraphExecutorFactoryModule(self.graph_json_str, self.kernels, {}, self.libmod_name, self.target,
                                          self.original_names)

    def __iter__(self):
        warnings.warn("unpacking (graph, lib, params) is deprecated; use the returned factory", DeprecationWarning,
                      stacklevel=2)
        return iter((self.graph_json_str, self.lib, self.params))

    # ---- files ----
    def to_bytes(self, model=False, levels=(), forms="stored"):
        """Everything needed to run the network, as bytes; as a model file with programs for several processors."""
        made = {n: self.forms[n] for n in self.params if n in self.forms} if forms == "made" else {}
        weights = {n: made[n][0] if n in made else v for n, v in self.params.items()}
        programs = [(name, k.source, k.manifest, self._binaries(k, levels) if levels else k.binary) for name, k in self.kernels.items()]
        return _core.container_write(self.libmod_name, str(self.target), self.graph_json_str, bytes_of(weights), programs,
                                     self.original_names, model, tuple((i, *made[n][1]) for i, n in enumerate(weights) if n in made))

    def _binaries(self, kernel, levels):
        return tuple(compile_source(Target(level), kernel.source, kernel.name)[0] for level in levels)

    def _export_model(self, file_name, levels, forms):
        """Writes a model file. The old file, which may be mapped, stays what it is until nobody uses it."""
        if levels and self.target.kind.device_type != 1:
            raise ValueError(f"levels: they are processors of CPU networks; this one is for {self.target}")
        unknown = [n for n in levels if n not in _LEVELS]
        if unknown:
            raise ValueError(f"levels: {unknown[0]!r} is none of {', '.join(_LEVELS)}")
        data = self.to_bytes(True, [text for name, text in _LEVELS.items() if name in levels], forms)
        logger.info("%s: %.1f MB; weights as kernels read them: %.1f MB", file_name, len(data) / 1e6,
                    sum(np.asarray(v).nbytes for v in self.params.values()) / 1e6)
        with whole_file(file_name) as into, open(into, "wb") as f:
            f.write(data)

    def export_library(self, file_name, fcompile=None, addons=None, workspace_dir=None, *, levels=(), forms="stored", **kwargs):
        """Writes one file that ``runtime.load_module`` turns into the factory again.

        Parameters
        ----------
        file_name : str or path
            ``.nsm``: a model file, for which no linker is needed and whose weights are used where they are mapped. ``.tar``: objects for
            linking elsewhere. Others: a shared library.
        fcompile : callable, optional
            Links it, for example ``contrib.ndk.create_shared``. Not for model files.
        addons, workspace_dir
            As of `OperatorModule.export_library`.
        levels : list of str, optional
            For model files of CPU networks: the processors for which all programs are compiled. Where the file is loaded, the best one that
            fits is used. Names: "x86-64-v4", "x86-64-v3", "x86-64-v2", "aarch64" (its compiler must be installed). Default: only the
            network's target.
        forms : str
            For model files: weights that kernels want in another form (of Winograd's convolution, with padding) are stored in it
            ("stored"), which starts fastest, or made where the file is loaded ("made"): the file is as small as the weights of the
            model. Results are the same to the bit. The sizes are logged (logger "nestsmith", INFO).

        Raises
        ------
        ValueError
            For a level or form that is not known, or that is given for another kind of file.
        """
        check.one_of_names("forms", forms, ("stored", "made"))
        if str(file_name).endswith(".nsm") and fcompile is None:
            self._export_model(os.fspath(file_name), [levels] if isinstance(levels, str) else list(levels), forms)
            return str(file_name)
        if forms == "made":
            raise ValueError(f"forms: {str(file_name)!r} stores weights as kernels read them; only model files (.nsm) make them")
        if levels:
            raise ValueError(f"levels: {str(file_name)!r} is for one processor; only model files (.nsm) are for several")
        data = self.to_bytes()
        with tempfile.TemporaryDirectory() as folder:
            part = os.path.join(folder, "network.bin")
            pathlib.Path(part).write_bytes(data)
            text = _INCLUDE.replace("FILE", part.replace("\\", "/")).replace("SIZE", str(len(data)))
            export_blob(str(file_name), {"type": "graph"}, text,
                        str(self.target if self.target.kind.device_type == 1 else self.target.host or ""), fcompile,
                        addons, workspace_dir, **kwargs)
        return str(file_name)

    save = export_library

    def export_source(self, folder):
        """Writes the network into a folder as source, and returns the folder.

        Each kernel is a file (``.c``, ``.cu`` or ``.cl``). With them are the weights, a ``main.c`` that runs the network and a Makefile.
        The folder builds without nestsmith, by a C compiler; on CUDA with nvcc.
        """
        return export_source(self, folder)


# those with more instructions first
_LEVELS = {"x86-64-v4": "llvm -mcpu=x86-64-v4", "x86-64-v3": "llvm -mcpu=x86-64-v3",
           "x86-64-v2": "llvm -mcpu=x86-64-v2", "aarch64": "llvm -mtriple=aarch64-linux-gnu"}
_INCLUDE = r"""
#include <stdint.h>
__asm__(".section .rodata\n.balign 64\n.global nestsmith_graph_data\nnestsmith_graph_data:\n"
        ".incbin \"FILE\"\n.byte 0\n.previous\n");
extern const unsigned char nestsmith_graph_data[];
const unsigned char *const nestsmith_graph = nestsmith_graph_data;
const uint64_t nestsmith_graph_size = SIZEu;
"""


class _Stored:
    """A program read from a file."""

    __slots__ = "name", "source", "manifest", "binary"

    def __init__(self, name, source, manifest, binary):
        self.name, self.source, self.manifest, self.binary = name, source, manifest, binary


def from_bytes(data, what="the library"):
    """The factory stored by ``to_bytes``; ValueError if the bytes are damaged or something else."""
    name, target, graph, params, programs, inputs = _core.container_read(data, what)
    kernels = {p[0]: _Stored(*p) for p in programs}
    return GraphExecutorFactoryModule(graph, kernels, arrays_at(data, params), name, Target(target), inputs)


def of_library(lib):
    """The factory in a `runtime.library.Library`."""
    size = int.from_bytes(lib.variable("nestsmith_graph_size", 8), "little")
    out = from_bytes(lib.variable("nestsmith_graph_data", size), repr(lib.path))
    out.lib.check(repr(lib.path))
    return out


register_loader("graph", of_library)


def _of_model(path):
    """The factory in a model file."""
    out = from_bytes(pathlib.Path(path).read_bytes(), repr(path))
    out.lib.check(repr(path))
    return out


register_loader("model", _of_model)


def load_library(path):
    """The factory stored by ``export_library`` as a shared library. Raises as `runtime.load_module` does."""
    return of_library(library.read(os.fspath(path)))
