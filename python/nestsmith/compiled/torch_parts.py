"""A graph of PyTorch's, cut into parts that become networks and operators that PyTorch runs.

An operator becomes part of a network if the importer has a converter for it, and the converter accepts the arguments of the node.
A view that is a result of the graph stays with PyTorch, because it must share memory with its base. Random operators keep their order,
so that a seed gives the numbers of eager mode.

A graph with symbolic sizes is made one of fixed sizes first (:func:`specialised`).
"""

import collections
import logging
import operator
import threading

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner, Partition
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from .. import forks
from ..error import OpNotImplemented
from ..relay.budget import importing
from ..relay.frontend.pytorch import dtype_name, is_known_operator, is_only_check, is_random, is_view, known_nodes
from ..relay.frontend.torch_graph import of_graph
from .build import compile

__all__ = ["divided", "placeholders", "specialised"]

logger = logging.getLogger("nestsmith")

SMALLEST = 3  # operators that a part must have, unless it is all there is
KEPT = 4  # sets of weights for which networks of a part are kept


def placeholders(graph):
    return [n for n in graph.nodes if n.op == "placeholder"]


def _output(graph):
    return next(n for n in graph.nodes if n.op == "output").args[0]


def results(graph):
    """The nodes (and other values) that a graph returns, as a list."""
    returned = _output(graph)
    return list(returned) if isinstance(returned, (list, tuple)) else [returned]


def tensors(value):
    return [v for v in torch.utils._pytree.tree_leaves(value) if isinstance(v, torch.Tensor)]


# ---- fixed sizes ----


def specialised(module, args):
    """A graph with symbolic sizes as one for the sizes of these arguments: what is computed from sizes alone is a number."""
    mode = torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)
    old, new = module.graph, torch.fx.Graph(module)
    values, nodes, given = {}, {}, iter(args)

    def keep(node, value):
        nodes[node] = new.node_copy(node, nodes.__getitem__)
        values[node] = nodes[node].meta["val"] = value

    with mode, torch.no_grad():
        for node in old.nodes:
            if node.op == "placeholder":
                x = next(given)
                keep(node, mode.from_tensor(x, static_shapes=True) if isinstance(x, torch.Tensor) else x)
                if not isinstance(x, torch.Tensor):
                    nodes[node] = x
            elif node.op == "get_attr":
                keep(node, operator.attrgetter(node.target)(module))
            elif node.op == "output":
                new.output(torch.fx.map_arg(node.args[0], nodes.__getitem__))
            else:
                read = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
                value = node.target(*read[0], **read[1])
                if isinstance(value, (int, float, bool)):
                    values[node] = nodes[node] = value
                elif not is_only_check(node):
                    keep(node, value)
    return torch.fx.GraphModule(module, new)


# ---- parts ----


class _Capable:
    """Which nodes may become part of a network; PyTorch's partitioner asks it."""

    def __init__(self, graph, left):
        self.left, self.known = left, {n for n in known_nodes(graph.owning_module) if not is_random(torch, n.target)}
        devices = {v.device for n in graph.nodes for v in tensors(n.meta.get("val"))}
        self.device = next((d for d in devices if d.type != "cpu"), torch.device("cpu"))
        self.others = {d for d in devices if d.type not in ("cpu", self.device.type)} or self.device.type not in ("cpu", "cuda")
        self.whole = _views_of_results(graph)

    def is_node_supported(self, _, node):
        if node.op != "call_function" or node in self.whole or node.meta["place"] in self.left or self.others:
            return False
        if isinstance(node.target, torch._ops.HigherOrderOperator) or is_only_check(node) or node.is_impure(False):
            return False
        if node.target is operator.getitem:
            return self.is_node_supported(_, node.args[0])
        if not is_known_operator(node) and node not in self.known:
            return False
        return self._is_plain(node.meta.get("val"), True) and all(self._is_plain(n.meta.get("val")) for n in node.all_input_nodes)

    def _is_plain(self, value, made=False):
        """Whether tensors are of kinds that networks have; those that are `made` lie on the device."""
        found = tensors(value)
        return bool(found) and all(self._is_plain_tensor(v) and (not made or v.device == self.device) for v in found)

    def _is_plain_tensor(self, v):
        if v.layout is not torch.strided or v.is_nested or v.is_quantized:
            return False
        try:
            dtype_name(v.dtype)
        except OpNotImplemented:
            return False
        return True


def _views_of_results(graph):
    """Results that are views of computed tensors or of arguments, and the views between."""
    found, todo = set(), [n for n in results(graph) if hasattr(n, "op")]
    while todo:
        node = todo.pop()
        if node in found or node.op != "call_function" or len(node.all_input_nodes) != 1:
            continue
        if is_view(node) or (node.target is operator.getitem and is_view(node.args[0])):
            found.add(node)
            todo += node.all_input_nodes
    return found


