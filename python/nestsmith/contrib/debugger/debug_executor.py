"""Running a network node by node: outputs and times of every operator.

>>> m = debug_executor.GraphModuleDebug(lib["debug_create"]("default", dev), [dev], lib.get_graph_json(), None)
>>> m.run(data=x)
>>> m.debug_get_output("tvmgen_default_fused_nn_dense")
"""

import json
import os
import tempfile
import weakref

import numpy as np

from ... import check
from ...error import TVMError, TVMValueError
from ...runtime import Report, load_param_dict
from ...runtime.ndarray import empty
from ...runtime.timing import BenchmarkResult, evaluator, time_calls
from .. import graph_executor
from .debug_result import DebugResult

__all__ = ["BenchmarkResult", "GraphModuleDebug", "Report", "create"]


def create(graph_json_str, libmod, device, dump_root=None):
    """A GraphModuleDebug of a graph (JSON text), a module that has its functions, and a device (or a list of one)."""
    device = device[0] if isinstance(device, (list, tuple)) else device
    return GraphModuleDebug(_Nodes(graph_json_str, libmod, device), device, graph_json_str, dump_root)


class _Nodes:
    """The nodes of a graph with an array for each output; nothing shares memory."""

    _original: tuple = ()

    def __init__(self, graph_json, lib, device):
        graph = json.loads(graph_json)
        self.lib, self.device, self.graph_json = lib, device, graph_json
        self.nodes, self._row, self._heads = graph["nodes"], graph["node_row_ptr"], graph["heads"]
        shapes, dtypes = graph["attrs"]["shape"][1], graph["attrs"]["dltype"][1]
        self.entries = [empty(tuple(s), t, device) for s, t in zip(shapes, dtypes)]
        self._inputs = [self.nodes[i]["name"] for i in graph["arg_nodes"]]
        self._arg_nodes, self._set = graph["arg_nodes"], set()

    def _entry(self, node, output=0):
        return self.entries[self._row[node] + output]

    def _node(self, index):
        index = check.integer("index", index)
        if not 0 <= index < len(self.nodes):
            raise TVMError(f"there is no node {index}; the graph has {len(self.nodes)}, counted from 0")
        return index

    def find(self, node):
        """The number of a node, given by name or number. Raises TVMError."""
        if not isinstance(node, str):
            return self._node(node)
        names = [n["name"] for n in self.nodes]
        if node not in names:
            raise TVMError(f"the graph has no node {node!r}{check.did_you_mean(node, names)}")
        return names.index(node)

    # ---- what GraphModule asks for ----
    def get_input_index(self, name):
        return self._inputs.index(name) if name in self._inputs else -1

    def _where(self, key):
        if isinstance(key, str):
            if key not in self._inputs:
                raise TVMError(f"Could not find {key!r} in the graph's inputs; there are: {', '.join(self._inputs)}")
            return self._inputs.index(key)
        if not 0 <= check.integer("input", key) < len(self._inputs):
            raise IndexError(f"there is no input {key}; the network has {len(self._inputs)}, counted from 0")
        return key

    def set_input(self, key, value):
        at = self._where(key)
        array = self._entry(self._arg_nodes[at])
        value = value if hasattr(value, "shape") else np.asarray(value)
        if tuple(value.shape) != tuple(array.shape):
            raise TVMValueError(f"input {self._inputs[at]!r} has shape {array.shape}, the array has shape {tuple(value.shape)}")
        array.copyfrom(value)
        self._set.add(at)

    def get_input(self, key, out=None):
        found = self._entry(self._arg_nodes[self._where(key)])
        return found if out is None else found.copyto(out)

    def get_output(self, index, out=None):
        if not 0 <= check.integer("output", index) < len(self._heads):
            raise IndexError(f"there is no output {index}; the network has {len(self._heads)}, counted from 0")
        found = self._entry(*self._heads[index][:2])
        return found if out is None else found.copyto(out)

    def get_num_outputs(self):
        return len(self._heads)

    def get_num_inputs(self):
        return len(self._inputs)

    def get_input_info(self):
        arrays = {n: self._entry(i) for n, i in zip(self._inputs, self._arg_nodes)}
        return {n: tuple(a.shape) for n, a in arrays.items()}, {n: a.dtype for n, a in arrays.items()}

    def load_params(self, data):
        for name, value in load_param_dict(data).items():
            if name in self._inputs:
                self.set_input(name, value)

    def run(self):
        missing = [n for i, n in enumerate(self._inputs) if i not in self._set]
        if missing:
            raise TVMValueError(f"inputs were never set: {', '.join(missing)}")
        for i in range(len(self.nodes)):
            self.run_node(i)

    def time_evaluator(self, func_name, dev=None, *args, **options):
        return evaluator(lambda a: self.run(), lambda a, n, flush: time_calls(self.run, self.device, n, flush), *args, **options)

    # ---- nodes ----
    def outputs(self, i):
        """The arrays of a node's outputs."""
        return self.entries[self._row[i] : self._row[i + 1]]

    def run_node(self, i):
        """Runs a node; nothing for an input."""
        node = self.nodes[i]
        if node["op"] == "null":
            return
        args = [self._entry(n, k) for n, k, *_ in node["inputs"]]
        if node["attrs"]["func_name"] == "__nop":  # an output that is an input, in another shape
            for have, want in zip(args, self.outputs(i)):
                want.copyfrom(have.numpy().reshape(want.shape))
            return
        self.lib[node["attrs"]["func_name"]](*args, *self.outputs(i))

    def time_node(self, i, *options):
        """A `BenchmarkResult` of a node."""
        if self.nodes[i]["op"] == "null":
            return BenchmarkResult([0.0] * options[1])
        run = lambda: self.run_node(i)  # noqa: E731
        return evaluator(lambda a: run(), lambda a, n, flush: time_calls(run, self.device, n, flush), *options)()


