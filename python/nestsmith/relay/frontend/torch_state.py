"""Exported programs that write to what they hold: every tensor has one name, and those that are written to are buffers.

``torch.export`` keeps a tensor that a model reaches by two ways (a buffer that is in a list of caches, too) as a buffer and as a constant.
A write to one of them must be seen by who reads the other.
"""

__all__ = ["held", "with_one_name", "without_prefix"]


def held(program, spec):
    """The tensor of a placeholder that is no input."""
    table = program.state_dict if spec.target in program.state_dict else program.constants
    return table[spec.target]


def without_prefix(program, prefix):
    """The program, whose parameters and buffers have lost a prefix of their names."""
    for spec in [*program.graph_signature.input_specs, *program.graph_signature.output_specs]:
        if spec.target is not None:
            spec.target = spec.target.removeprefix(prefix)
    for table in (program.state_dict, program.constants):
        renamed = {k.removeprefix(prefix): v for k, v in table.items()}
        table.clear()
        table.update(renamed)
    return program


def _same_memory(torch, program):
    """Lists of descriptions of placeholders for the same tensor, buffers first."""
    found: dict = {}
    for spec in program.graph_signature.input_specs:
        tensor = held(program, spec) if spec.target is not None else None
        if isinstance(tensor, torch.Tensor) and tensor.numel():
            found.setdefault((tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()), []).append(spec)
    kinds = torch.export.graph_signature.InputKind
    return [sorted(specs, key=lambda s: s.kind == kinds.CONSTANT_TENSOR) for specs in found.values()]


def with_one_name(torch, program, written):
    """A program in which the placeholders `written` (by name), whatever they were, are buffers, and no tensor of theirs has two names.
    The program itself if that holds."""
    kinds = torch.export.graph_signature.InputKind
    several = [[s.arg.name for s in specs] for specs in _same_memory(torch, program)]
    joined = {name: names[0] for names in several if written & set(names) for name in names}
    specs = program.graph_signature.input_specs
    targets = {joined.get(n, n) for n in written}
    constant = {s.arg.name for s in specs if s.arg.name in targets and s.kind == kinds.CONSTANT_TENSOR}
    if not constant and all(k == v for k, v in joined.items()):
        return program
    graph, nodes = torch.fx.Graph(), {}
    for node in program.graph.nodes:
        if node.op == "placeholder" and joined.get(node.name, node.name) != node.name:
            nodes[node] = nodes[next(n for n in nodes if n.name == joined[node.name])]
        elif node.op == "output":
            graph.output(torch.fx.map_arg(node.args[0], nodes.__getitem__))
        else:
            nodes[node] = graph.node_copy(node, nodes.__getitem__)
    return _program(torch, program, graph, [_as_buffer(torch, s, constant) for s in specs if joined.get(s.arg.name, s.arg.name) == s.arg.name])


def _as_buffer(torch, spec, constant):
    about = torch.export.graph_signature
    return about.InputSpec(about.InputKind.BUFFER, spec.arg, spec.target, False) if spec.arg.name in constant else spec


def _program(torch, program, graph, specs):
    """The program with another graph and other descriptions of its placeholders."""
    about = torch.export.graph_signature
    # Placeholders in the order that PyTorch asks for: parameters, buffers, constants, inputs
    targets = {s.target for s in specs}
    constants = {k: v for k, v in program.constants.items() if k in targets}
    return torch.export.ExportedProgram(
        root=torch.fx.GraphModule(program.graph_module, graph), graph=graph,
        graph_signature=about.ExportGraphSignature(specs, program.graph_signature.output_specs), state_dict=program.state_dict,
        range_constraints=program.range_constraints, module_call_graph=program.module_call_graph, example_inputs=program.example_inputs,
        constants=constants, verifiers=program.verifiers,
    )  # fmt: skip
