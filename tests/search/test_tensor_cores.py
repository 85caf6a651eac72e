"""Tensor cores as a variant of a task: drawn and mutated tiles are ones that the device takes and that give the definition's
bits; strict float32 stays strict unless asked; without the parameter the search is as ever.
"""

import json
import re
from collections import Counter

import numpy as np
import pytest
from tensor_core_cases import (
    ALLOWED,
    by_lanes,
    by_last_block,
    by_warpgroups,
    dense,
    errors,
    grouped,
    has_step,
    policy,
    ragged,
    right,
    types,
    winograd,
)

from helpers import in_turn, rest_full
from nestsmith import _core, auto_scheduler, te, topi, transform
from nestsmith.auto_scheduler import feature
from nestsmith.numerics import mode_fits
from nestsmith.states import core_state


def convolution(layout, dtype):
    data, weight, out = types(dtype)
    if layout == "NHWC":
        x, w = te.placeholder((1, 9, 9, 16), data, name="X"), te.placeholder((3, 3, 16, 24), weight, name="W")
        y = topi.nn.conv2d_nhwc(x, w, 2, 1, 1, out)
    else:
        x, w = te.placeholder((1, 16, 9, 9), data, name="X"), te.placeholder((24, 16, 3, 3), weight, name="W")
        y = topi.nn.conv2d_nchw(x, w, 2, 1, 1, out)
    return [x, w, topi.nn.relu(y)]


def sketches(tensors, **how):
    return [any(step[0] == "MM" for step in s.transform_steps) for s in policy(tensors, **how).generate_sketches()]


def lanes(tensors, **how):
    """As `sketches`, where all such steps are products by lanes."""
    p = policy(tensors, **how)
    found = [[step[2][8] for step in s.transform_steps if step[0] == "MM"] for s in p.generate_sketches()]
    assert all(terms in ([], [0]) for terms in found)
    return [terms == [0] for terms in found]


def test_who_may_use_them():
    half, brain, single = (dense(40, 24, 72, t) for t in ("float16", "bfloat16", "float32"))
    for tensors in (half, brain):
        assert sketches(tensors) == sketches(tensors, tensor_cores=1) == [False, True, True]
        assert sketches(tensors, tensor_cores=0) == sketches(tensors, search_mode="compatible") == [False]
        assert sketches(tensors, target="cuda -arch=sm_70") == [False]
    assert sketches(half, target="cuda -arch=sm_75") == [False, True] and sketches(brain, target="cuda -arch=sm_75") == [False]
    for how in ({}, {"math": "tf32", "tensor_cores": 1}, {"tensor_cores": 0}):  # strictly: by lanes
        assert lanes(single, **how) == [False, True] and lanes(single, lane_products=0, **how) == [False]
    assert lanes(single, search_mode="compatible") == lanes(single, target="cuda -arch=sm_61") == [False]
    for older in ("cuda -arch=sm_70", "cuda -arch=sm_75"):  # no TF32: what may lose bits is strict there
        for how in ({}, {"math": "tf32"}, {"math": "float32x3"}, {"math": "tf32", "tensor_cores": 2}):
            assert lanes(single, target=older, **how) == [False, True]
    for how in ({"math": "float32x3"}, {"math": "tf32"}, {"math": "tf32", "tensor_cores": 2}):
        assert sum(sketches(single, warpgroups=0, lane_products=0, **how)) == 1
        beside = how["math"] == "float32x3"  # three products for one: lanes may be as fast
        assert sum(sketches(single, warpgroups=0, **how)) == 1 + beside
    with pytest.raises(ValueError, match="tensor_cores is 2, but the task is to compute float32 as float32x3"):
        policy(single, math="float32x3", tensor_cores=2)
    with pytest.raises(ValueError, match="tensor_cores is 2, but the task is to compute float32 strictly"):
        policy(single, tensor_cores=2)
    with pytest.raises(ValueError, match="tensor_cores 4 is neither 0"):
        policy(half, tensor_cores=4).generate_sketches()
    with pytest.raises(ValueError, match="math 'tf23' is unknown"):
        policy(half, math="tf23")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint8 int8", "int8 uint8"])
def test_who_may_use_them_for_integers(dtype):
    """Sums in int32 of products of 8 bits are exact: no mode is asked, and warpgroups are for floats."""
    whole = dense(40, 24, 72, dtype)
    assert sketches(whole) == sketches(whole, warpgroups=2) == [False, True]
    assert sketches(whole, target="cuda -arch=sm_120") == sketches(whole, target="cuda -arch=sm_75") == [False, True]
    for how in ({"tensor_cores": 0}, {"search_mode": "compatible"}, {"target": "cuda -arch=sm_70"}):
        assert sketches(whole, **how) == [False]
    a, b = (te.placeholder((40, 72), t, name=t) for t in types(dtype)[:2])
    for narrow in ("int8", "int16", "int64"):  # sums that units have not
        assert not any(sketches([a, b, topi.nn.dense(a, b, out_dtype=narrow)]))


