"""Kernels of few blocks that follow each other in a network become one launch (lower/merge.c): a launch that depends on the one before
costs a microsecond or two, however little it does.

A chain is what calls one after the other are, whose kernels all have few blocks: the functions, and which value each reads. Where it
occurs again the same program serves. What its calls give to others it still writes.
"""

from __future__ import annotations

import copy
import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from .. import _core
from ..compiling import compile_source
from ..target import default_hardware_params
from .graph_codegen import plan_again

__all__ = ["Chain", "candidates", "chains", "merged", "programs"]

logger = logging.getLogger("nestsmith")
_AT_ONCE = 8  # blocks of a kernel, in its cluster; more take turns
_BLOCKS = (_AT_ONCE, 4 * _AT_ONCE, 8 * _AT_ONCE)
_EARLY = (1, 2)  # overlap: it waits; it lets the next one begin at once, too
_MOST, _MOST_ARGS = 16, 60  # functions of a chain, and tensors


class Chain(NamedTuple):
    """Functions by name, in order, and for each which tensor of the chain its tensors are: `inputs` of them come first, what the
    functions give follows."""

    functions: tuple
    wiring: tuple
    inputs: int

    @property
    def tensors(self):
        """How many it has."""
        return 1 + max(max(w) for w in self.wiring)


class _Graph:
    """A graph file, with entries as [node, output]."""

    def __init__(self, text):
        self.file = json.loads(text)
        self.nodes, self.row = self.file["nodes"], self.file["node_row_ptr"]

    def function(self, i):
        node = self.nodes[i]
        return node["attrs"]["func_name"] if node["op"] == "tvm_op" else None

    def inputs(self, i):
        return [tuple(e[:2]) for e in self.nodes[i]["inputs"]]

    def outputs(self, i):
        return [(i, k) for k in range(self.row[i + 1] - self.row[i])]

    def source(self, entry):
        """Whose memory it is: reshapes have none of their own."""
        while self.function(entry[0]) == "__nop":
            entry = self.inputs(entry[0])[0]
        return entry

    def chain(self, calls):
        """(chain, its inputs, its outputs) of these nodes."""
        made = [e for i in calls for e in self.outputs(i)]
        read = [[self.source(e) if self.source(e) in made else e for e in self.inputs(i)] for i in calls]
        inputs = list(dict.fromkeys(e for entries in read for e in entries if e not in made))
        at = {e: k for k, e in enumerate(inputs + made)}
        wiring = tuple(tuple(at[e] for e in (*entries, *self.outputs(i))) for entries, i in zip(read, calls))
        return Chain(tuple(self.function(i) for i in calls), wiring, len(inputs)), inputs, made


# ---- which there are ----


def _blocks(program):
    """Of its kernels."""
    return [k["grid"][0] * k["grid"][1] * k["grid"][2] for k in json.loads(program.manifest)["kernels"]]


def _whole(program, target):
    """Whether it can be a part of a chain: one of its kernels may use what blocks share otherwise."""
    if program.state is None:
        return False
    args = len(json.loads(program.manifest)["args"])
    try:
        _core.merged_source([(program.state, program.layout, 0, range(args))], _engine(target), args, "main")
    except ValueError:
        return False
    return True


def _engine(target, overlap=0):
    return target.engine(default_hardware_params(target), overlap=overlap)


def _runs(graph, small):
    """Nodes of calls that follow each other, of functions of `small`, as long as can be."""
    run = []
    for i in range(len(graph.nodes)):
        name = graph.function(i)
        if name in small and len(run) < _MOST:
            run.append(i)
        elif name not in (None, "__nop"):
            yield run
            run = [i] if name in small else []
    yield run


def chains(lib, most=_AT_ONCE):
    """The chains of a network whose kernels have at most so many blocks: {Chain: list of the nodes of each place where it occurs}."""
    found, graph = {}, _Graph(lib.graph_json_str)
    if lib.target.kind.name != "cuda" or not _core.can_merge(_engine(lib.target)):
        return found
    blocks = {name: _blocks(p) for name, p in lib.kernels.items()}
    small = {n for n, b in blocks.items() if max(b) <= most and _whole(lib.kernels[n], lib.target)}
    for run in _runs(graph, small):
        if sum(len(blocks[graph.function(i)]) for i in run) < 2:
            continue
        chain = graph.chain(run)[0]
        if chain.tensors <= _MOST_ARGS:
            found.setdefault(chain, []).append(tuple(run))
    return found


def candidates(lib):
    """The chains that are worth a try: of kernels without turns, and of larger ones; as `chains` gives them, but that places overlap."""
    found = {}
    for most in _BLOCKS:
        for chain, places in chains(lib, most).items():
            found[chain] = list(dict.fromkeys([*found.get(chain, ()), *places]))
    return found


# ---- their programs ----


def _name(chain, used):
    parts = [f.removeprefix("tvmgen_default_").removeprefix("fused_") for f in chain.functions]
    base = name = f"tvmgen_default_merged_{'_and_'.join(parts)}"[:100]
    n = 0
    while name in used:
        n += 1
        name = f"{base}_{n}"
    return name


