"""What schedules of several templates have in common: grids of threads, and what follows the operator a template is for."""

from ... import _core, te
from ...target import Target
from ...topi.util import get_const_int

__all__ = ["accumulate", "begin", "bind", "current_target", "define_unrolling", "extent", "fetch", "grid3",
           "grid_of_tiles", "is_computed", "largest_divisor", "simd_lanes", "apply_unrolling", "spread",
           "unroll_within"]


def current_target():
    """The target that the template is asked for."""
    return Target.current(allow_none=False)


def extent(axis):
    """The length of an axis of an operation."""
    return get_const_int(axis.dom.extent)


def is_computed(tensor):
    """Whether a tensor is computed, not an argument."""
    return not tensor.op.is_placeholder


def bind(stage, axes, tags):
    """Binds axes to the hardware's indices: ``bind(s[T], (by, bx), "blockIdx.y blockIdx.x")``."""
    for axis, tag in zip(axes, tags.split()):
        stage.bind(axis, te.thread_axis(tag))


def grid3(stage, axes, factors, batch=None, order=True):
    """A grid of blocks of threads over three axes.

    Parameters
    ----------
    stage : te.Stage
    axes : three axes, for z, y and x
    factors : three int
        Threads of a block along each.
    batch : axis, optional
        The images of a batch, which join the blocks along z.
    order : bool
        Puts the axes of the blocks before those of the threads.

    Returns
    -------
    tuple of the six axes, outer ones first
    """
    pairs = [stage.split(a, factor=f) for a, f in zip(axes, factors)]
    outer, inner = [p[0] for p in pairs], [p[1] for p in pairs]
    if order:
        stage.reorder(*([batch] if batch is not None else []), *outer, *inner)
    if batch is not None:
        outer[0] = stage.fuse(batch, outer[0])
    bind(stage, (*outer, *inner), "blockIdx.z blockIdx.y blockIdx.x threadIdx.z threadIdx.y threadIdx.x")
    return *outer, *inner


def spread(stage, axes, threads):
    """Fuses adjacent axes and spreads them over blocks of so many threads; returns (block, thread)."""
    block, thread = stage.split(stage.fuse(*axes), factor=threads)
    bind(stage, (block, thread), "blockIdx.x threadIdx.x")
    return block, thread


def fetch(s, load, sizes, neighbours=False):
    """The threads of a block copy to shared memory together.

    `sizes` are the threads along z, y and x. Either every thread copies elements that stand side by side, or threads that do
    (`neighbours`) copy elements that do.
    """
    fused, axes = s[load].fuse(*s[load].op.axis), []
    for n in reversed(sizes) if neighbours else sizes:
        if neighbours:
            fused, axis = s[load].split(fused, factor=n)
        else:
            axis, fused = s[load].split(fused, nparts=n)
        axes.append(axis)
    names = ["threadIdx.z", "threadIdx.y", "threadIdx.x"]
    bind(s[load], axes, " ".join(reversed(names) if neighbours else names))


def define_unrolling(cfg, steps):
    """The two knobs of GPU templates that say how far loops are unrolled, and by whom."""
    cfg.define_knob("auto_unroll_max_step", steps)
    explicit = current_target().kind.name in ("nvptx", "rocm")
    cfg.define_knob("unroll_explicit", [1] if explicit else [0, 1])


def apply_unrolling(cfg, stage, scope):
    """What the knobs of `define_unrolling` say, for everything inside the axis `scope`."""
    for name in ("auto_unroll_max_step", "unroll_explicit"):
        stage.pragma(scope, name, cfg[name].val)


def accumulate(s, anchor, out):
    """The stage in which a GPU's thread sums, in registers: the anchor, or, if it is the output, a cache of it."""
    if anchor.op == out.op:
        return s.cache_write(anchor, "local")
    s[anchor].set_scope("local")
    return anchor


def largest_divisor(n, most):
    """The largest divisor of n up to `most`."""
    return next(d for d in range(min(n, most), 0, -1) if n % d == 0)


def simd_lanes():
    """How many float32 a vector of the target's processor holds."""
    return _core.cpu_vector_bytes(current_target().mcpu) // 4


_UNROLLED = 512  # copies of a loop's body on a CPU; more only makes the compiler slow


def unroll_within(stage, loops):
    """Unrolls loops (axis, length), innermost first, as long as there are not too many copies of the body: beyond, the
    compiler decides. A length of None is that of the axis."""
    copies = 1
    for axis, length in loops:
        copies *= extent(axis) if length is None else length
        if copies > _UNROLLED:
            return
        stage.unroll(axis)


def begin(outs, *tags, same_shape=True):
    """A schedule, with the operation that a template is for, and what it is followed by in a network.

    Everything between the two is inlined: bias, batch norm, activation, sum with another branch.

    Parameters
    ----------
    outs : list of te.Tensor
        The output, one.
    tags : str
        The operation is the one that has one of these tags, which may stand among others.
    same_shape : bool
        What follows must not rearrange the elements.

    Returns
    -------
    s : te.Schedule
    anchor, out : te.Tensor
        Equal if nothing follows.

    Raises
    ------
    ValueError
        If there is no such operation, or something else than element-wise operations on its elements follows.
    """
    (out,) = outs
    s = te.create_schedule(out.op)
    anchor, todo, seen = None, [out], {out.op}
    while todo:
        op = todo.pop().op
        if op.is_placeholder:
            continue
        if not set(tags).isdisjoint(op.tag.split(",")):
            anchor = op.output(0)
            continue
        if len(op.reduce_axis):
            raise ValueError(f"{op.name} reduces: only element-wise operations can follow the operator of a template")
        if op != out.op:
            s[op].compute_inline()
        fresh = [t for t in op.input_tensors if t.op not in seen]
        seen.update(t.op for t in fresh)
        todo += fresh
    if anchor is None:
        raise ValueError(f"nothing behind {out.op.name} is an operation of this template")
    if same_shape and tuple(anchor.shape) != tuple(out.shape):
        raise ValueError(f"{out.op.name} has the shape {list(out.shape)}, the operator before it {list(anchor.shape)}")
    return s, anchor, out


def grid_of_tiles(cfg, s, out):
    """Blocks, virtual threads and threads over channels, rows and columns of an output [N, C, H, W], by the knobs ``tile_f``,
    ``tile_y`` and ``tile_x`` of four parts.

    Returns
    -------
    scope, block, thread : axes
        One around everything, the innermost of the blocks, the innermost of the threads.
    """
    n, f, y, x = s[out].op.axis
    scope, n = s[out].split(n, nparts=1)
    tiles = [cfg[name].apply(s, out, axis) for name, axis in (("tile_f", f), ("tile_y", y), ("tile_x", x))]
    blocks, virtual, threads, inner = (list(level) for level in zip(*tiles))
    blocks[0] = s[out].fuse(n, blocks[0])
    bind(s[out], blocks, "blockIdx.z blockIdx.y blockIdx.x")
    bind(s[out], virtual, "vthread vthread vthread")
    bind(s[out], threads, "threadIdx.z threadIdx.y threadIdx.x")
    s[out].reorder(*blocks, *virtual, *threads, *inner)
    return scope, blocks[-1], threads[-1]