def test_who_may_add_up_in_float16():
    """Who asks for it, of products whose sums become float16; warpgroups keep float32."""
    half, mode = dense(40, 24, 72, "float16"), "fp16_accumulation"

    def terms(tensors, **how):
        steps = [step[2] for s in policy(tensors, **how).generate_sketches() for step in s.transform_steps if step[0] == "MM"]
        return [numbers[8] if len(numbers) > 8 else 1 for numbers in steps]

    a, b = half[:2]
    wide = [a, b, topi.nn.dense(a, b, out_dtype="float32")]
    both = [a, b, te.compute(wide[2].shape, lambda i, j: wide[2][i, j].astype("float16") + (wide[2][i, j] * 2.0).astype("float16"))]
    assert 2 not in terms(half) and sorted(terms(half, math=mode, warpgroups=0)) == [2] and 2 in terms(half, math=f"tf32+{mode}")
    for tensors in (wide, both, dense(40, 24, 72, "bfloat16"), dense(40, 24, 72, "int8")):
        assert 2 not in terms(tensors, math=mode)
    single = dense(40, 24, 72, "float32")
    assert terms(single, math=f"float32x3+{mode}", warpgroups=0) == [0, 3] and terms(single, math=mode) == [0]
    with pytest.raises(ValueError, match="tensor_cores is 2, but the task is to compute float32 strictly"):
        policy(single, math=mode, tensor_cores=2)
    for config, found in (({}, "strict"), ({mode: True}, mode), ({mode: True, "tf32": True}, f"tf32+{mode}")):
        with transform.PassContext(config={f"nestsmith.allow_{name}": on for name, on in config.items()}):
            assert policy(half).search_task.math == found
            assert policy(half, target="cuda -arch=sm_75").search_task.math == (mode if config else "strict")
            assert policy(half, target="cuda -arch=sm_70").search_task.math == "strict"


def test_what_one_mode_allows_another():
    mode = "fp16_accumulation"
    order = ("strict", "float32x3", "tf32")
    for k, m in enumerate(order):
        assert [mode_fits(m, other) for other in order] == [i >= k for i in range(3)]
        assert mode_fits(m, f"tf32+{mode}") and not mode_fits(f"tf32+{mode}", m) and not mode_fits(mode, m)
    assert mode_fits(mode, f"float32x3+{mode}") and not mode_fits(f"tf32+{mode}", f"float32x3+{mode}") and not mode_fits("tf33", "tf32")


def test_a_context_decides_for_tasks_that_are_not_told():
    single = dense(40, 24, 72, "float32")
    with transform.PassContext(config={"nestsmith.allow_tf32": True}):
        assert any(sketches(single, lane_products=0)) and not any(sketches(single, math="strict", lane_products=0))
        assert policy(single, target="cuda -arch=sm_75").search_task.math == "strict"
    assert policy(single).search_task.math == "strict"


def test_what_would_fill_the_instructions_badly_is_not_looked_at():
    x, w = te.placeholder((1, 9, 9, 64), "float16", name="X"), te.placeholder((3, 3, 64, 1), "float16", name="W")
    assert not any(sketches([x, w, topi.nn.depthwise_conv2d_nhwc(x, w, 1, 1, 1)]))
    for each, half, single in ((32, True, True), (4, True, True), (2, True, False)):  # channels of a group are columns
        both = [any(sketches(grouped("NHWC", (1, 9, 9), (8, each, each), 3, (1, 1, 1), t))) for t in ("float16", "float32")]
        assert both == [half, single]
    assert any(sketches(dense(1, 1000, 512, "float16")))  # a single row is worth it: an eighth
    assert not any(sketches(dense(1, 1000, 512, "float32"))) and any(sketches(dense(4, 1000, 512, "float32")))  # to lanes half of it


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_winograd_is_never_computed_in_tf32(dtype):
    assert not any(sketches(winograd(8, 32, 32, dtype), math="tf32"))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_products_between_transforms_are_computed_by_lanes(dtype):
    """Beside the loops of the transforms, never by loops themselves; the mutations change all of that."""
    tensors = winograd(16, 32, 32, dtype)
    assert lanes(tensors) == [True] and lanes(tensors, lane_products=0) == [False]
    p = policy(tensors)
    product = p.sample_initial_population()
    assert len(product) > 100 and all(by_lanes(s) and str(s).count("threadIdx") >= 2 for s in product)

    def parts(s):
        steps = [repr(x) for x in s.transform_steps]
        return tuple(x for x in steps if "MM" in x), tuple(x for x in steps if "MM" not in x)

    bred = [parts(s) for s in p.evolutionary_search(product[:1], 64) if by_lanes(s)]
    tile, others = parts(product[0])
    assert any(t != tile and o == others for t, o in bred) and any(o != others for _, o in bred)


def test_two_products_in_one_task_are_one_by_tensor_cores():
    a, b, c = (te.placeholder(shape, "float16", name=n) for n, shape in (("A", (40, 48)), ("B", (64, 48)), ("C", (24, 64))))
    tensors = [a, b, c, topi.nn.dense(topi.nn.relu(topi.nn.dense(a, b)), c)]
    p = policy(tensors)
    states = [s for s in p.sample_initial_population() if has_step(s)]
    assert states and all(sum(x[0] == "MM" for x in s.transform_steps) == 1 for s in states)
    for s in states[:4]:
        right(core_state(s), tensors)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "make,math",
    [
        (lambda: dense(33, 21, 40, "float16"), "tf32"),
        (lambda: convolution("NHWC", "float32"), "tf32"),
        (lambda: convolution("NCHW", "float32"), "float32x3"),
        (lambda: convolution("NHWC", "float32"), "strict"),
        (lambda: dense(33, 21, 80, "int8"), None),
        (lambda: convolution("NHWC", "uint8 int8"), None),
        (lambda: dense(33, 21, 40, "float16"), "fp16_accumulation"),
        (lambda: winograd(7, 8, 24), "strict"),
        (lambda: grouped("NHWC", (1, 5, 7), (3, 16, 20), 3, (1, 1, 1), "float16"), None),
        (lambda: grouped("NCHW", (1, 7, 9), (3, 16, 20), 3, (2, 1, 1), "float32"), "strict"),
    ],
)
def test_drawn_and_bred_states_are_right(make, math):
    tensors = make()
    p = policy(tensors, math=math)
    drawn = [s for s in p.sample_initial_population() if has_step(s)]
    bred = [s for s in p.evolutionary_search(drawn, 64) if has_step(s)]
    assert len(drawn) > 20 and len(bred) > 20
    three = [s for s in drawn + bred if "float32x3" in str(s)]
    assert bool(three) == (math == "float32x3") and (not three or any(by_lanes(s) for s in drawn))
    for s in drawn[:2] + bred[:2] + three[:2]:
        right(core_state(s), tensors)