class GraphModuleDebug(graph_executor.GraphModule):
    """A network whose nodes are run one by one. `run` prints a table of times and writes files.

    Parameters
    ----------
    module : what ``lib["debug_create"]("default", device)`` returned
    device : Device or list of Device
    graph_json_str : str
    dump_root : str, optional
        Where the folder of files (``_dump_path``) is made; a temporary folder without it.
    """

    def __init__(self, module, device, graph_json_str, dump_root=None):
        device = device[0] if isinstance(device, (list, tuple)) else device
        if not isinstance(module, _Nodes):
            nodes = _Nodes(graph_json_str, module.lib, device)
            for name in sorted(module._params):
                nodes.set_input(name, module.get_input(name))
            module = nodes
        super().__init__(module)
        self._dump_root = dump_root
        root = dump_root or tempfile.mkdtemp(prefix="_tvmdbg_")
        self._dump_path = os.path.join(root, f"_tvmdbg_device_{str(device).replace('(', '_').rstrip(')')}")
        os.makedirs(self._dump_path, exist_ok=True)
        self.debug_datum = DebugResult(graph_json_str, self._dump_path)
        if not dump_root:
            self._end = weakref.finalize(self, _remove, self.debug_datum, root)

    def run(self, number=10, repeat=1, min_repeat_ms=1, limit_zero_time_iterations=100, cooldown_interval_ms=0, repeats_to_cooldown=1,
            sort_by_time=True, **input_dict):  # fmt: skip
        """Runs the network, times every node (as `time_evaluator` does with the same arguments), writes the outputs of all nodes and a trace
        into ``_dump_path``, and prints the table of times."""
        if input_dict:
            self.set_input(**input_dict)
        self.module.run()
        options = (number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown)
        times = [list(self.module.time_node(i, *options).results) for i in range(len(self.module.nodes))]
        self.debug_datum.update([self.module.outputs(i) for i in range(len(self.module.nodes))], times)
        self.debug_datum.dump_output_tensor()
        self.debug_datum.dump_chrome_trace()
        self.debug_datum.display_debug_result(sort_by_time)

    def run_individual(self, number, repeat=1, min_repeat_ms=0, limit_zero_time_iterations=100, cooldown_interval_ms=0, repeats_to_cooldown=1):
        """Mean seconds of each node, in order."""
        options = (number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown)
        return [self.module.time_node(i, *options).mean for i in range(len(self.module.nodes))]

    def run_individual_node(self, index, number=10, repeat=1, min_repeat_ms=0, limit_zero_time_iterations=100, cooldown_interval_ms=0,
                            repeats_to_cooldown=1):  # fmt: skip
        """A `BenchmarkResult` of the node of this number: 0 for an input. Raises TVMError if there is none."""
        options = (number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown)
        return self.module.time_node(self.module._node(index), *options)

    def debug_get_output(self, node, out=None):
        """The first output of a node, by name or number, as an NDArray (or in `out`), after the nodes before it have run.
        Raises TVMError if there is no such node."""
        at = self.module.find(node)
        for i in range(at + 1):
            self.module.run_node(i)
        found = self.module.outputs(at)[0]
        return found if out is None else found.copyto(out)

    def profile(self, collectors=None, **input_dict):
        """A `Report` of one run of every node.

        Raises ValueError for `collectors`: there are no counters of the hardware.
        """
        if collectors:
            raise ValueError("collectors are not there; a profile has times only")
        if input_dict:
            self.set_input(**input_dict)
        self.module.run()
        device, calls = str(self.module.device), []
        for i, node in enumerate(self.module.nodes):
            if node["op"] != "null":
                seconds = self.module.time_node(i, 1, 1, 0).mean
                shapes = ", ".join(f"{a.dtype}{list(a.shape)}" for a in self.module.outputs(i))
                calls.append({"Name": node["attrs"]["func_name"], "Duration (us)": 1e6 * seconds, "Device": device, "Count": 1,
                              "Argument Shapes": shapes})  # fmt: skip
        total = {device: {"Duration (us)": sum(c["Duration (us)"] for c in calls)}}
        return Report(calls, total, {"Executor": "Graph"})

    def exit(self):
        """Removes the files."""
        end = getattr(self, "_end", None)
        if end is not None:
            end()
        else:
            self.debug_datum.exit()


def _remove(datum, root):
    if os.path.isdir(datum._dump_path):
        datum.exit()
    if os.path.isdir(root):
        os.rmdir(root)
