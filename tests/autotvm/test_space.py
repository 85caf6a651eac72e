"""Configuration spaces: counts, order, indices and filters as the reference has them, and the algebra for any space."""

import gc
import gzip
import itertools
import json
import math
import pathlib
import random
import weakref

import pytest
from hypothesis import given, settings, strategies as st

from nestsmith import te
from nestsmith.autotvm.task.space import (
    AnnotateEntity,
    ConfigEntity,
    ConfigSpace,
    FallbackConfigEntity,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
    get_factors,
    get_pow2s,
)
from nestsmith.error import TVMValueError

DATA = pathlib.Path(__file__).parents[1] / "data"


def spatial_pack(co, oh, ow):
    """The space of the spatial-pack template for Mali GPUs."""
    cfg = ConfigSpace()
    tiles = [cfg.define_split(f"tile_{n}", x, num_outputs=3) for n, x in (("co", co), ("oh", oh), ("ow", ow))]
    n, ci, kh, kw = (cfg.axis(x) for x in (1, co, 3, 3))
    axes = [n, *(t[0] for t in tiles), ci, kh, kw, tiles[1][2], tiles[2][2], tiles[0][2]]
    cfg.define_reorder("reorder_0", axes, policy="candidate", candidate=[axes, [*axes[:7], axes[9], axes[7], axes[8]]])
    cfg.define_annotate("ann_reduce", [kh, kw], policy="try_unroll")
    cfg.define_annotate("ann_spatial", axes[7:], policy="try_unroll_vec")
    return cfg


def tiles(**kwargs):
    cfg = ConfigSpace()
    cfg.define_split("tile_y", 128, num_outputs=2, **kwargs)
    cfg.define_split("tile_x", 128, num_outputs=2)
    return cfg


def of_middle_size(entities):
    return 32 <= entities["tile_x"].size[-1] * entities["tile_y"].size[-1] < 1024


# ---- against the reference ----


PEER = json.loads(gzip.decompress((DATA / "peer-autotvm.json.gz").read_bytes()))
SPATIAL = [t for t in PEER["resnet-18-NCHW-mali"]["tasks"] if "spatial" in t["name"]]


