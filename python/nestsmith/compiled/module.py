"""A compiled network as a callable of the user's arrays."""

import json
import os
import threading

import numpy as np

from .. import check, forks
from ..error import TVMValueError
from ..numerics import stored
from ..runtime import Device, NDArray, load_module
from ..runtime.graph import Foreign, GraphExecutorFactoryModule, GraphRuntime
from . import values
from .report import Report

__all__ = ["CompiledModule", "load"]

_SHARE = 1 << 14  # bytes from which it is quicker to use the caller's memory than to copy


class _Places:
    """Arguments by place or by name; one output as it is, several as a tuple."""

    state: dict = {}
    example = None  # what results are like where there is no input: None, arrays of NumPy's
    other_shape = "compile the model again with inputs of this shape"

    def keep(self, given, values):
        return values

    def __init__(self, names):
        self.names = names

    def inputs(self, args, kwargs):
        names = self.names
        if len(args) > len(names):
            raise TypeError(f"the network takes {len(names)} inputs ({check.some_names(names)}), {len(args)} were given")
        given = dict(zip(names, args))
        for name, value in kwargs.items():
            if name not in names:
                raise TypeError(f"the network has no input {name!r}{check.did_you_mean(name, names)}; it takes {check.some_names(names)}")
            if name in given:
                raise TypeError(f"input {name!r} was given twice, by place and by name")
            given[name] = value
        missing = [n for n in names if n not in given]
        if missing:
            raise TypeError(f"no value for input {', '.join(map(repr, missing))}")
        return [given[n] for n in names]

    def outputs(self, values):
        return values[0] if len(values) == 1 else tuple(values)


