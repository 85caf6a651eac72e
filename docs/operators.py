"""Writes docs/operators.md, the table of the operators of networks, from the code: `python docs/operators.py`."""

import inspect
import pathlib

from nestsmith.relay import op
from nestsmith.relay.op import registry

PAGE = pathlib.Path(__file__).with_suffix(".md")
CLASSES = {
    registry.ELEMWISE: "element-wise",
    registry.BROADCAST: "broadcast",
    registry.INJECTIVE: "injective",
    registry.REDUCE: "reduction",
    registry.ANCHOR: "anchor",
    registry.OPAQUE: "opaque",
}
HEAD = """# Operators

The operators that networks consist of, as `nestsmith.relay` has them (`relay.nn.conv2d`, `relay.add`). Made by
`python docs/operators.py` from the code.

* *class*: what fusion makes of it. Element-wise, broadcasting and injective operators join what produces their data or reads
  their result; a reduction takes producers in; an anchor takes in what follows element by element; an opaque one is alone.
* *layout*: what `ConvertLayout` ([](passes.md)) does with it. *chosen*: as the user asks; *follows*: takes its data as it
  comes; –: gets its arguments as the network has them.
* *16 bits*: what `ToMixedPrecision` does with it. *always*, *never*, or *follow*: as its arguments.
* *loops*: whether it becomes a kernel, on CPUs and GPUs alike. *taken apart*: passes replace it by other operators.

| operator | class | layout | 16 bits | loops |
|---|---|---|---|---|
"""


def signature(name):
    """An operator as users call it."""
    build = op
    for part in name.split("."):
        build = getattr(build, part, None)
    if build is None:
        return f"`{name}`"
    given = inspect.signature(build).parameters.values()
    return f"`{name}({', '.join(p.name if p.kind is not p.VAR_KEYWORD else '...' for p in given)})`"


def layout(o):
    if o.layout is None:
        return "–"
    return "chosen" if o.layout is op.nn.convolution.layout_rule else "follows"


def loops(o):
    return "yes" if o.loops else "taken apart" if o.apart else "no"


def table():
    """The whole page."""
    rows = ((o, name) for name in op.names() for o in [op.get(name)])
    lines = [f"| {signature(n)} | {CLASSES[o.pattern]} | {layout(o)} | {o.colour} | {loops(o)} |" for o, n in rows]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(table())
