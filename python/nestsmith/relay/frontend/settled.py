"""Sizes that are decided by known tensors: `x[mask]`, where the mask is a buffer of the model.

``torch.export`` knows the shapes of buffers and not their values, so a size that such a value decides stays open in the program.
Values are known when a model is imported. The program is therefore exported once more, with these values as its constants: masks
that choose become the places of what they choose, and numbers that are read from tensors become numbers.
"""

import operator

__all__ = ["settled"]


def _mask_places(args):
    """Where in the arguments of `index` and its relatives the masks are."""
    return [(1, i) for i, a in enumerate(args[1]) if hasattr(a, "op")]


# Operators by name: where in their arguments a known value decides how many elements there are.
_DECIDES = {
    "aten::index": _mask_places,
    "aten::index_put": _mask_places,
    "aten::index_put_": _mask_places,
    "aten::masked_select": lambda args: [(1, None)],
    "aten::repeat_interleave.self_Tensor": lambda args: [(1, None)],
}


def _name(target):
    schema = getattr(target, "_schema", None)
    return "" if schema is None else schema.name + (f".{schema.overload_name}" if schema.overload_name == "self_Tensor" else "")


class _Values:
    """Values of the nodes that depend on buffers and constants alone."""

    def __init__(self, torch, gm):
        self.torch, self.gm, self.found = torch, gm, {}
        self.written = set()
        for n in gm.graph.nodes:
            while n is not None and (_writes(n.target) or n in self.written):  # and all that it may be a view of
                base = n.all_input_nodes[0] if n.all_input_nodes else None
                self.written.update([n, base] if base is not None else [n])
                n = base

    def of(self, node):
        """The value of a node, or None if it depends on an input or on what the model writes to."""
        if node not in self.found:
            self.found[node] = None
            self.found[node] = self._computed(node)
        return self.found[node]

    def _computed(self, node):
        if node in self.written or self.torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            return None
        if node.op == "get_attr":
            value = operator.attrgetter(node.target)(self.gm)
            return value.detach() if isinstance(value, self.torch.Tensor) else None
        if node.op != "call_function" or any(self.of(a) is None for a in node.all_input_nodes):
            return None
        args, kwargs = self.torch.fx.map_arg((node.args, node.kwargs), self.of)
        with self.torch.no_grad():
            return node.target(*args, **kwargs)


def _writes(target):
    schema = getattr(target, "_schema", None)
    return schema is not None and schema.is_mutable and schema.name != "aten::detach_"


def _open(torch, node):
    """Whether a result of a node has a size, or is a number, that the exporter did not know."""
    for v in torch.utils._pytree.tree_leaves(node.meta.get("val")):
        if isinstance(v, torch.Tensor) and not all(isinstance(d, int) for d in v.shape):
            return True
        if isinstance(v, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return True
    return False


def _masks(torch, node):
    """The arguments of a node that decide sizes, as (place, place within that)."""
    places = _DECIDES.get(_name(node.target), lambda args: [])(node.args)
    chosen = [node.args[p] if i is None else node.args[p][i] for p, i in places]
    if _name(node.target).startswith("aten::index"):
        return [c for c in chosen if isinstance(v := c.meta.get("val"), torch.Tensor) and v.dtype in (torch.bool, torch.uint8)]
    return [c for c in chosen if hasattr(c, "op")]


def _wanted(torch, program):
    """Whether there may be anything to settle: a cheap look before anything is copied."""
    return any(n.op == "call_function" and (_masks(torch, n) or _open(torch, n)) for n in program.graph.nodes)


def settled(torch, program):
    """The program with the sizes that known tensors decide; itself if there are none."""
    if not _wanted(torch, program) or program.example_inputs is None:
        return program
    gm = program.module()
    values, changed = _Values(torch, gm), False
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and _settle(torch, gm, values, node):
            changed = True
    if not changed:
        return program
    gm.graph.eliminate_dead_code()
    gm.recompile()
    args, kwargs = program.example_inputs
    try:
        with torch.no_grad():
            return torch.export.export(gm, args, kwargs)
    except Exception:  # of many kinds; the program stays as it is, and is refused with the name of what is open
        return program


def _settle(torch, gm, values, node):
    """Puts what is known of a node into its place; whether there was anything."""
    if _open(torch, node) and not node.users:
        return False
    if _open(torch, node) and isinstance(values.of(node), torch.Tensor):
        _replace(node, _constant(gm, node, values.of(node)))
        return True
    if _open(torch, node) and values.of(node) is not None:
        for user in list(node.users):
            known = values.of(node)
            if isinstance(known, (int, float, bool)):
                user.replace_input_with(node, known)
            elif user.target is operator.getitem:
                _replace(user, _constant(gm, user, known[user.args[1]]))
        return True
    masks = [m for m in _masks(torch, node) if values.of(m) is not None]
    if not masks:
        return False
    if _name(node.target) == "aten::masked_select":
        _select(torch, gm, node, values.of(masks[0]))
    elif _name(node.target).startswith("aten::index"):
        _index(torch, gm, node, {m: values.of(m) for m in masks})
    else:
        _repeat(torch, gm, node, values.of(masks[0]))
    return True


def _constant(gm, before, value):
    """A node with a known tensor, in front of another node."""
    name = f"_settled_{sum(k.startswith('_settled_') for k in gm.__dict__)}"
    setattr(gm, name, value.clone())
    with gm.graph.inserting_before(before):
        return gm.graph.create_node("get_attr", name)


def _replace(node, new):
    node.replace_all_uses_with(new)  # and is dead code from now on


def _index(torch, gm, node, masks):
    """Masks become the places of what they choose."""
    index = []
    for i in node.args[1]:
        index += [_constant(gm, node, p) for p in masks[i].nonzero(as_tuple=True)] if i in masks else [i]
    node.args = (node.args[0], index, *node.args[2:])


def _select(torch, gm, node, mask):
    x = node.args[0]
    shape = torch.broadcast_shapes(tuple(x.meta["val"].shape), tuple(mask.shape))
    places = [_constant(gm, node, p) for p in mask.expand(shape).nonzero(as_tuple=True)]
    with gm.graph.inserting_before(node):
        wide = gm.graph.call_function(torch.ops.aten.expand.default, (x, list(shape)))
    node.target, node.args, node.kwargs = torch.ops.aten.index.Tensor, (wide, places), {}


def _repeat(torch, gm, node, repeats):
    x, dim = node.args[0], node.args[2] if len(node.args) > 2 else node.kwargs.get("dim")
    extent = x.meta["val"].numel() if dim is None else x.meta["val"].shape[dim]
    at = _constant(gm, node, torch.repeat_interleave(torch.arange(extent), repeats.expand(extent)))
    if dim is None:
        with gm.graph.inserting_before(node):
            x = gm.graph.call_function(torch.ops.aten.reshape.default, (x, [-1]))
    node.target, node.args, node.kwargs = torch.ops.aten.index_select.default, (x, dim or 0, at), {}