@pytest.mark.parametrize("dtype, math", [("float16", None), ("float32", "strict")])
def test_weights_are_on_their_way_before_the_launch_before_has_ended(dtype, math):
    """And the next launch may begin at half of the slices: where launches overlap, and where it is known that nobody writes weights."""
    tensors, seen = dense(33, 64, 512, dtype), Counter()
    drawn = policy(tensors, math=math).sample_initial_population()
    for s in [s for s in drawn if has_step(s) and not by_warpgroups(s)][:20]:
        for overlap, constant, sm in ((2, 2, 90), (2, 0, 90), (1, 2, 90), (2, 2, 80)):
            target = _core.Target("cuda", sm=sm, overlap=overlap)
            source = _core.candidate_source(core_state(s), target, 0, "main", constant)[0]
            kernels = [k.split("{", 1)[1].partition("griddepcontrol.wait") for k in source.split('extern "C"')[1:]]
            assert kernels and all((bool(wait), after.count("griddepcontrol.wait")) == (sm == 90, 0) for _, wait, after in kernels)
            half = [after.count("griddepcontrol.launch_dependents") for _, _, after in kernels]
            assert not any("launch_dependents" in before for before, _, _ in kernels) and not any(half[1:])
            (before, _, after), half = kernels[0], half[0]
            assert half <= (sm == 90 and overlap == 2) and "&A[" not in (before if after else "")
            assert sm == 80 or "&B[" not in before or (overlap, constant, half) == (2, 2, 1)
            if sm == 90:
                seen[overlap, constant, half, "&B[" in before] += 1
    assert seen[2, 2, 1, True] > 5 and seen[2, 0, 1, False] > 5 and seen[1, 2, 0, False] > 5


KINDS = {  # of ALLOWED; float32 is multiplied by lanes there, whatever bits it may lose
    70: {"strict", "tf32", "float32x3"},
    75: {"float16", "int8", "uint8 int8", "uint8", "int8 uint8", "fp16_accumulation", "strict", "tf32", "float32x3"},
}


def keeps_registers(source, target):
    """The compiler takes a program, and nothing is spilled: but slices of what does not lie in order, which pass through registers one by one."""
    return _core.build_report(target, _core.build(target, source, 0, "")[0])["local_bytes"] == 0 or "_passing_" in source


@pytest.mark.some(1)
@pytest.mark.parametrize("sm,part", in_turn([70, 75, 80, 90, 120], [0, 1, 2]))
def test_drawn_schedules_of_all_kinds(sm, part):
    """Of a third of all kinds: they are what the machine can do, right, and taken by the compiler, which knows no 7.0: it takes what is
    made for that for 7.5."""
    target, compiled_for, seen = _core.Target("cuda", sm=sm), _core.Target("cuda", sm=max(sm, 75)), set()
    there = _core.build_available(compiled_for)[0]
    for k, (dtype, math) in list(enumerate(ALLOWED))[part::3]:
        rng, drawn = np.random.default_rng(sm + k), []
        for _ in range(4):  # of some shapes there are none
            tensors = ragged(rng, dtype)
            p = policy(tensors, seed=k + 1, math=math, target=f"cuda -arch=sm_{sm}", wide_stores=1, last_blocks=1)
            drawn = [s for s in p.sample_initial_population() if has_step(s)]
            if drawn:
                break
        bred = [s for s in p.evolutionary_search(drawn, 64) if has_step(s)] if sm < 80 and drawn else []
        if drawn:
            seen.add(math or dtype)
        for s in drawn + bred:
            assert sm >= 80 or int(re.search(r"(\d+) stages", str(s))[1]) <= 3
            strict = math == "strict" or (sm < 80 and dtype == "float32")
            assert by_lanes(s) == strict or (by_lanes(s) and math == "float32x3")
            assert _core.gpu_check(core_state(s), p.search_task.engine_target())["ok"]
        for s in drawn[:1] + bred[:1] + [s for s in drawn if "float32x3" in str(s)][:1]:
            right(core_state(s), tensors, sm)
            source = _core.candidate_source(core_state(s), target)[0]
            assert sm >= 80 or not re.search("cp.async|m16n8k16|m16n8k32|bf16|tf32|NaN", source)
            assert sm >= 75 or not re.search(r"mma\.|ldmatrix", source)
            assert not there or keeps_registers(source, compiled_for)
    assert seen == {math or dtype for dtype, math in ALLOWED[part::3]} & KINDS.get(sm, {math or dtype for dtype, math in ALLOWED})