@pytest.mark.parametrize("task", SPATIAL, ids=lambda t: str(t["args"][1][1]))
def test_spaces_of_the_reference(task):
    (_, _, h, w), (co, _, kh, kw) = (a[1] for a in task["args"][:2])
    (sh, sw), (t, l, b, r) = task["args"][2:4]
    cfg = spatial_pack(co, (h + t + b - kh) // sh + 1, (w + l + r - kw) // sw + 1)
    assert (len(cfg), cfg.range_length) == (task["length"], task["range_length"])
    assert {n: len(s) for n, s in cfg.space_map.items()} == task["space"]
    for c in task["configs"]:
        entity = cfg.get(c["index"])
        assert entity.to_json_dict() == c["json"]
        assert entity.get_flatten_feature().tolist() == c["flat"]


@pytest.mark.parametrize(
    "length, n, policy, count",
    [(256, 3, p, 45) for p in ("factors", "power2", "verbose")]
    + [(224, 3, "factors", 63), (224, 3, "power2", 36), (224, 3, "verbose", 84)]
    + [(512, 4, "factors", 220), (2**25, 4, "factors", 3276)],
)
def test_number_of_splits(length, n, policy, count):
    cfg = ConfigSpace()
    cfg.define_split("x", length, policy=policy, num_outputs=n)
    assert len(cfg) == count


def test_index_of_the_specification():
    cfg = spatial_pack(64, 56, 56)
    assert cfg.dims == [28, 30, 30, 2, 4, 20]
    assert cfg.point2knob(2760483) == [19, 8, 16, 1, 2, 13] and cfg.knob2point([19, 8, 16, 1, 2, 13]) == 2760483
    assert repr(cfg.get(2760483)) == (
        "[('tile_co', [-1, 2, 8]), ('tile_oh', [-1, 1, 2]), ('tile_ow', [-1, 7, 4]), "
        "('reorder_0', [0, 1, 2, 3, 4, 5, 6, 9, 7, 8]), ('ann_reduce', ['unroll', 'none']), "
        "('ann_spatial', ['unroll', 'unroll', 'vec'])],None,2760483"
    )
    assert str(cfg) == (
        "ConfigSpace (len=4032000, range_length=4032000, space_map=\n"
        "   0 tile_co: Split(policy=factors, product=64, num_outputs=3) len=28\n"
        "   1 tile_oh: Split(policy=factors, product=56, num_outputs=3) len=30\n"
        "   2 tile_ow: Split(policy=factors, product=56, num_outputs=3) len=30\n"
        "   3 reorder_0: Reorder(policy=candidate) len=2\n"
        "   4 ann_reduce: Annotate(policy=try_unroll) len=4\n"
        "   5 ann_spatial: Annotate(policy=try_unroll_vec) len=20\n"
        ")"
    )


def test_plain_values_print_as_a_list():
    cfg = ConfigSpace()
    cfg.define_knob("auto", [0, "a", True, 1.5])
    assert str(cfg.space_map["auto"]) == "OtherOption([0, a, True, 1.5]) len=4"
    assert [e.val for e in cfg.space_map["auto"]] == [0, "a", True, 1.5]


# ---- the order of entities, by definitions of their own ----


def sizes(length, n, factors, tails):
    """Split sizes in the order of the specification."""
    for inner in itertools.product(factors, repeat=n - 1):  # innermost slowest
        p = math.prod(inner)
        if p <= length and (length % p == 0 or tails):
            yield [-1, *reversed(inner)]


@settings(deadline=None)
@given(
    st.integers(1, 120), st.integers(2, 4), st.sampled_from(["factors", "power2", "verbose"]), st.integers(1, 130),
    st.sampled_from([None, True, False]),
)  # fmt: skip
def test_order_of_splits(length, n, policy, most, no_tail):
    divisors, powers = get_factors(length), get_pow2s(length)
    factors = {"factors": divisors, "power2": powers, "verbose": list(set(divisors) | set(powers))}[policy]
    tails = policy != "factors" if no_tail is None else not no_tail
    cfg = ConfigSpace()
    cfg.define_split("x", length, policy=policy, num_outputs=n, max_factor=most, no_tail=no_tail)
    wanted = list(sizes(length, n, [f for f in factors if f <= most], tails))
    assert [e.size for e in cfg.space_map["x"].entities] == wanted


@given(st.integers(0, 6), st.data())
def test_order_of_orders(k, data):
    begin = data.draw(st.integers(0, k))
    end = data.draw(st.integers(begin, k))
    cfg = ConfigSpace()
    cfg.define_reorder("r", [4] * k, policy="interval_all", interval=(begin, end))
    wanted = [[*range(begin), *p, *range(end, k)] for p in itertools.permutations(range(begin, end))]
    assert [e.perm for e in cfg.space_map["r"]] == wanted
    for policy, n in (("all", math.factorial(k)), ("identity", 1)):
        cfg.define_reorder("r", [4] * k, policy=policy)
        assert len(cfg) == n and cfg.get(n - 1)["r"].perm == (list(range(k)) if n == 1 else list(reversed(range(k))))


@given(st.integers(0, 4), st.permutations(["try", "unroll", "vec"]), st.integers(1, 3))
def test_order_of_words(k, words, n):
    words = words[:n]
    cfg = ConfigSpace()
    if k and words == ["vec"] and k > 1:
        with pytest.raises(ValueError, match="'a' has no choices"):
            cfg.define_annotate("a", [4] * k, policy="vec")
        return
    cfg.define_annotate("a", [4] * k, policy="_".join(words))
    names = [w.replace("try", "none") for w in words]
    wanted = [list(a) for a in itertools.product(names, repeat=k) if a.count("vec") <= 1]
    assert [e.anns for e in cfg.space_map["a"]] == wanted


def test_words_of_the_specification():
    cfg = ConfigSpace()
    cfg.define_annotate("a", [1, 2], policy="try_unroll")
    assert len(cfg) == 4
    cfg.define_annotate("a", [1, 2, 3], policy="try_unroll_vec")
    assert len(cfg) == 20
    cfg.define_annotate("a", [1] * 7, policy="bind_gpu")
    assert cfg.get(0)["a"].anns == ["fuse", *(f"{t}Idx.{x}" for t in ("block", "thread") for x in "zyx")]
    cfg.define_annotate("a", [1] * 4, policy="bind_gpu_virtual")
    assert cfg.get(0)["a"].anns == ["fuse", "blockIdx.x", "vthread", "threadIdx.x"]
    cfg.define_annotate("a", [1] * 4, policy="locate_cache", num_anchor=2)
    assert [e.anns for e in cfg.space_map["a"]] == [list(c) for c in itertools.combinations(range(4), 2)]
    with pytest.raises(ValueError, match="policy 'bind_gpu' does not fit 1 axes"):
        cfg.define_annotate("a", [1], policy="bind_gpu")


def test_interleaved_orders():
    cfg = ConfigSpace()
    a, b = cfg.define_split("a", 8, num_outputs=3), cfg.define_split("b", 8, num_outputs=2)
    k = cfg.define_split("k", 8, num_outputs=2)
    axes = [*a, *b, *k]
    cfg.define_reorder("r", axes, policy="interleave", spatial=[a, b], reduce=[k])
    assert cfg["r"].perm == [0, 1, 3, 5, 2, 4, 6]
    cfg.define_reorder("r", axes, policy="interleave_cuda", spatial=[a, b], reduce=[k])
    assert cfg["r"].perm == [0, 1, 3, 5, 6, 2, 4]


# ---- combinations ----


def test_filters_of_the_specification():
    cfg = tiles()
    cfg.multi_filter(of_middle_size)
    assert (len(cfg), cfg.range_length) == (34, 64)
    assert not cfg.is_index_valid(0) and cfg.is_index_valid(15)
    assert (cfg.get_next_index(0), cfg.get_next_index(63, -1)) == (5, 58)
    assert (cfg.subrange_length(0, 32), cfg.subrange_length(16, 32)) == (17, 10)
    with pytest.raises(IndexError, match="multi-filter condition, got index 0"):
        cfg.get(0)
    cfg = tiles(filter=lambda e: e.size[-1] < 64)
    assert len(cfg) == 48
    cfg.multi_filter(of_middle_size)
    assert (len(cfg), cfg.range_length) == (27, 48)


def test_a_filter_is_asked_for_what_is_looked_at_and_once():
    asked = []
    cfg = spatial_pack(64, 56, 56)
    cfg.multi_filter(lambda e: asked.append(1) or e["tile_co"].size[-1] > 1)
    assert cfg.range_length == 4032000 and not asked
    assert len(cfg.sample_ints(10)) == 10
    few = len(asked)
    assert 10 <= few < 100
    at = int(cfg.sample_ints(1)[0])
    n = len(asked)
    assert cfg.is_index_valid(at) and cfg.get(at) and len(asked) == n


def test_what_a_filter_raises_is_what_the_caller_sees():
    cfg = tiles()
    cfg.multi_filter(lambda e: e["tile_z"])
    with pytest.raises(KeyError, match="tile_z"):
        len(cfg)
    with pytest.raises(ZeroDivisionError):
        cfg.define_split("tile_z", 8, num_outputs=2, filter=lambda e: 1 // 0)
    assert list(cfg.space_map) == ["tile_y", "tile_x"] and cfg.range_length == 64


def test_a_filter_does_not_keep_its_space_alive():
    class Template:
        def __init__(self):
            self.cfg = tiles()
            self.cfg.multi_filter(lambda e: e["tile_x"] is not self)

    owner = Template()
    ref = weakref.ref(owner.cfg)
    assert len(owner.cfg) == 64
    del owner
    gc.collect()
    assert ref() is None


@st.composite
def spaces(draw):
    cfg = ConfigSpace()
    for i in range(draw(st.integers(1, 4))):
        kind = draw(st.integers(0, 3))
        if kind == 0:
            cfg.define_split(f"k{i}", draw(st.integers(1, 30)), num_outputs=draw(st.integers(2, 3)))
        elif kind == 1:
            cfg.define_reorder(f"k{i}", [1] * draw(st.integers(1, 3)), policy="all")
        elif kind == 2:
            cfg.define_annotate(f"k{i}", [1] * draw(st.integers(1, 2)), policy="try_unroll_vec")
        else:
            cfg.define_knob(f"k{i}", draw(st.lists(st.integers() | st.booleans() | st.text(), min_size=1, max_size=5)))
    return cfg


@settings(deadline=None)
@given(spaces(), st.data())
def test_index_and_digits(cfg, data):
    at = data.draw(st.integers(0, cfg.range_length - 1))
    digits = cfg.point2knob(at)
    assert cfg.knob2point(digits) == at
    place, total = 1, 0
    for d, n in zip(digits, cfg.dims):
        total, place = total + d * place, place * n
    assert total == at and place == cfg.range_length == len(cfg)


@settings(deadline=None)
@given(spaces(), st.data())
def test_entities_survive_json(cfg, data):
    entity = cfg.get(data.draw(st.integers(0, len(cfg) - 1)))
    again = ConfigEntity.from_json_dict(json.loads(json.dumps(entity.to_json_dict())))
    assert repr(again) == repr(entity) and again.to_json_dict() == entity.to_json_dict()


@settings(deadline=None)
@given(spaces(), st.integers(1, 5), st.integers(0, 2**32))
def test_filtered_spaces_agree_with_a_list(cfg, modulus, seed):
    allowed = [i for i in range(cfg.range_length) if sum(cfg.point2knob(i)) % modulus == 0]
    place = {id(s): {repr(e): i for i, e in reversed(list(enumerate(s)))} for s in cfg.space_map.values()}
    if any(len(p) != len(s) for p, s in zip(place.values(), cfg.space_map.values())):
        return  # plain values that print alike
    cfg.multi_filter(lambda e: sum(place[id(cfg.space_map[n])][repr(x)] for n, x in e.items()) % modulus == 0)
    random.seed(seed)
    n = cfg.range_length
    assert [i for i in range(n) if cfg.is_index_valid(i)] == allowed and len(cfg) == len(allowed)
    assert sorted(cfg.sample_ints(len(allowed))) == allowed
    begin, end = sorted(random.choices(range(n + 1), k=2))
    inside = [i for i in allowed if begin <= i < end]
    assert cfg.subrange_length(begin, end) == len(inside)
    at = random.randrange(n)
    later, earlier = [i for i in inside if i > at], [i for i in inside if i < at]
    if begin <= at < end:
        assert cfg.get_next_index(at, 2, begin, end) == (later[1] if len(later) > 1 else None)
        assert cfg.get_next_index(at, -1, begin, end) == (earlier[-1] if earlier else None)
    if inside:
        left = random.choice(inside)
        assert cfg.get_rand_index(begin, end, set(inside) - {left}) == left
    with pytest.raises(ValueError, match="is left"):
        cfg.get_rand_index(begin, end, inside)
    start = random.choice(allowed)
    assert cfg.random_walk(start) in allowed
    assert (cfg.random_walk(start) != start) == (len(allowed) > 1)


def test_samples_are_uniform_and_follow_the_seed():
    cfg = tiles()
    random.seed(3)
    first = cfg.sample_ints(5).tolist()
    random.seed(3)
    assert cfg.sample_ints(5).tolist() == first
    count = [0] * 64
    for _ in range(6400):
        count[cfg.get_rand_index()] += 1
    assert 40 < min(count) and max(count) < 180  # 100 +- 6 and 8 standard deviations
    with pytest.raises(ValueError, match="m is 65; the space has 64"):
        cfg.sample_ints(65)


def test_a_walk_changes_few_digits():
    cfg = spatial_pack(64, 56, 56)
    random.seed(1)
    changed = [0] * 7
    for _ in range(1000):
        a, b = cfg.point2knob(2760483), cfg.point2knob(cfg.random_walk(2760483))
        changed[sum(x != y for x, y in zip(a, b))] += 1
    assert changed[0] == 0 and changed[1] == 1000  # nothing forbids the first change


def test_large_spaces_cost_nothing():
    cfg = ConfigSpace()
    for i in range(5):
        cfg.define_split(f"x{i}", 2**20, num_outputs=4)
    assert cfg.range_length == 1771**5 == len(cfg)
    at = 1771**5 - 1
    assert cfg.knob2point(cfg.point2knob(at)) == at and cfg.get(at)["x4"].size == [-1, 1, 1, 2**20]
    assert len(set(cfg.sample_ints(1000).tolist())) == 1000
    with pytest.raises(ValueError, match="'r'.* more than 2\\^63 configurations"):
        cfg.define_reorder("r", [1] * 11, policy="all")


def test_a_name_that_is_defined_again_keeps_its_place():
    cfg = tiles()
    cfg.define_knob("tile_y", [1, 2, 3])
    assert list(cfg.space_map) == ["tile_y", "tile_x"] and cfg.dims == [3, 8] and cfg.get(5)["tile_y"].val == 3


# ---- what templates do with it ----


def test_modes():
    cfg = ConfigSpace()
    cfg.define_split("x", 8, num_outputs=2)
    assert cfg["x"].size == [-1, 1]
    entity = cfg.get(2)
    assert len(entity.define_split("x", 8, num_outputs=2)) == 2 and entity["x"].size == [-1, 4]
    assert entity.define_knob("never", [1]) is None
    with pytest.raises(KeyError, match="no knob 'xs' is defined; did you mean 'x'"):
        entity["xs"]
    back = FallbackConfigEntity()
    back["x"] = SplitEntity([-1, 8])
    back.define_split("x", 8, num_outputs=2)
    back.define_split("y", 8, num_outputs=2)
    assert back["x"].size == [-1, 8] and back["y"].size == [-1, 1] and back.is_fallback
    entity.add_flop(3)
    entity.add_flop(4)
    assert entity.flop == 7 and entity.valid()
    entity.raise_error("too large")
    assert not entity.valid() and [str(e) for e in entity.errors] == ["too large"]


def fallback(**lengths):
    cfg = FallbackConfigEntity()
    for name, n in lengths.items():
        cfg.define_split(name, n, num_outputs=3)
    return cfg


@pytest.mark.parametrize("length, limits, size", [(128, [-1, 8, 4], [4, 8, 4]), (49, [-1, 8, 4], [7, 7, 1])])
def test_fallback_split(length, limits, size):
    cfg = fallback(x=length)
    cfg.fallback_split("x", limits)
    assert cfg["x"].size == size


def test_fallback_split_that_cannot_be():
    with pytest.raises(TVMValueError, match="limit 0 allows none"):  # scripts catch a RuntimeError
        fallback(x=49).fallback_split("x", [-1, 1, 0])
    with pytest.raises(ValueError, match="'y' is no knob"):
        fallback(x=49).fallback_split("y", [-1, 1, 1])


def test_fallback_from_records_of_other_shapes():
    class Input:
        def __init__(self, size, value):
            self.config = ConfigEntity(0, None, {"x": SplitEntity(size), "k": OtherOptionEntity(value)}, [])

    cfg = fallback(x=96)
    cfg.define_knob("k", [1, 2])
    cfg.fallback_with_reference_log([(Input([-1, 5, 7], 1), None), (Input([-1, 8, 4], 2), None), (Input([-1, 4, 8], 3), None)])
    assert cfg["x"].size == [3, 8, 4] and cfg["k"].val == 2


def product():
    a, b = te.placeholder((64, 32), name="A"), te.placeholder((32, 48), name="B")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((64, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return c, te.create_schedule(c.op)


def test_entities_apply_to_schedules():
    c, s = product()
    cfg = ConfigSpace()
    y, x = s[c].op.axis
    (k,) = s[c].op.reduce_axis
    cfg.define_split("tile_y", y, num_outputs=3)
    assert cfg.space_map["tile_y"].product == 64
    parts = SplitEntity([-1, 4, 2]).apply(s, c, y)
    xo, xi = SplitEntity([-1, 8]).apply(s, c, x)
    assert [len(p.name) > 0 for p in parts] == [True] * 3
    order = ReorderEntity([0, 3, 1, 2, 4, 5]).apply(s, c, [*parts, xo, xi])
    assert order == [parts[0], xo, parts[1], parts[2], xi]
    cfg = ConfigEntity(0, None, {}, [])
    AnnotateEntity(["fuse", "blockIdx.x", "unroll", "vec"]).apply(
        s, c, [order[0], order[1], order[3], xi], axis_lens=[8, 6, 2, 8], max_unroll=1, vec_size=[4], cfg=cfg
    )
    assert [str(e) for e in cfg.errors] == ["Too large factor for unrolling", "Wrong size of lanes in vectorization"]
    text = str(s)
    assert "blockIdx.x" in text and "unroll" in text and "vectorize" in text


@pytest.mark.parametrize(
    "config, said",
    [
        ({}, "must have index, code_hash and entity"),
        ([], "must have index, code_hash and entity"),
        ({"index": 0, "code_hash": None, "entity": 3}, "entity must be a list"),
        ({"index": 0, "code_hash": None, "entity": [["x", "sp"]]}, r"is no \[name, kind, value\]"),
        ({"index": 0, "code_hash": None, "entity": [["x", "xx", 1]]}, "'x' is of kind 'xx'"),
        ({"index": 0, "code_hash": None, "entity": [["x", "sp", [1, "a"]]]}, "'x' of kind 'sp' has the value"),
        ({"index": 0, "code_hash": None, "entity": [["x", ["sp"], [1]]]}, "kind"),
        ({"index": "a", "code_hash": None, "entity": []}, "index is 'a'"),
    ],
)
def test_configurations_of_strangers(config, said):
    with pytest.raises((ValueError, TypeError), match=said):
        ConfigEntity.from_json_dict(config)


@pytest.mark.parametrize(
    "define, said",
    [
        (lambda c: c.define_split("x", 0, num_outputs=2), "length 0 cannot be split"),
        (lambda c: c.define_split("x", "a", num_outputs=2), "axis is 'a'"),
        (lambda c: c.define_split("x", 8, policy="all", num_outputs=2), "no policy 'all'"),
        (lambda c: c.define_split("x", 8, num_outputs=1), "is for 1 axes"),
        (lambda c: c.define_split("x", 8, num_outputs=2, filter=lambda e: False), "'x' has no choices"),
        (lambda c: c.define_split("x", 8, num_outputs=2, filters=1), "no argument 'filters'"),
        (lambda c: c.define_split("x", c.define_split("y", 8, num_outputs=2)[0], num_outputs=2), "not known"),
        (lambda c: c.define_knob("x", []), "'x' has no choices"),
        (lambda c: c.define_reorder("x", [1, 2], policy="any"), "no policy 'any'"),
        (lambda c: c.define_reorder("x", [1, 2], policy="interval_all"), "'interval_all' needs the argument 'interval'"),
        (lambda c: c.define_reorder("x", [1, 2], policy="candidate"), "needs the argument 'candidate'"),
        (lambda c: c.define_reorder("x", [1, 2], policy="interleave", spatial=[[1], [2]]), "needs the argument 'reduce'"),
        (lambda c: c.define_annotate("x", [1, 2], policy=None), "no policy None"),
        (lambda c: c.define_reorder("x", [1, 2], policy="candidate", candidate=[[1, 3]]), "3 is none of its axes"),
        (lambda c: c.define_annotate("x", [1, 2], policy="try_vectorize"), "no policy 'try_vectorize'"),
        (lambda c: c.define_annotate("x", [1, 2], policy="locate_cache", num_anchor=3), "num_anchor is 3"),
        (lambda c: c.define_reorder("x", [1] * 14, policy="all"), "choices or more"),
        (lambda c: c.get(-1), "Index out of range: size 1, got index -1"),
        (lambda c: c.knob2point([1]), "1 digits: the space has 0 knobs"),
    ],
)
def test_what_cannot_be_is_said(define, said):
    with pytest.raises((ValueError, TypeError, IndexError), match=said):
        define(ConfigSpace())