def _with_views_apart(module):
    """A copy of the graph in which views that are results serve nothing else, so that networks need not read them."""
    graph, old = torch.fx.Graph(module), module.graph
    nodes = {}
    for place, node in enumerate(n for n in old.nodes if n.op != "output"):
        nodes[node] = graph.node_copy(node, nodes.__getitem__)
        nodes[node].meta["place"] = place
    apart = dict(nodes)
    views = _views_of_results(old)
    for node in old.nodes:
        if node in views:
            apart[node] = graph.node_copy(node, apart.__getitem__)
            apart[node].meta["place"] = -1
    graph.output(torch.fx.map_arg(tuple(results(old)), apart.__getitem__))
    for node in reversed(graph.nodes):
        if not node.users and node.op in ("call_function", "get_attr") and not node.is_impure():
            graph.erase_node(node)
    return torch.fx.GraphModule(module, graph)


def divided(module, args, weights, options, smallest=SMALLEST):
    """A graph of fixed sizes with networks for its parts, as a module.

    Parameters
    ----------
    module : torch.fx.GraphModule
        Without writes; ``meta["val"]`` of its nodes are fake tensors.
    args : list
        Arguments of a call: values of weights are taken from them.
    weights : set of int
        Places of the arguments that become constants of the networks.
    options : dict
        Keywords of `nestsmith.compile`.
    smallest : int
        Operators that a part must have, unless everything is part of one.
    """
    left: dict = {}  # by its place, a node that a converter has refused, and why
    while True:
        cut = _with_views_apart(module)
        capable = _Capable(cut.graph, left)
        counts = _cut(cut, capable, smallest)
        values = {n: args[k] for k, n in enumerate(placeholders(cut.graph)) if k in weights}
        values |= {n: operator.attrgetter(n.target)(cut) for n in cut.graph.nodes if n.op == "get_attr"}
        parts = {n.target: Part(getattr(cut, n.target).graph, n.args, values, capable.device, options)
                 for n in cut.graph.nodes
                 if n.op == "call_module"}
        refused = {place: why for part in parts.values() for place, why in part.refused.items()}
        if not refused:
            break
        left |= refused
    for name, part in parts.items():
        cut.delete_submodule(name)
        cut.add_submodule(name, part)
        part.prepare()
    cut.recompile()
    _tell(counts, left)
    return cut


def _cut(module, capable, smallest):
    """Replaces the parts of a graph by calls of modules. Returns how often each operator is left to PyTorch, by name."""
    nodes = [n for n in module.graph.nodes if n.op == "call_function"]
    outside = [n for n in nodes if not capable.is_node_supported(None, n) and n not in capable.whole]
    if not outside:
        inside = {n: None for n in nodes if n not in capable.whole}
        parts = [Partition(0, inside, inside)] if inside else []
    else:
        parts = _proposed(module, capable, smallest)
    chosen = {n for part in parts for n in part.nodes}
    counts = collections.Counter(str(n.target) for n in nodes if n not in chosen and n not in capable.whole)
    if parts:
        fuse_by_partitions(module, [p.nodes for p in parts])
    return counts


def _proposed(module, capable, smallest):
    """Parts that are large enough. No part holds operators from before and after one that draws numbers or has an effect, so that these
    keep their order."""
    section, number = {}, 0
    for n in module.graph.nodes:
        number += n.op == "call_function" and not capable.is_node_supported(None, n) and (is_random(torch, n.target) or n.is_impure(False))
        section[n] = number

    class OfSection:
        def __init__(self, k):
            self.k = k

        def is_node_supported(self, modules, node):
            return section[node] == self.k and capable.is_node_supported(modules, node)

    found = [p for k in range(number + 1) for p in CapabilityBasedPartitioner(module, OfSection(k), True).propose_partitions()]
    return [p for p in found if sum(n.op == "call_function" and n.target is not operator.getitem and not is_view(n) for n in p.nodes) >= smallest]


def _tell(counts, left):
    if counts:
        logger.info("left to PyTorch: %s", ", ".join(f"{name} ({n})" for name, n in sorted(counts.items())))
    for why in left.values():
        logger.info("left to PyTorch: %s", why)