def _program(chain, name, lib, stop):
    """The program of a chain, and others that begin early where its parts have such; None if it cannot be."""
    parts, target = [lib.kernels[f] for f in chain.functions], lib.target
    waits = any(k.get("waits") for p in parts for k in json.loads(p.manifest)["kernels"])
    overlaps = [int(waits), *(_EARLY if any(p.early for p in parts) else ())]
    args = [(p.state, p.layout, p.constants(), w) for p, w in zip(parts, chain.wiring)]
    out = []
    for overlap in overlaps:
        p = copy.copy(parts[0])
        p.name, p.early, p.state, p.schedule = name, (), None, " and ".join(dict.fromkeys(q.schedule for q in parts))
        try:
            p.source, p.manifest = _core.merged_source(args, _engine(target, overlap), chain.tensors, name)
            p.binary, p.cached = compile_source(target, p.source, name, stop=stop)
        except (ValueError, RuntimeError) as err:
            logger.info("%s: not merged: %s", name, err)
            return None
        out.append(p)
    out[0].early = tuple(out[1:])
    return out[0]


def programs(found, lib):
    """{Chain: its program} of those that can be merged, compiled in parallel."""
    names, used = {}, set(lib.kernels)
    for chain in found:
        used.add(names.setdefault(chain, _name(chain, used)))
    stop, pool = _core.Stop(), ThreadPoolExecutor(max_workers=max(1, min(len(names), os.cpu_count() or 1)))
    try:
        made = {c: pool.submit(_program, c, name, lib, stop) for c, name in names.items()}
        return {c: p.result() for c, p in made.items() if p.result() is not None}
    finally:  # after an error or Ctrl-C the others do not matter any more
        stop.set()
        pool.shutdown(cancel_futures=True)


# ---- the network with them ----


def _node(graph, calls, name, before):
    """The node of a chain, but for its inputs, with `before` others of its function before it."""
    attrs = [graph.nodes[i]["attrs"] for i in calls]
    chain = graph.chain(calls)[0]
    facts = {"flops": f"{sum(max(0.0, float(a.get('flops', 0))) for a in attrs):.0f}"}
    for key in ("schedule", "products", "layer"):
        said = dict.fromkeys(a[key] for a in attrs if a.get(key))
        facts |= {key: " and ".join(said)} if said else {}
    counts = {"num_inputs": str(chain.inputs), "num_outputs": str(chain.tensors - chain.inputs)}
    return {"op": "tvm_op", "name": f"{name}_{before}" if before else name, "attrs": {"func_name": name, "flatten_data": "0", **counts, **facts}}


class _Rewriter:
    """Nodes of a graph in a new order, where nodes of chains are one."""

    def __init__(self, graph):
        self.graph, self.nodes, self.row, self.order, self.where = graph, [], [0], [], {}

    def add(self, node, inputs, entries):
        """A node that makes what `entries` were."""
        self.where |= {e: [len(self.nodes), k, 0] for k, e in enumerate(entries)}
        self.nodes.append({**node, "inputs": [self.where[e] for e in inputs]})
        self.row.append(self.row[-1] + len(entries))
        self.order += entries

    def keep(self, i):
        """Adds a node as it was; False if what it reads is not there yet."""
        ready = all(e in self.where for e in self.graph.inputs(i))
        if ready:
            self.add(self.graph.nodes[i], self.graph.inputs(i), self.graph.outputs(i))
        return ready

    def text(self):
        """The file: each value with its type, and its memory planned anew."""
        file, old = self.graph.file, [self.graph.row[i] + k for i, k in self.order]
        made = {
            "nodes": self.nodes,
            "arg_nodes": [i for i, n in enumerate(self.nodes) if n["op"] == "null"],
            "heads": [self.where[tuple(h[:2])] for h in file["heads"]],
            "attrs": {key: [kind, [values[e] for e in old]] for key, (kind, values) in file["attrs"].items()},
            "node_row_ptr": self.row,
        }
        return plan_again({**file, **made}, file.get("branches", False))


def _rewritten(text, places):
    """The graph file in which the nodes of each of `places`, {nodes: name of a function}, are one, where the last of them was. Reshapes
    of what a chain makes come behind it; those that it alone reads are gone."""
    graph = _Graph(text)
    chain_of = {i: calls for calls in places for i in calls}

    def of_source(entry):
        return chain_of.get(graph.source(entry)[0])

    read = {tuple(h[:2]) for h in graph.file["heads"]}
    for i in range(len(graph.nodes)):
        read |= {e for e in graph.inputs(i) if of_source(e) is None or chain_of.get(i) != of_source(e)}
    out, behind, times = _Rewriter(graph), [], {}
    for i in range(len(graph.nodes)):
        calls = chain_of.get(i)
        if calls is None:
            gone = graph.function(i) == "__nop" and of_source((i, 0)) and (i, 0) not in read
            if not gone and not out.keep(i):
                behind.append(i)
        elif i == calls[-1]:
            name, (_, inputs, made) = places[calls], graph.chain(calls)
            times[name] = times.get(name, -1) + 1
            out.add(_node(graph, calls, name, times[name]), inputs, made)
            behind = [k for k in behind if not out.keep(k)]
    return out.text()


def merged(lib, found, made):
    """The network with chains merged.

    Parameters
    ----------
    lib : GraphExecutorFactoryModule
    found : dict
        Of the chains to merge the places, as `chains` gives them; no node twice.
    made : dict
        Their programs.

    Returns
    -------
    GraphExecutorFactoryModule
    """
    places = {calls: made[chain].name for chain, at in found.items() for calls in at}
    if not places:
        return lib
    text = _rewritten(lib.graph_json_str, places)
    kernels = {**lib.kernels, **{made[c].name: made[c] for c in found}}
    called = {n["attrs"]["func_name"] for n in json.loads(text)["nodes"] if n["op"] == "tvm_op"}
    kernels = {name: p for name, p in kernels.items() if name in called}
    return lib.with_kernels(text, kernels)