class CompiledModule:
    """A network that is ready to run on a device.

    Called with NumPy arrays or PyTorch tensors, by place or by name; it returns the same kind. Large tensors on the
    network's own device are used where they lie, everything else is copied. Calls from several threads take turns. A network for another
    machine (target option ``-mtriple``) is for `export`: calling it raises TVMError.

    Parameters
    ----------
    lib : GraphExecutorFactoryModule
        What `relay.build` returned.
    device : Device, optional
        Default: device 0 of the target's kind.
    name : str
    calling : optional
        Arguments to inputs and outputs to results; see `source.Source`.
    mod, params : optional
        The network that was built.
    tasks : list of SearchTask, optional
        What it was cut into for tuning.
    """

    def __init__(self, lib, device=None, name="network", calling=None, mod=None, params=None, tasks=()):
        self.lib, self.target, self.name, self.mod, self.params = lib, lib.target, name, mod, params
        self.tasks = list(tasks)
        self.device = Device(lib.target.kind.device_type, 0) if device is None else device
        if lib.target.foreign:
            core = Foreign(lib.graph_json_str, lib.target)
            self.runtime = GraphRuntime.over(core, self.device, lib.params, lib.original_names)
        else:
            self.runtime = lib[lib.libmod_name](self.device)
        shapes, dtypes = self.runtime.get_input_info()
        self.inputs = {n: (shapes[n], dtypes[n]) for n in shapes}
        self.outputs = [(tuple(shape), dtype) for _, shape, dtype in self.runtime.core.outputs()]
        self._entry = {n: described[0] for n, described in self.runtime.core.inputs()}
        self._out_entry = [described[0] for described in self.runtime.core.outputs()]
        self.calling = calling or _Places(list(self.inputs))
        self._own = list(self.inputs)[: len(self.inputs) - len(self.calling.state)]  # the others are buffers that the model writes to
        self._movable = _movable(json.loads(lib.graph_json_str))
        self._lent = set()  # inputs that are the caller's memory now
        self._seen = {n: set() for n in self.inputs}  # kinds of arrays that were right: (type, element type)
        self._ways_out = {}  # of each output, by the device of an example (None: arrays of NumPy's); see `_way_out`
        forks.renew(self)._forked()

    def _forked(self):
        self._lock = threading.Lock()

    def __reduce__(self):
        raise TypeError("a compiled network cannot be copied or pickled; export(path) writes it, and nestsmith.load(path) reads it")

    @property
    def state(self):
        """What buffers that the model writes to hold now, by name; they may be replaced between calls."""
        return self.calling.state

    def __repr__(self):
        shown = ", ".join(f"{check.printable(n, lines=False)}: {dtype}{list(shape)}" for n, (shape, dtype) in self.inputs.items())
        made = ", ".join(f"{dtype}{list(shape)}" for shape, dtype in self.outputs)
        return f"<nestsmith {self.name} on {self.device}: ({shown}) -> ({made})>"

    # ---- running ----

    def __call__(self, *args, **kwargs):
        """Runs the network.

        Raises
        ------
        TypeError
            If an input is missing, unknown, or has another element type.
        ValueError
            If an input has another shape.
        """
        given = self.calling.inputs(args, kwargs)
        if len(given) != len(self._own):
            raise TypeError(f"the network takes {len(self._own)} inputs ({', '.join(self._own)}), {len(given)} were given")
        given = [self._checked(name, v) for name, v in zip(self._own, given)]
        own, example = given[:], None if given else self.calling.example
        for k, v in enumerate(given):
            if values.is_tensor(v):
                given[k] = v.resolve_neg()  # PyTorch negates some views only when they are read
                example = given[k] if example is None else example
        with self._lock:
            if example is not None and self.device.device_type != 1:
                values.finish(given)
            for name, v in zip(self._own, given):
                self._set(name, v)
            for name, v in self.state.items():
                self._set(name, self._checked(name, v))
            out = self.calling.keep(own, self._run(example))
        return self.calling.outputs(out)

    def _checked(self, name, value):
        shape, dtype = self.inputs[name]
        kind = type(value), getattr(value, "dtype", None), values.unusual(value)
        if kind in self._seen[name] and value.shape == shape:
            return value
        if not values.is_tensor(value) and not isinstance(value, (np.ndarray, NDArray)):
            value = np.asarray(value)
        if kind[2]:
            raise TypeError(f"input {name!r} is {kind[2]}; the network takes tensors whose elements all lie in memory: {values.REMEDY[kind[2]]}")
        if values.shape_of(value) != shape:
            found = values.shape_of(value)
            raise TVMValueError(f"input {name!r} has shape {found}; the network was compiled for {shape}: {self.calling.other_shape}")
        if not values.holds(value, dtype):
            raise TypeError(f"input {name!r} holds {values.dtype_of(value)}; the network was compiled for {dtype}: convert it first")
        if type(value) is kind[0]:
            self._seen[name].add(kind)
        return value

    def _set(self, name, value):
        """On the CPU large arrays are read where they lie. A GPU replays its kernels with fixed addresses: there a copy
        within its memory is the quick way."""
        on_cpu = self.device.device_type == 1
        if name in self._lent and values.lies_in(value, self.runtime.core.bound(self._entry[name])):
            return  # the same memory as in the call before
        array = None if on_cpu and value.nbytes < _SHARE else values.shared(value, self.device)
        if on_cpu and array is not None:
            self.runtime.set_input_zero_copy(name, array)
            self._lent.add(name)
            return
        if name in self._lent:  # back to memory of the network's own, or the copy would go into the caller's
            self.runtime.set_input_zero_copy(name, None)
            self._lent.discard(name)
        self.runtime.core.set(self._entry[name], values.host(value) if array is None else array.buffer)

    def _way_out(self, example, shape, dtype):
        """How an output comes to a caller who gave `example`: (function that makes an array, None), or, if the output is small and
        in memory of the host, (function that copies an array, where the output is put so that it lies in that array)."""
        make = values.maker(example, shape, dtype, self.device)
        array = make()
        if self.device.device_type != 1 or not 0 < array.nbytes < _SHARE:
            return make, None
        return array.clone if values.is_tensor(array) else array.copy, values.target(array, self.device)

    def _run(self, example):
        """Runs, and returns the outputs as arrays of the kind of `example`."""
        where = None if example is None else example.device
        if where not in self._ways_out:
            self._ways_out[where] = [self._way_out(example, *described) for described in self.outputs]
        ways, out, bound = self._ways_out[where], [], []
        for k, (make, room) in enumerate(ways):
            array = make() if room is None else None
            out.append(array)
            if room is None and self._movable[k] and self.device.device_type == 1 and array.nbytes:
                shared = values.shared(array, self.device)
                if shared is not None:
                    self.runtime.set_output_zero_copy(k, shared)
                    bound.append(k)
        try:
            self.runtime.run()
            for k, (copy, room) in enumerate(ways):
                if room is not None:
                    self.runtime.core.get(self._out_entry[k], room)
                    out[k] = copy()
                elif k not in bound and out[k].nbytes:
                    self.runtime.core.get(self._out_entry[k], values.target(out[k], self.device))
        finally:
            for k in bound:  # what is returned belongs to the caller alone
                self.runtime.set_output_zero_copy(k, None)
        if self.device.device_type != 1:
            self.device.sync()
        return out if where is None else [o if o.device == where else o.to(where) for o in out]

    # ---- looking at it ----

    def benchmark(self, repeat=5, number=5, min_repeat_ms=100):
        """Times the network on what its inputs are now (zeros before the first call). Returns a BenchmarkResult in
        seconds; `report` says where the time goes."""
        with self._lock:
            self._zeros()
            return self.runtime.time_evaluator("run", number=number, repeat=repeat, min_repeat_ms=min_repeat_ms)()

    def _zeros(self):
        """Inputs that were never set become zeros."""
        for name, (shape, dtype) in self.inputs.items() if self.runtime.core.unset() else ():
            self.runtime.set_input(name, np.zeros(shape, stored(dtype)))

    def report(self, runs=10):
        """Times every layer, in turns with whole runs.

        Parameters
        ----------
        runs : int
            How often each layer is timed at least; small networks are run for 50 ms. The lower quartile of its times counts, so that other
            work on the machine does not.

        Returns
        -------
        Report
            Prints as a table; ``rows`` are the layers. ``fits`` says whether they add up to a run; measuring goes on for a while
            until they do.
        """
        runs = check.integer("runs", runs, 1)
        with self._lock:
            self._zeros()
            seconds, total, fits = self.runtime.kernel_seconds(runs)
        return Report(json.loads(self.lib.graph_json_str), seconds, total, self.target, self.device, fits)

    def export(self, path, levels=(), forms="stored"):
        """Writes the network with its weights into a file that `nestsmith.load` and `runtime.load_module` read: ``.so``, ``.tar`` with
        objects to be linked elsewhere, or ``.nsm``, a model file, of which `levels` are the processors, and `forms` says how weights are
        stored, as of ``export_library``. Returns the path."""
        return self.lib.export_library(os.fspath(path), levels=levels, forms=forms)

    def export_source(self, folder):
        """Writes the network into a folder as C, CUDA C or OpenCL C with a Makefile; see ``export_source`` of what `relay.build` returns."""
        return self.lib.export_source(folder)