class Part(torch.nn.Module):
    """A part of a graph: its tensors in, its results out, with the strides that they have in eager mode. Weights are constants of its
    networks: where they are others, or were written to, there is another network.

    Parameters
    ----------
    graph : torch.fx.Graph
    nodes : tuple of torch.fx.Node
        Its arguments in the whole graph.
    values : dict of torch.fx.Node to torch.Tensor
        Those of them that become constants of the networks. Attributes of the graph stay what they are.
    device : torch.device
    options : dict
        Keywords of `nestsmith.compile`.

    Attributes
    ----------
    refused : dict of int to Exception
        Nodes that cannot be imported, by their places in the whole graph, and why.
    """

    def __init__(self, graph, nodes, values, device, options):
        super().__init__()
        self.device, self.options, self.networks = device, {"verbose": 0, **options}, {}
        made = [n.meta["val"] for n in results(graph)]
        self.made = [(v.shape, v.dtype, *_layout(v)) for v in made]
        self.single, self.computed = not isinstance(_output(graph), (list, tuple)), sum(v.numel() > 0 for v in made)
        self.plain = not self.single and all(v.numel() and v.new_empty(v.shape).stride() == v.stride() for v in made)
        self.names, self.graph = [n.name for n in placeholders(graph)], _as_in_memory(graph, self.made)
        self.constants = {k: values[n] for k, n in enumerate(nodes) if n in values and n.op == "get_attr"}
        self.weights = [k for k, n in enumerate(nodes) if n in values and n.op != "get_attr"]
        self.inputs = [k for k, n in enumerate(nodes) if n not in values]
        self.first = {k: values[nodes[k]] for k in self.weights}
        self.imported = self._import(self.first) if self.computed else (None, None, {})
        self.refused = {n.meta["place"]: why for n, why in self.imported[2].items()}
        forks.renew(self)._forked()

    def _forked(self):
        self._lock = threading.Lock()

    def prepare(self):
        """Makes the network for the weights that the part was made with."""
        if self.computed:
            self.network(self.first)
        self.first = self.imported = None

    def forward(self, *args):
        made = self.network(args)(*[args[k] for k in self.inputs]) if self.computed else ()
        made = made if isinstance(made, tuple) else (made,)
        if self.plain:
            return made
        rest = iter(made)
        out = [self._restored(rest, *described) for described in self.made]
        return out[0] if self.single else tuple(out)

    def _restored(self, made, shape, dtype, order, stride):
        """The next result of a network, with the strides of eager mode."""
        if 0 in shape:
            return torch.empty_strided(shape, stride, dtype=dtype, device=self.device)
        x = next(made)
        if order is None:  # with gaps, or overlapping
            return torch.empty_strided(shape, stride, dtype=dtype, device=self.device).copy_(x)
        return x if x.stride() == stride else x.as_strided(shape, stride)

    def network(self, args):
        """The network for the weights among `args`."""
        weights = [args[k] for k in self.weights]
        key = tuple((id(w), w.data_ptr(), w._version) for w in weights)
        with self._lock:  # threads that come with the same new weights wait for one network
            found = self.networks.get(key)
            if found is None:
                while len(self.networks) >= KEPT:
                    del self.networks[next(iter(self.networks))]
                kept = weights, [w.detach() for w in weights]  # so that no other tensor gets their ids or addresses
                found = self.networks[key] = self._compile(args), kept
            return found[0]

    def _compile(self, args):
        mod, params, _ = self.imported or self._import(args)
        where = {"target": "cuda" if self.device.type == "cuda" else "llvm", "device": self.device.index or 0}
        made = compile((mod, params), **where, **self.options)
        made.calling.example = torch.empty(0, device=self.device)
        return made

    def _import(self, args):
        """(module, params, refused nodes) for weights by their places."""
        weights = {self.names[k]: args[k].detach() for k in self.weights}
        constants = {self.names[k]: w for k, w in self.constants.items()}
        with importing(self.options.get("limits")):
            return of_graph(torch, self.graph, weights, constants)


def _as_in_memory(graph, made):
    """The graph of the results that have elements, with their axes in the order in which they lie in memory."""
    only, new, outs = torch.fx.Graph(), {}, []
    for node in graph.nodes:
        if node.op != "output":
            new[node] = only.node_copy(node, new.__getitem__)
    for node, (shape, _, order, _) in zip(results(graph), made):
        if 0 not in shape:
            moved = order is not None and order != sorted(order)
            outs.append(only.call_function(torch.ops.aten.permute.default, (new[node], order)) if moved else new[node])
    only.output(tuple(outs))
    return only


def _layout(value):
    """(axes from the outermost in memory on, strides) of a tensor; no axes if it has gaps or overlaps."""
    shape, stride = value.shape, value.stride()
    order = sorted(range(len(shape)), key=lambda a: -stride[a] if shape[a] > 1 else -max(stride, default=0))
    long = [a for a in order if shape[a] > 1]
    if long == sorted(long):  # axes of one element lie anywhere: such a tensor is not permuted
        order = list(range(len(shape)))
    step = 1
    for a in reversed(order):
        if shape[a] > 1:
            if stride[a] != step:
                return None, stride
            step *= shape[a]
    return order, stride
