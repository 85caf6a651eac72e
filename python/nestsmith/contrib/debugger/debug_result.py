"""What a debugged run leaves: outputs of all nodes, times, and files of them."""

import json
import os
import pathlib

from ...runtime.params import save_param_dict

__all__ = ["DebugResult"]

GRAPH_DUMP_FILE_NAME = "_tvmdbg_graph_dump.json"
CHROME_TRACE_FILE_NAME = "_tvmdbg_execution_trace.json"
_HEADER = ("Node Name", "Ops", "Time(us)", "Time(%)", "Shape", "Inputs", "Outputs", "Measurements(us)")


class DebugResult:
    """Nodes of a graph, their outputs and times.

    Parameters
    ----------
    graph_json : str
    dump_path : str
        Folder for files; the graph is written at once.
    """

    def __init__(self, graph_json, dump_path):
        graph = json.loads(graph_json)
        self._dump_path, self._time_list, self._outputs = dump_path, [], []
        names = [n["name"] for n in graph["nodes"]]
        shapes, self._row = graph["attrs"]["shape"][1], graph["node_row_ptr"]
        self._dtypes = graph["attrs"]["dltype"][1]
        self._nodes = []
        for i, n in enumerate(graph["nodes"]):
            op = "param" if n["op"] == "null" else n.get("attrs", {}).get("func_name", n["op"])
            self._nodes.append({**n, "op": op, "inputs": [names[k[0]] for k in n.get("inputs", ())], "shape": shapes[self._row[i]]})
        self._shapes = shapes
        pathlib.Path(dump_path, GRAPH_DUMP_FILE_NAME).write_text(json.dumps(graph, indent=4))

    def get_graph_nodes(self):
        """The nodes: dicts with "op" ("param" for inputs), "name", "inputs", "shape" (of the first output), "attrs"."""
        return self._nodes

    def get_graph_node_shapes(self):
        """Shapes of all outputs."""
        return self._shapes

    def get_graph_node_output_num(self, node):
        """Number of a node's outputs."""
        return 1 if node["op"] == "param" else int(node["attrs"]["num_outputs"])

    def get_graph_node_dtypes(self):
        """Types of all outputs."""
        return self._dtypes

    def update(self, outputs, times):
        """Keeps the outputs (a list per node) and the times (lists of seconds per node) of a run."""
        self._outputs, self._time_list = outputs, times

    def get_output_tensors(self):
        """The outputs of the last run: NumPy arrays by ``name____<output>``."""
        names = ((n["name"], i, out) for n, outs in zip(self._nodes, self._outputs) for i, out in enumerate(outs))
        return {f"{name}____{i}": out.numpy() for name, i, out in names}

    def dump_output_tensor(self):
        """Writes the outputs as a parameter file."""
        pathlib.Path(self._dump_path, "output_tensors.params").write_bytes(save_param_dict(self.get_output_tensors()))

    def dump_chrome_trace(self):
        """Writes the times as a trace for chrome://tracing."""
        events, now = [], 0.0
        for node, times in zip(self._nodes, self._time_list):
            took = 1e6 * sum(times) / len(times)
            common = {"cat": node["op"], "name": node["name"], "pid": 1, "tid": 1}
            begin = {**common, "ph": "B", "ts": now, "args": {"shape": node["shape"], "inputs": node["inputs"]}}
            events += [begin, {**common, "ph": "E", "ts": now + took}]
            now += took
        trace = {"displayTimeUnit": "ns", "traceEvents": events}
        pathlib.Path(self._dump_path, CHROME_TRACE_FILE_NAME).write_text(json.dumps(trace))

    def get_debug_result(self, sort_by_time=True):
        """The times of the last run as a table."""
        rows, total = [], sum(sum(t) / len(t) for t in self._time_list)
        for node, times in zip(self._nodes, self._time_list):
            if node["op"] == "param":
                continue
            mean = sum(times) / len(times)
            rows.append([node["name"], node["op"], f"{1e6 * mean:.3f}", f"{100 * mean / total if total else 0:.3f}", str(tuple(node["shape"])),
                         str(len(node["inputs"])), str(self.get_graph_node_output_num(node)), str([round(1e6 * t, 3) for t in times])])  # fmt: skip
        if sort_by_time:
            rows.sort(key=lambda r: -float(r[2]))
        rows.append(["Total_time", "-", f"{1e6 * total:.3f}", *["-"] * 5])
        lines = [_HEADER, ["-" * len(h) for h in _HEADER], *rows]
        width = [max(len(line[i]) for line in lines) + 2 for i in range(len(_HEADER))]
        return "\n".join("".join(cell.ljust(w) for cell, w in zip(line, width)) for line in lines)

    def display_debug_result(self, sort_by_time=True):
        """Prints the table."""
        print(self.get_debug_result(sort_by_time))

    def exit(self):
        """Removes the files."""
        for path in pathlib.Path(self._dump_path).glob("*"):
            path.unlink()
        os.rmdir(self._dump_path)
