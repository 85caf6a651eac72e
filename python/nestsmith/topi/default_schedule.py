"""A schedule for every program, without tuning: what a network runs with until there are records.

Everything element-wise is inlined, unless the expression would become huge. On a GPU each remaining stage is one kernel:
its spatial loops are fused, cut into blocks of threads and bound; reductions run serially in a thread, but the threads of a block
share long sums where results are few. On a CPU the
outer spatial loops run in parallel and a divisor of the innermost one as vector lanes, with the reduction between the
two. Where the sums of a program are over the rows of its result (softmax), a row is done at once, and the lanes share its sums.
"""

import json
import math

from .. import _core
from ..states import core_state

__all__ = ["default_state", "state_from", "steps_of"]

LANES = "lanes"  # attribute of an operation: how many neighbours along its last axis are a vector, though they may not divide it
_VECTORIZE, _PARALLEL, _BLOCK_X, _THREAD_X, _THREAD_Y = 2, 3, 5, 6, 8
_SPACE = 0
_SHARES = 64  # iterations of a parallel loop that are enough for any number of cores to have about as many


_MANY, _AGAIN = 8, 64  # elements that a stage reads; these times how often its reader names it: that are too many to be read there


def _inline(state, dag, gpu, wanted):
    """Inlines what is read element by element; returns the numbers of the stages that stay, those of the operations `wanted` among them,
    from the last on."""
    flags, keep = dag.stages(), []
    uses = {p: max([f["uses"][p] for f in flags if p in f["uses"]], default=1) for p in range(len(flags))}
    wanted = {*wanted, *(t.op for t in dag.tensors)}
    reads = []  # of each stage, as far as it is inlined
    for i, op in enumerate(dag.ops):
        f = flags[i]
        n = sum(k * reads[p] for p, k in f["reads"].items())
        constant = (
            not list(op.input_tensors) and len(op.axis) > 0
        )  # matrices of constants: a tiny stage beats a chain of selects
        again = n >= _MANY and uses[i] > 1 and n * uses[i] > _AGAIN
        costly = f["has_expensive"] or (f["has_branch"] and not gpu) or again
        if op.is_placeholder:
            n = 1
        elif f["is_output"] or len(op.reduce_axis) or op.num_outputs > 1 or constant or costly or f["is_large"] or op in wanted:
            keep.append(i)
            n = 1
        reads.append(n)
    for i in reversed(range(len(flags))):
        if i not in keep and not dag.ops[i].is_placeholder:
            state.apply("CI", i)
    return keep[::-1]


def _axes(state, stage):
    return state.stages()[stage][3]


def _spatial(state, stage):
    return [k for k, a in enumerate(_axes(state, stage)) if a[1] == _SPACE]


def _extent(axis):
    return axis[4] if isinstance(axis[4], int) else -1  # the extent may depend on outer loops (adaptive pools)


def _bind(state, stage, max_threads, multiprocessors):
    ids = _spatial(state, stage)
    if len(ids) != 1:  # of none (a single number) comes a loop of one iteration
        state.apply("FU", stage, ids)
    n = _extent(_axes(state, stage)[0])
    threads = 32 if ids else 1  # several threads would add to the same number
    while threads < min(max_threads, 256) and n > 2 * threads * multiprocessors:
        threads *= 2
    state.apply("SP", stage, 0, n, [threads], 1)
    state.apply("AN", stage, 0, _BLOCK_X)
    state.apply("AN", stage, 1, _THREAD_X)


_LONG, _FEW = 64, 16384  # terms that are worth the threads of a block; results that fill a device with a thread each


def _power(most):
    return 1 << (most.bit_length() - 1)