def test_slices_in_registers_are_counted():
    """Below 8.0: they are of the registers, and one slice is on its way, however many have room."""
    state = next(s for s in policy(dense(512, 512, 512, "float16"), target="cuda -arch=sm_75").sample_initial_population() if has_step(s))
    found = {}
    for sm in (75, 80):
        p = policy(dense(512, 512, 512, "float16"), target=f"cuda -arch=sm_{sm}", sample_init_min_population=8)
        facts = [p.engine.facts(with_numbers(state, [64, 64, 32, 32, 32, stages, 0, 1]).infer_bounds()) for stages in (2, 3)]
        found[sm] = [(f["kernels"][0]["local_elems"], f["seconds"]) for f in facts]
    (two, three), newer = found[75], found[80]
    assert two[0] == newer[0][0] + 16 and two[1] <= three[1] and newer[1][1] < newer[0][1]


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20))
def test_any_schedule_of_any_shape_is_right(seed):
    """2,000 of them, 100 by each seed."""
    rng, tried, sm = np.random.default_rng(seed), 0, (80, 90, 75)[seed % 3]
    allowed = [(dtype, math) for dtype, math in ALLOWED if sm >= 80 or dtype != "bfloat16"]
    while tried < 100:
        dtype, math = allowed[tried // 5 % len(allowed)]
        tensors = ragged(rng, dtype)
        p = policy(tensors, seed=tried, math=math, target=f"cuda -arch=sm_{sm}", wide_stores=tried // 25 % 2, last_blocks=tried // 50)
        for s in [s for s in p.sample_initial_population() if has_step(s)][:5]:
            right(core_state(s), tensors, sm)
            tried += 1


@pytest.mark.parametrize("warpgroups", [0, 1])
def test_the_estimate_of_large_products(warpgroups):
    """As measured at 2048 cubed: warps load fragments ahead, which slices of one step cannot; warpgroups are faster."""
    p = policy(dense(2048, 2048, 2048, "float16"), model="analytic", warpgroups=warpgroups)
    first = p.evolutionary_search([s for s in p.sample_initial_population() if has_step(s)], 8)
    tiles = [next(s[2] for s in x.transform_steps if s[0] == "MM") for x in first]
    assert min(t[0] * t[1] for t in tiles) >= 128 * 128
    if warpgroups:
        assert all(t[9] > 0 for t in tiles)
    else:
        assert min(t[2] for t in tiles) >= 32


def with_numbers(state, numbers):
    """The state with other numbers in its step on tensor cores."""
    steps = json.loads(core_state(state).steps())
    steps[-1] = ["MM", steps[-1][1], numbers]
    return _core.State(core_state(state).dag, json.dumps(steps))


@pytest.mark.parametrize(
    "sizes,dtype,fast,slow",
    [  # measured on an H200, us: 408.9 and 720.0, 15.7 and 25.2: short lines; 16.9 and 30.7: clusters that do not all find room at a
        # time; 75.2 and 122.2, 444.9 and 982.6: one slice ahead
        ((4096, 4096, 4096), "float32", [128, 256, 32, 64, 256, 4, 0, 1, 1, 1], [128, 256, 8, 64, 256, 4, 0, 1, 1, 1]),
        ((1024, 3072, 768), "float16", [64, 128, 64, 64, 128, 2, 0, 1, 1, 1], [64, 128, 16, 64, 128, 2, 0, 1, 1, 1]),
        ((784, 512, 4608), "float16", [128, 256, 32, 64, 256, 3, 0, 8, 1, 1], [128, 256, 32, 64, 256, 3, 1, 8, 1, 1]),
        ((2048, 2048, 2048), "float32", [128, 256, 16, 64, 256, 3, 1, 1, 1, 1], [128, 256, 16, 64, 256, 2, 1, 1, 1, 1]),
        ((4096, 4096, 4096), "float32", [128, 256, 16, 64, 256, 4, 0, 1, 1, 1], [128, 256, 16, 64, 256, 3, 0, 1, 1, 2]),
    ],
)  # fmt: skip
def test_the_estimate_knows_what_was_measured(sizes, dtype, fast, slow):
    p = policy(dense(*sizes, dtype), math="tf32", warpgroups=1, sample_init_min_population=8)
    state = next(s for s in p.sample_initial_population() if has_step(s))
    seconds = [p.engine.facts(with_numbers(state, x).infer_bounds())["seconds"] for x in (fast, slow)]
    assert seconds[1] > 1.1 * seconds[0]


def test_what_is_drawn_where_splits_and_whole_sums_are_alike():
    """1,024 rows, 768 columns: tiles that fill the machine unsplit are among what is measured."""
    p = policy(dense(1024, 768, 3072, "float16"), model="analytic", warpgroups=1)
    tiles = [tuple(x[2]) for s, _ in p.engine.round(64) for x in json.loads(s.steps()) if x[0] == "MM"]
    assert {t[7] for t in tiles} >= {1, 2}
    assert {(64, 128), (128, 64)} & {t[:2] for t in tiles if t[7] == 1}


def test_who_may_use_warpgroups():
    half, single = dense(40, 24, 72, "float16"), dense(40, 24, 72, "float32")
    assert sketches(half, warpgroups=1) == sketches(half) == [False, True, True] and sketches(half, warpgroups=0) == [False, True]
    assert sum(sketches(single, math="tf32", warpgroups=1)) == 2 and not any(sketches(single, warpgroups=1, lane_products=0))
    assert sum(sketches(single, math="float32x3", warpgroups=1, lane_products=0)) == 2
    for sm in (80, 100, 120):
        assert sum(sketches(half, warpgroups=1, target=f"cuda -arch=sm_{sm}")) == 1
    with pytest.raises(ValueError, match="warpgroups 3 is neither 0"):
        sketches(half, warpgroups=3)


def drawn_by_warpgroups(tensors, seed, math, n):
    p = policy(tensors, seed=seed, math=math, warpgroups=2, wide_stores=seed % 2, sample_init_min_population=60)
    drawn = [s for s in p.sample_initial_population() if by_warpgroups(s)]
    assert len(drawn) >= n
    return p, drawn


def compiled(state):
    target = _core.Target("cuda", sm=90)
    there, why = _core.build_available(target)
    if there:
        source = _core.candidate_source(core_state(state), target)[0]
        assert "wgmma.mma_async" in source and keeps_registers(source, target)


@pytest.mark.parametrize("dtype,math", [("float16", None), ("float32", "tf32")])
def test_drawn_and_bred_warpgroups_are_right(dtype, math):
    tensors = dense(33, 21, 40, dtype)
    p, drawn = drawn_by_warpgroups(tensors, 1, math, 5)
    bred = [s for s in p.evolutionary_search(drawn, 64) if by_warpgroups(s)]
    assert {"two slices" in str(s) for s in drawn} == {False, True} and len(bred) > 10
    for s in drawn[:2] + bred[:2]:
        right(core_state(s), tensors)
    compiled(bred[0])


@pytest.mark.full
@pytest.mark.parametrize("seed", range(10))
def test_any_product_of_warpgroups_is_right(seed):
    """200 of them, 20 by each seed."""
    rng, tried = np.random.default_rng(seed + 100), 0
    while tried < 20:
        dtype, math = ALLOWED[tried % 3]
        tensors = ragged(rng, dtype)
        for s in drawn_by_warpgroups(tensors, tried, math, 0)[1][:2]:  # of some shapes there are none
            right(core_state(s), tensors)
            compiled(s)
            tried += 1


def is_wide(state):
    return "wide stores" in str(state)


@pytest.mark.parametrize("dtype,math,warpgroups", [("float16", None, 0), ("float32", "tf32", 0), ("float16", None, 1)])
def test_wide_stores(dtype, math, warpgroups):
    """A choice of its own where it is asked for, of sums that one block adds up."""
    tensors = dense(33, 24, 72, dtype)
    assert not any(map(is_wide, policy(tensors, math=math, warpgroups=warpgroups, wide_stores=0).sample_initial_population()))
    p = policy(tensors, math=math, warpgroups=warpgroups, sample_init_min_population=60)
    assert sum("MM" in str(s.transform_steps) for s in p.generate_sketches()) == 1 + warpgroups
    drawn = [s for s in p.sample_initial_population() if has_step(s)]
    bred = [s for s in p.evolutionary_search(drawn, 128) if has_step(s)]
    for states in (drawn, bred):
        assert {is_wide(s) for s in states} == {False, True}
        wide = [s for s in states if is_wide(s)]
        assert all("split 1" in str(s) for s in wide)
        for s in wide[:2]:
            right(core_state(s), tensors)
    line = auto_scheduler.measure_record.dump_record_to_string(
        auto_scheduler.MeasureInput(p.search_task, wide[0]), auto_scheduler.MeasureResult([1e-3], 0, "", 0.1, 1)
    )
    again, _ = auto_scheduler.measure_record.load_record_from_string(line)
    assert again.state.transform_steps == wide[0].transform_steps
    with pytest.raises(ValueError, match="wide_stores 2 is neither 0"):
        sketches(tensors, math=math, wide_stores=2)


def blocks_of(state):
    """That share a sum."""
    return int(re.search(r"split (\d+)", str(state))[1])


@pytest.mark.some(1)
@pytest.mark.parametrize("dtype,math,warpgroups", [("float16", None, 0), ("float32", "strict", 0), ("float16", None, 1)])
def test_last_blocks(dtype, math, warpgroups):
    """A choice of its own where it is asked for, of sums that blocks share."""
    tensors = dense(33, 24, 600, dtype)
    how = {"math": math, "warpgroups": warpgroups, "sample_init_min_population": 60}
    assert not any(map(by_last_block, policy(tensors, last_blocks=0, **how).sample_initial_population()))
    p = policy(tensors, last_blocks=1, **how)
    drawn = [s for s in p.sample_initial_population() if has_step(s)]
    bred = [s for s in p.evolutionary_search(drawn, 128) if has_step(s)]
    for states in (drawn, bred):
        assert {by_last_block(s) for s in states if blocks_of(s) > 1} == {False, True}
        last = [s for s in states if by_last_block(s)]
        assert all(blocks_of(s) > 1 for s in last)
        for s in last[:2]:
            right(core_state(s), tensors)
            assert _core.gpu_check(core_state(s), p.search_task.engine_target())["ok"]
    line = auto_scheduler.measure_record.dump_record_to_string(
        auto_scheduler.MeasureInput(p.search_task, last[0]), auto_scheduler.MeasureResult([1e-3], 0, "", 0.1, 1)
    )
    again, _ = auto_scheduler.measure_record.load_record_from_string(line)
    assert again.state.transform_steps == last[0].transform_steps
    off = policy(tensors, last_blocks=0, **how).evolutionary_search([last[0]], 64)  # a log of other settings
    assert off and not any(by_last_block(s) for s in off if str(s) != str(last[0]))
    with pytest.raises(ValueError, match="last_blocks 2 is neither 0"):
        sketches(tensors, math=math, last_blocks=2)


@pytest.mark.parametrize("seed", rest_full(0, 1, 2, 3, short=(1,)))
def test_last_blocks_of_any_shape(seed):
    """Drawn states over sizes that divide nothing: right, and taken by the compiler for all that has them."""
    rng, tried = np.random.default_rng(seed + 200), 0
    while tried < 5:
        dtype, math = ALLOWED[(seed + tried) % len(ALLOWED)]
        tensors = ragged(rng, dtype)
        p = policy(tensors, seed=tried + 1, math=math, last_blocks=1, warpgroups=2, sample_init_min_population=60)
        for s in [s for s in p.sample_initial_population() if by_last_block(s)][:1]:
            right(core_state(s), tensors)
            older = (75,) if by_lanes(s) or (dtype != "bfloat16" and not dtype.startswith("float32")) else ()
            for sm in (90,) if by_warpgroups(s) else (*older, 80, 90, 120):
                target = _core.Target("cuda", sm=sm, overlap=2)
                if _core.build_available(target)[0]:
                    source = _core.candidate_source(core_state(s), target, 0, "main", 2)[0]
                    assert "ns_last_block(&last[0]" in source
                    assert _core.build_report(target, _core.build(target, source, 0, "")[0])["local_bytes"] == 0
        tried += 1


def test_the_price_of_last_blocks():
    """Less than a second kernel, of the same tile."""
    p = policy(dense(128, 128, 2048, "float16"), target="cuda -arch=sm_80", sample_init_min_population=8)
    state = next(s for s in p.sample_initial_population() if has_step(s))
    tile = [32, 64, 64, 16, 32, 3, 0, 8, 1, 0, 0, 1]
    seconds = [p.engine.facts(with_numbers(state, [*tile, last]).infer_bounds())["seconds"] for last in (0, 1)]
    assert 0.2e-6 < seconds[0] - seconds[1] < 3e-6


def test_defaults_go_by_the_target():
    """On compute capability 9.0, where they were measured, there are wide stores and warpgroups of one or two slices at a time; elsewhere
    the search draws what it draws without them."""
    tensors = dense(256, 256, 256, "float16")

    def drawn(sm, **params):
        return [str(s) for s in policy(tensors, target=f"cuda -arch=sm_{sm}", **params).sample_initial_population()]

    assert drawn(90) == drawn(90, warpgroups=2, wide_stores=1) != drawn(90, warpgroups=0, wide_stores=0)
    for sm in (80, 89, 120):
        assert drawn(sm) == drawn(sm, warpgroups=0, wide_stores=0) != drawn(sm, wide_stores=1)
    with pytest.raises(ValueError, match="wide_stores: 'always' is unknown"):
        sketches(tensors, wide_stores="always")


def test_two_slices_at_a_time_are_a_choice():
    tensors = dense(256, 256, 256, "float16")
    two = next(s for s in policy(tensors).sample_initial_population() if "two slices" in str(s))
    p = policy(tensors, warpgroups=1)
    assert any(map(by_warpgroups, p.sample_initial_population()))
    assert not any("two slices" in str(s) for s in p.sample_initial_population())
    bred = p.evolutionary_search([two], 128)
    assert len(bred) > 10 and {str(s) for s in bred if "two slices" in str(s)} <= {str(two)}
    assert sum("two slices" in str(s) for s in policy(tensors).evolutionary_search([two], 128)) > 10


@pytest.mark.parametrize("warpgroups", [0, 1])
@pytest.mark.parametrize("wide", [0, 1])
def test_a_log_of_other_settings_is_where_the_search_goes_on(warpgroups, wide):
    """A step has as many numbers as the settings of its time asked for; what it leaves out is known. Its state has children and
    neighbours, of the present settings, like any other."""
    tensors = dense(256, 256, 256, "float16")
    old = policy(tensors, warpgroups=warpgroups, wide_stores=wide, sample_init_min_population=60)
    measured = [s for s in old.sample_initial_population() if has_step(s) and by_warpgroups(s) == bool(warpgroups)]
    centre = next(s for s in measured if is_wide(s) == bool(wide))
    p, took = policy(tensors, wide_stores=1 - wide, last_blocks=0), []
    bred = [s for s in p.evolutionary_search([centre], 64) if str(s) != str(centre)]
    assert len(bred) > 10 and {len(s.transform_steps[-1][2]) for s in bred} == {11 if not wide else 10 if warpgroups else 8}
    assert {by_warpgroups(s) for s in bred} == {bool(warpgroups)} and any(map(is_wide, bred)) == (not wide)
    p.engine.report(core_state(centre), 1e-5, True)
    p.engine.set_listener(lambda kind, it, count, *more: kind == 6 and took.append(count))
    p.engine.progress(99, 100)
    assert len(p.engine.round(4)) == 4 and took == [4]


@pytest.mark.parametrize("dtype,math", [("float16", None), ("float32", "tf32"), ("int8", None)])
def test_what_fits_is_counted_alike(dtype, math):
    """Sampler, checker and program agree on shared memory; memory is shared by arrays of one element type alone."""
    tensors = dense(512, 512, 640, dtype)
    p = policy(tensors, math=math, warpgroups=1, wide_stores=1, sample_init_min_population=60)
    target = p.search_task.engine_target()
    for s in filter(has_step, p.sample_initial_population()):
        s = core_state(s)
        verdict, kernel = _core.gpu_check(s, target), p.engine.facts(s.infer_bounds())["kernels"][0]
        assert verdict["ok"] and verdict["shared_bytes"] == kernel["shared_bytes"]
    if dtype == "int8":  # for warps alone
        return
    edited = with_numbers(s, [128, 256, 64 if dtype == "float16" else 32, 64, 256, 4, 0, 1, 1, 1, 1])
    verdict = _core.gpu_check(edited, target)  # 192 KB of slices, 20 KB of results
    (kernel,) = json.loads(_core.candidate_source(edited, target)[1])["kernels"]
    assert verdict["ok"] and verdict["shared_bytes"] == (212 if dtype == "float16" else 192) << 10
    assert kernel["dyn_shared_bytes"] == verdict["shared_bytes"] + (1 << 10)  # slices begin at multiples of 1 KB


@pytest.mark.parametrize(
    "dtype,math,numbers",
    [  # groups of neighbours that blocks of a cluster share evenly, and not
        ("float16", None, [64, 32, 32, 32, 16, 3, 0, 4, 1]),
        ("float16", None, [64, 32, 32, 32, 16, 3, 0, 3, 1]),
        ("float16", None, [128, 64, 64, 64, 64, 3, 0, 5, 1, 1]),
        ("int8", None, [16, 16, 32, 16, 8, 2, 0, 8, 1]),
        ("float32", "tf32", [64, 80, 64, 64, 80, 6, 0, 8, 1, 1]),  # no room beside the slices
        ("float32", "float32x3", [64, 24, 32, 64, 24, 3, 0, 5, 3, 1]),  # what is left of one factor lies there, too
        ("float32", "float32x3", [128, 64, 64, 64, 64, 4, 0, 4, 3, 1]),
        ("float32", "strict", [32, 32, 32, 16, 32, 3, 0, 7, 0]),  # lanes keep four neighbours
        ("float32", "strict", [40, 24, 16, 40, 24, 2, 0, 4, 0, 0, 0, 4]),  # and two
        ("float32", "strict", [8, 16, 32, 8, 16, 2, 0, 2, 0, 0, 0, 8]),
    ],
)
def test_what_clusters_need_is_counted_alike(dtype, math, numbers):
    """Their sums have a place of their own, where there is room: others send theirs before a block is done with its slices."""
    tensors = dense(128, 72, 512, dtype)
    p = policy(tensors, math=math)
    target = p.search_task.engine_target()
    s = with_numbers(next(filter(has_step, p.sample_initial_population())), numbers)
    verdict, kernel = _core.gpu_check(s, target), p.engine.facts(s.infer_bounds())["kernels"][0]
    source, manifest = _core.candidate_source(s, target)
    (built,) = json.loads(manifest)["kernels"]
    assert verdict["ok"] and verdict["shared_bytes"] == kernel["shared_bytes"] and f"__cluster_dims__(1, 1, {numbers[7]})" in source
    slices = numbers[5] * numbers[2] * (numbers[0] + numbers[1]) * {"float16": 2, "int8": 1, "float32": 4}[dtype]
    apart = slices + numbers[0] * numbers[1] * 4 + 8
    assert verdict["shared_bytes"] >= apart or apart > 227 << 10 and verdict["shared_bytes"] == slices + 8
    assert built["shared_bytes"] + built["dyn_shared_bytes"] - verdict["shared_bytes"] in (8, 8 + 1024)  # arrays and slices begin at multiples


def test_the_price_of_wide_stores():
    """As measured (hand-written): they pay where there is much to store, and cost a little where there is not."""
    for n, best in ((2048, True), (128, False)):
        p = policy(dense(n, n, 768, "float16"), model="analytic", wide_stores=1)
        first = p.evolutionary_search([s for s in p.sample_initial_population() if has_step(s)], 8)[0]
        numbers = next(s[2] for s in first.transform_steps if s[0] == "MM")
        numbers += [1, 0, 0][len(numbers) - 8 :]  # what it leaves out: terms, warpgroups, wide stores
        numbers[7] = 1  # whole sums: others are not stored so
        both = [auto_scheduler.State(with_numbers(first, [*numbers[:10], wide]), p.search_task.compute_dag) for wide in (0, 1)]
        narrow, wide = p.program_cost_model.predict(p.search_task, both)
        assert (wide > narrow) == best and min(narrow, wide) > 0


def interpreted(state, tensors, draw):
    """Data, the program's result in the interpreter, and plain float32's."""
    data = [draw([int(x) for x in t.shape]).astype("float32") for t in tensors]
    plain = [x.copy() for x in data]
    _core.interp_dag(_core.ComputeDAG(tensors), plain)
    assert _core.interp(state, _core.Target("cuda", sm=90), data, stage="program")["findings"] == []
    return data[:2], data[2], plain[2]


@pytest.mark.parametrize("k", rest_full(16, 72, 500, short=(16, 72)))
def test_three_terms_are_as_accurate_as_float32(k):
    """The contract of float32x3: at most twice the error of plain float32, which TF32 exceeds by far; where one product
    outweighs all others, what its small parts leave out."""
    a, b = te.placeholder((32, k), name="A"), te.placeholder((24, k), name="B")
    tensors = [a, b, topi.nn.dense(a, b)]
    rng = np.random.default_rng(k)

    def of_all_sizes(shape):
        return rng.standard_normal(shape) * np.exp2(rng.integers(-20, 20, shape))

    for math in ("tf32", "float32x3"):
        drawn = [s for s in policy(tensors, math=math, lane_products=0).sample_initial_population() if has_step(s)]
        assert all(("float32x3" in str(s)) == (math == "float32x3") for s in drawn)
        shared = [s for s in drawn if "split 1" not in str(s)]
        groups = [s for s in drawn if by_warpgroups(s)]
        assert (groups != []) == (math == "tf32" or k >= 32)
        for state in drawn[:1] + shared[:1] + groups[:2]:
            for draw in (rng.standard_normal, rng.random):  # random: of one sign, the sum grows
                data, *results = interpreted(core_state(state), tensors, draw)
                got, plain = (errors(x, *data)[0] for x in results)
                assert got <= 2 * plain if math == "float32x3" else got > 10 * plain
            data, result, _ = interpreted(core_state(state), tensors, of_all_sizes)
            relative = errors(result, *data)[2]
            bound = 2**-20 if by_warpgroups(state) else 2**-21
            assert relative < bound + 4 * 2**-24 if math == "float32x3" else relative > 2**-13  # sums are rounded, too


def test_three_terms_of_factors_next_to_a_power_of_two():
    """The high part is rounded up to it, and what is left loses a bit alone; beyond 2^115 nothing is a number."""
    a, b = te.placeholder((16, 8), name="A"), te.placeholder((8, 8), name="B")
    tensors = [a, b, topi.nn.dense(a, b)]
    state = next(s for s in policy(tensors, math="float32x3", lane_products=0).sample_initial_population() if has_step(s))
    for factor, bound in ((2 - 2**-23, 2**-21), (2 - 2**-22, 2**-21), (1 + 2**-11, 2**-22), (1 + 2**-10, 0.0), (2.0**116, np.inf)):
        data = [np.zeros((16, 8), "float32"), np.zeros((8, 8), "float32"), np.zeros((16, 8), "float32")]
        data[0][:, 0], data[1][:, 0] = factor, 1.0 if bound == np.inf else factor
        assert _core.interp(core_state(state), _core.Target("cuda", sm=90), data, stage="program")["findings"] == []
        exact = np.float64(data[0][0, 0]) * np.float64(data[1][0, 0])
        off = np.abs(data[2].astype("float64") - exact) / exact
        assert np.isnan(data[2]).all() if bound == np.inf else (off <= bound + 2**-24).all(), (factor, off.max())


def test_records_carry_them_and_features_know_them():
    tensors = convolution("NCHW", "float16")
    p = policy(tensors)
    state = next(s for s in p.sample_initial_population() if has_step(s))
    rows = feature.get_per_store_features_from_states([state], p.search_task)[0]
    assert rows.shape[1] == 164 and (rows != 0).any()
    x = auto_scheduler.MeasureInput(p.search_task, state)
    line = auto_scheduler.measure_record.dump_record_to_string(x, auto_scheduler.MeasureResult([1e-3], 0, "", 0.1, 1))
    assert '"MM"' in json.loads(line)["v"] and '"MM"' not in line.split('"v"')[0]
    again, _ = auto_scheduler.measure_record.load_record_from_string(line)
    assert again.state.transform_steps == state.transform_steps


@pytest.mark.parametrize(
    "dtype,math,does",
    [("float32", "tf32", "multiplies float32 on tensor cores"), ("float16", "fp16_accumulation", "adds products of float16 up in float16")],
)
def test_a_record_without_its_mark_is_no_way_to_a_mode(dtype, math, does, tmp_path):
    """Logs of before there were marks, and of tools that write the version of their own, do not loosen a strict task."""
    tensors, log = dense(64, 64, 64, dtype), tmp_path / "log.json"
    loose, strict = (policy(tensors, math=m) for m in (math, "strict"))
    states = loose.sample_initial_population()
    x = auto_scheduler.MeasureInput(loose.search_task, next(s for s in states if core_state(s).math() == math))
    line = auto_scheduler.measure_record.dump_record_to_string(x, auto_scheduler.MeasureResult([1e-3], 0, "", 0.1, 1))
    assert f" math={math}" in line
    log.write_text(line.replace(f" math={math}", ""))
    (record,) = auto_scheduler.RecordReader(str(log))
    for p in (loose, strict):
        if p is strict:
            with pytest.raises(RuntimeError, match=f'{does}.* math is "strict"'):
                p.search_task.apply_best(str(log))
            with pytest.raises(ValueError, match=f'{does}.* math is "strict"'):
                p.preload(*record)
        else:
            assert p.search_task.apply_best(str(log))
            p.preload(*record)


def test_a_round_shares_its_trials():
    """All families are measured, whatever the estimate thinks of them, and not one tile in all its details."""
    x, w = te.placeholder((1, 28, 28, 128), "float16", name="X"), te.placeholder((3, 3, 128, 128), "float16", name="W")
    p = policy([x, w, topi.nn.conv2d_nhwc(x, w, 1, 1, 1)], model="analytic", evolutionary_search_population=512)
    families = Counter()
    for _ in range(5):
        states = p.propose(16)
        seen = Counter("loops" if not has_step(x) else "warpgroups" if by_warpgroups(x) else "warps" for x in states)
        assert max(seen["loops"], seen["warps"]) <= 2 or families["warps"] >= 4  # of one of them two in a round, up to four
        families += seen
        tiles = [next(s[2] for s in x.transform_steps if s[0] == "MM") for x in states if has_step(x)]
        cut = Counter((n[9] > 0, *((n[1], n[0]) if n[6] else (n[0], n[1])), n[7]) for n in tiles)
        assert max(cut.values()) <= 4
    assert families["loops"] == 4 and families["warps"] >= 4 and families["warpgroups"] >= 60
    assert [has_step(s) for s in policy([x, w, topi.nn.conv2d_nhwc(x, w, 1, 1, 1)], model="analytic").propose(1)] == [True]


@pytest.mark.parametrize("reader", [lambda s: s[0]() + 1.0, lambda s: s[0]()])
def test_a_single_number_is_no_product(reader):
    """A sum of products without axes, which another operation reads: there is nothing to tile."""
    a, b, k = te.placeholder((64,), name="A"), te.placeholder((64,), name="B"), te.reduce_axis((0, 64), name="k")
    s = te.compute((), lambda: te.sum(a[k] * b[k], axis=k), name="S")
    assert _core.State(_core.ComputeDAG([a, b, te.compute((), lambda: reader([s]), name="R")]), "[]").factors() == ""