def _movable(graph):
    """Of each output: whether it may be written into other memory. Not if it is (a reshape of) an input or a weight, or of
    another output."""

    def root(entry):
        node = graph["nodes"][entry[0]]
        while node["op"] != "null" and node["attrs"]["func_name"] == "__nop":
            entry = node["inputs"][0]
            node = graph["nodes"][entry[0]]
        return None if node["op"] == "null" else (entry[0], entry[1])

    roots = [root(h) for h in graph["heads"]]
    return [r is not None and roots.count(r) == 1 for r in roots]


def load(path, device=None):
    """The network of a file that `CompiledModule.export` (or ``export_library``) wrote.

    Parameters
    ----------
    path : str or os.PathLike
    device : Device, optional
        Default: device 0 of the kind that the network was compiled for.

    Returns
    -------
    CompiledModule
        Inputs by place or by name; several outputs are a tuple.

    Raises
    ------
    ValueError
        If the file is missing, damaged, or holds something else.
    """
    lib = load_module(os.fspath(path))
    if not isinstance(lib, GraphExecutorFactoryModule):
        raise ValueError(f"{os.fspath(path)!r} holds one operator, not a network; runtime.load_module loads it")
    return CompiledModule(lib, device, os.path.splitext(os.path.basename(os.fspath(path)))[0])