def _share(state, stage, flags, max_threads):
    """Gives a block some neighbouring results, each with a column of threads, or one with a row of them, as its terms lie in memory;
    False where a thread for each result is as good."""
    op, inner = state.dag.ops[stage], flags["innermost"]
    if not inner or flags["needs_multi_level_tiling"]:
        return False
    axes = _axes(_core.State(state.dag).infer_bounds(), stage)
    n, extents = len(op.axis), [_extent(a) for a in axes]
    terms, results = math.prod(extents[n:]), math.prod(extents[:n])
    width = 1
    if inner == "results":
        width = next((w for w in (_lanes(extents[n - 1], 8), _lanes(extents[n - 1], 32)) if w >= 4), 1)
    if min(extents) < 1 or terms < _LONG or results > _FEW or (inner == "results" and width == 1):
        return False
    if len(extents) > n + 1:
        state.apply("FU", stage, list(range(n, len(extents))))
    state.apply("SP", stage, n, terms, [_power(min(max_threads // width, 128 if width > 1 else 256, terms))], 1)
    state.apply("AN", stage, n + 1, _THREAD_Y if width > 1 else _THREAD_X)
    outer = list(range(n))
    if width > 1:
        state.apply("SP", stage, n - 1, extents[n - 1], [width], 1)
        state.apply("AN", stage, n, _THREAD_X)
    if n != 1:  # of none (a single number) comes a loop of one iteration
        state.apply("FU", stage, outer)
    state.apply("AN", stage, 0, _BLOCK_X)
    return True


def _lanes(n, most):
    """The largest divisor of n up to `most`; 1 if there is no useful one."""
    return max((d for d in range(1, most + 1) if n % d == 0), default=1)


_ACROSS = 64  # of a transpose: as many results as find their lines of memory in the first cache, with those of a vector's lanes


def _across(state, stage, beside, lanes):
    """A transpose reads what lies side by side one after the other, while its lines are near: `lanes` of them. Lanes read far apart."""
    extents = [_extent(a) for a in _axes(state, stage)]
    last = len(extents) - 1
    if not 0 <= beside < last or min(extents) < 1:
        return False
    part, width = _lanes(extents[beside], _ACROSS), _lanes(extents[last], lanes)
    if part < 8 or width < 4 or math.prod(extents) <= 4096:
        return False
    state.apply("SP", stage, last, extents[last], [width], 1)
    state.apply("SP", stage, beside, extents[beside], [part], 1)
    outer = [k for k in range(last + 3) if k not in (beside + 1, last + 2)]
    state.apply("RE", stage, [*outer, beside + 1, last + 2])
    state.apply("AN", stage, last + 2, _VECTORIZE)
    state.apply("FU", stage, list(range(len(outer))))
    state.apply("AN", stage, 0, _PARALLEL)
    return True


def _parallelize(state, stage, lanes):
    ids = _spatial(state, stage)
    if not ids:
        return
    axes = _axes(state, stage)
    windows = any(_extent(a) < 0 for a in axes)  # loops that must stay inside the ones on which their extents depend
    width = 1 if windows else int(state.dag.ops[stage].attrs.get(LANES) or _lanes(_extent(axes[ids[-1]]), lanes))
    if width >= 4:
        state.apply("SP", stage, ids[-1], _extent(axes[ids[-1]]), [width], 1)
        n = len(_axes(state, stage))
        inner = ids[-1] + 1
        order = [k for k in range(n) if k != inner] + [inner]
        state.apply("RE", stage, order)
        state.apply("AN", stage, n - 1, _VECTORIZE)
    outer = ids
    if width < 4 and not windows:  # the rest stays a nest, whose indices cost no division
        outer = ids[: next((k for k in range(1, len(ids)) if math.prod(_extent(axes[i]) for i in ids[:k]) >= _SHARES), len(ids))]
    if len(outer) > 1:
        state.apply("FU", stage, outer)
    if math.prod(max(1, _extent(a)) for a in _axes(state, stage)) > 4096:
        state.apply("AN", stage, 0, _PARALLEL)


_ROW_LANES = 8  # that share the sum of a row: one vector, since who adds it up at the end does so lane by lane


def _sums_of_rows(dag, keep, flags):
    """The stages of `keep` with sums that :func:`_by_rows` can share among lanes; none where it can't do a program."""
    sums = [i for i in keep if len(dag.ops[i].reduce_axis)]
    along = all(
        flags[i]["innermost"] == "terms" and not flags[i]["needs_multi_level_tiling"] and dag.ops[i].num_outputs == 1 for i in sums
    )
    one_result = [i for i in keep if flags[i]["is_output"]] == [keep[0]] and keep[0] not in sums
    ranked = len(dag.ops[keep[0]].axis) > 1 and all(len(dag.ops[i].axis) for i in keep)
    return sums if along and one_result and ranked else []


def _by_rows(dag, inlined, keep, flags, lanes):
    """The state in which each iteration of one parallel loop computes a row of the result with all that it needs, or None where that
    would do work twice or rows are few. Reading rows side by side, one in each lane, gathers every number by itself."""
    sums, out = _sums_of_rows(dag, keep, flags), keep[0]
    if not sums:
        return None
    bounds = inlined.infer_bounds()
    extents = {i: [_extent(a) for a in _axes(bounds, i)] for i in keep}
    *outer, width = extents[out]
    rows, part = math.prod(outer), _lanes(width, lanes)
    long = all(len(extents[i]) > len(dag.ops[i].axis) and extents[i][-1] % _ROW_LANES == 0 for i in sums)
    if not long or min(map(min, extents.values())) < 1 or rows < _SHARES or part < 4:
        return None
    state = _core.State(dag, inlined.steps())
    for i in sums:  # from the last on: each becomes two stages, and those behind it get other numbers
        n = len(dag.ops[i].axis)
        if len(extents[i]) > n + 1:
            state.apply("FU", i, list(range(n, len(extents[i]))))
        state.apply("SP", i, n, math.prod(extents[i][n:]), [_ROW_LANES], 1)
        state.apply("RF", i, n + 1, n)
        state.apply("RE", i, [*range(n), n + 1, n])
        state.apply("AN", i, n + 1, _VECTORIZE)
    now = {i: i + sum(k <= i for k in sums) for i in keep}
    for i in keep:
        n = len(dag.ops[i].axis)
        if i not in sums and extents[i][-1] == width:
            state.apply("SP", now[i], n - 1, width, [part], 1)
            state.apply("AN", now[i], n, _VECTORIZE)
    for i in keep[1:]:
        for stage in (now[i], now[i] - 1) if i in sums else (now[i],):
            state.apply("CA", stage, now[out], len(outer) - 1)
    if len(outer) > 1:
        state.apply("FU", now[out], list(range(len(outer))))
    state.apply("AN", now[out], 0, _PARALLEL)
    attached = state.infer_bounds()
    for i in keep[1:]:
        size = math.prod(_extent(_axes(attached, now[i])[k]) for k in _spatial(attached, now[i]))
        if size * rows != math.prod(extents[i][: len(dag.ops[i].axis)]):
            return None
    return state


def default_state(dag, target, wanted=()):
    """A valid :class:`State` of `dag` for `target` (a Target): correct on every target, never measured. `wanted`: operations whose results
    are wanted, though others read them."""
    gpu = "gpu" in target.keys
    state = _core.State(dag)
    keep = _inline(state, dag, gpu, wanted)
    most = int(target.attrs.get("max_num_threads", 256)) if gpu else 0
    flags = dag.stages()
    try:
        by_rows = None if gpu else _by_rows(dag, state, keep, flags, 16)
    except ValueError:  # a stage that cannot be attached there: loops of its own are always right
        by_rows = None
    if by_rows is not None:
        return by_rows
    for i in reversed(keep):
        if gpu:
            if not _share(state, i, flags[i], most):
                _bind(state, i, most, 64)
        elif not _across(state, i, flags[i]["beside"], 16):
            _parallelize(state, i, 16)
    return state


def steps_of(found):
    """The steps of what a dispatch context answered, as JSON text: a State, or a step list (JSON text or Python list)."""
    found = core_state(found)
    steps = found.steps() if callable(getattr(found, "steps", None)) else getattr(found, "transform_steps", found)
    return steps if isinstance(steps, str) else json.dumps(steps)


def state_from(dag, found):
    """The State of what a dispatch context answered (see :func:`steps_of`), or None."""
    return None if found is None else _core.State(dag, steps_of(found))
