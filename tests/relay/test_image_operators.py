"""Operators that move pixels: resizing, upsampling, padding by the image itself, channels to and from the plane."""

import itertools

import numpy as np
import pytest
import torch.nn.functional as F
from levels import outputs, same
from test_operators import T, V, small

import nestsmith as ns
from helpers import rest_full
from nestsmith import IRModule, auto_scheduler, relay, transform

nn, image = relay.nn, relay.image
rng = np.random.default_rng(1)


# ---- resizing against its definition, in double precision ----------------------------------------------------------


def place(y, n, m, mode, begin=0.0, end=1.0):
    if mode in ("align_corners", "pytorch_half_pixel") and m == 1:
        return 0.0
    return {
        "half_pixel": lambda: (y + 0.5) * n / m - 0.5,
        "pytorch_half_pixel": lambda: (y + 0.5) * n / m - 0.5,
        "align_corners": lambda: y * (n - 1) / (m - 1),
        "asymmetric": lambda: y * n / m,
        "tf_half_pixel_for_nn": lambda: (y + 0.5) * n / m,
        "tf_crop_and_resize": lambda: (
            begin * (n - 1) + y * (end - begin) * (n - 1) / (m - 1) if m > 1 else (begin + end) / 2 * (n - 1)
        ),
    }[mode]()


def taps(y, n, m, method, mode, rounding, alpha, exclude, begin, end):
    """{input index: weight}"""
    p = place(y, n, m, mode, begin, end)
    inside = lambda i: min(max(int(i), 0), n - 1)  # noqa: E731
    if method == "nearest_neighbor":
        rounding = rounding or ("round" if mode == "align_corners" else "floor")
        e = 1e-9
        near = {
            "round": np.floor(p + 0.5 + e),
            "round_prefer_ceil": np.floor(p + 0.5 + e),
            "round_prefer_floor": np.ceil(p - 0.5 - e),
            "floor": np.floor(p + e),
            "ceil": np.ceil(p - e),
        }
        return {inside(near[rounding]): 1.0}, p
    i, t = int(np.floor(p + 1e-9)), p - np.floor(p + 1e-9)
    a = alpha
    if method == "linear":
        pairs = [(i, 1 - t), (i + 1, t)]
    else:

        def w(d):
            d = abs(d)
            return (a + 2) * d**3 - (a + 3) * d**2 + 1 if d <= 1 else a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a

        pairs = [(i + k, w(t - k)) for k in (-1, 0, 1, 2)]
        if exclude:
            pairs = [(k, v if 0 <= k < n else 0.0) for k, v in pairs]
            total = sum(v for _, v in pairs)
            pairs = [(k, v / total) for k, v in pairs]
    out: dict = {}
    for k, v in pairs:
        out[inside(k)] = out.get(inside(k), 0) + v
    return out, p


def matrix(n, m, *how):
    """The resizing of one axis as a matrix (m, n), and which outputs lie beyond the image."""
    w, off = np.zeros((m, n)), np.zeros(m, bool)
    for y in range(m):
        weights, p = taps(y, n, m, *how)
        for k, v in weights.items():
            w[y, k] = v
        off[y] = p < 0 or p > n - 1
    return w, off


def resized(x, size, method, mode, rounding="", alpha=-0.5, exclude=0, roi=(0, 0, 1, 1), beyond=0.0):
    """`x` in NCHW."""
    h, off_h = matrix(x.shape[2], size[0], method, mode, rounding, alpha, exclude, roi[0], roi[2])
    w, off_w = matrix(x.shape[3], size[1], method, mode, rounding, alpha, exclude, roi[1], roi[3])
    out = np.einsum("yi,xj,ncij->ncyx", h, w, x.astype("float64"))
    if mode == "tf_crop_and_resize":
        out[:, :, off_h] = beyond
        out[:, :, :, off_w] = beyond
    return out


MODES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn")
SIZES = [((4, 5), (8, 3)), ((7, 6), (7, 13)), ((3, 4), (1, 1)), ((1, 9), (4, 6))]


@pytest.mark.some(9)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
def test_resize2d_in_all_modes(method, mode):
    for old, new in SIZES:
        x = small(1, 2, *old)
        body = image.resize2d(V("x", *x.shape), new, method=method, coordinate_transformation_mode=mode)
        want = resized(x, new, method, mode).astype("float32")
        same(body, {"x": x}, want, 0 if method == "nearest_neighbor" else 2e-5, levels=(3,))


@pytest.mark.parametrize(
    "rounding",
    rest_full("round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil", short=("round_prefer_floor", "floor")),
)
def test_roundings_are_exact(rounding):
    for mode, (old, new) in itertools.product(("half_pixel", "align_corners", "asymmetric"), [((6, 10), (9, 30)), ((9, 7), (6, 21))]):
        x = np.arange(old[0] * old[1], dtype="float32").reshape(1, 1, *old)
        how = {"coordinate_transformation_mode": mode, "rounding_method": rounding}
        body = image.resize2d(V("x", *x.shape), new, method="nearest_neighbor", **how)
        same(body, {"x": x}, resized(x, new, "nearest_neighbor", mode, rounding).astype("float32"), levels=(3,))


@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
def test_crop_and_resize(method):
    x = small(1, 2, 6, 7)
    for roi in ((0.1, 0.2, 0.8, 0.9), (0.9, 0.0, -0.25, 1.5)):
        for size in ((5, 4), (1, 3)):
            body = image.resize2d(V("x", *x.shape), size, roi, "NCHW", method, "tf_crop_and_resize", extrapolation_value=-9.0)
            want = resized(x, size, method, "tf_crop_and_resize", roi=roi, beyond=-9.0).astype("float32")
            same(body, {"x": x}, want, 1e-4, levels=(3,))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "NCHW4c"])
def test_layouts_and_levels(layout):
    x = small(1, 8, 5, 4)
    want = resized(x, (7, 8), "linear", "half_pixel").astype("float32")
    order = {"NCHW": lambda a: a, "NHWC": lambda a: a.transpose(0, 2, 3, 1)}.get(
        layout, lambda a: a.reshape(1, 2, 4, *a.shape[2:]).transpose(0, 1, 3, 4, 2)
    )
    x, want = np.ascontiguousarray(order(x)), np.ascontiguousarray(order(want))
    same(image.resize2d(V("x", *x.shape), (7, 8), layout=layout), {"x": x}, want, 2e-5)


def test_weights_beyond_the_edge():
    x = small(1, 1, 5, 6)
    body = image.resize2d(V("x", *x.shape), (8, 9), method="cubic", cubic_alpha=-0.75, cubic_exclude=1)
    same(body, {"x": x}, resized(x, (8, 9), "cubic", "half_pixel", "", -0.75, 1).astype("float32"), 2e-5, levels=(3,))


@pytest.mark.parametrize(
    "how,torchs",
    [
        (("nearest_neighbor", "asymmetric"), {"mode": "nearest"}),
        (("nearest_neighbor", "tf_half_pixel_for_nn"), {"mode": "nearest-exact"}),
        (("linear", "half_pixel"), {"mode": "bilinear", "align_corners": False}),
        (("linear", "align_corners"), {"mode": "bilinear", "align_corners": True}),
        (("cubic", "half_pixel"), {"mode": "bicubic", "align_corners": False}),
        (("cubic", "align_corners"), {"mode": "bicubic", "align_corners": True}),
    ],
)
def test_resize2d_against_pytorch(how, torchs):
    x = rng.uniform(-1, 1, (1, 3, 9, 11)).astype("float32")
    for size in ((18, 22), (5, 7), (13, 4)):
        body = image.resize2d(V("x", *x.shape), size, None, "NCHW", *how, cubic_alpha=-0.75)
        same(body, {"x": x}, F.interpolate(T(x), size, **torchs).numpy(), 1e-5, levels=(3,))


@pytest.mark.parametrize("dtype", rest_full("float16", "float64", "int8", "uint8", "int32", short=("float16", "uint8")))
@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
def test_element_types(dtype, method):
    x = rng.integers(0, 100, (1, 1, 4, 5)).astype(dtype)
    want = resized(x, (8, 8), method, "half_pixel")
    if not dtype.startswith("float"):
        info = np.iinfo(dtype)
        want = np.clip(np.trunc(want + np.sign(want) * 1e-5), info.min, info.max)
    body = image.resize2d(V("x", *x.shape, dtype=dtype), (8, 8), method=method)
    same(body, {"x": x}, want.astype(dtype), 2e-3 if dtype == "float16" else 1e-6, levels=(3,))
    out = image.resize2d(V("x", *x.shape, dtype=dtype), (8, 8), method="linear", out_dtype="float32")
    same(out, {"x": x}, resized(x, (8, 8), "linear", "half_pixel").astype("float32"), 1e-5, levels=(3,))


def test_resize2d_refuses():
    x = V("x", 1, 2, 4, 4)
    for how, what in (
        ({"method": "lanczos"}, "lanczos"),
        ({"coordinate_transformation_mode": "half_pixl"}, "did you mean 'half_pixel'"),
        ({"rounding_method": "up"}, "'up'"),
        ({"roi": (0, 1)}, "four numbers"),
    ):
        with pytest.raises(ValueError, match=what):
            image.resize2d(x, (8, 8), **how)


# ---- upsampling ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method,align", [("nearest_neighbor", False), ("bilinear", True), ("bilinear", False), ("bicubic", True)])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_upsampling(method, align, layout):
    x = small(1, 3, 4, 5)
    name = {"bilinear": "linear", "bicubic": "cubic"}.get(method, method)
    want = resized(x, (8, 12), name, "align_corners" if align else "asymmetric", "floor").astype("float32")
    if layout == "NHWC":
        x, want = (np.ascontiguousarray(a.transpose(0, 2, 3, 1)) for a in (x, want))
    body = nn.upsampling(V("x", *x.shape), 2, 2.4, layout, method, align)
    same(body, {"x": x}, want, 0 if method == "nearest_neighbor" else 2e-5)
    with pytest.raises(ValueError, match="did you mean 'bilinear'"):
        nn.upsampling(V("x", *x.shape), 2, 2, layout, "bilinea")


# ---- padding -------------------------------------------------------------------------------------------------------

WIDTH = ((0, 0), (1, 2), (3, 0))


@pytest.mark.parametrize("mode", ["edge", "reflect", "constant"])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_pad_modes(mode, dtype):
    x = small(2, 3, 4, dtype=dtype)
    more = {"constant_values": 5} if mode == "constant" else {}
    same(nn.pad(V("x", *x.shape, dtype=dtype), WIDTH, 5, mode), {"x": x}, np.pad(x, WIDTH, mode, **more))
    same(nn.pad(relay.const(x), WIDTH, 5, mode), {}, np.pad(x, WIDTH, mode, **more), levels=(1, 3))


@pytest.mark.parametrize("mode", ["SYMMETRIC", "REFLECT"])
def test_mirror_pad(mode):
    x = small(2, 3, 4)
    same(nn.mirror_pad(V("x", *x.shape), WIDTH, mode), {"x": x}, np.pad(x, WIDTH, mode.lower()))


def test_mirrors_are_as_large_as_the_tensor():
    x = V("x", 2, 3)
    for body in (nn.pad(x, ((0, 0), (3, 0)), 0, "reflect"), nn.mirror_pad(x, ((0, 0), (0, 4)))):
        with pytest.raises(ValueError, match="mirrors at most"):
            _ = body.checked_type
    with pytest.raises(ValueError, match="SYMETRIC.*did you mean"):
        nn.mirror_pad(x, ((0, 0), (1, 1)), "SYMETRIC")
    data = small(2, 3)
    same(nn.mirror_pad(x, ((2, 0), (3, 3))), {"x": data}, np.pad(data, ((2, 0), (3, 3)), "symmetric"), levels=(3,))


# ---- channels to and from the plane --------------------------------------------------------------------------------


def nhwc(x):
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_depth_and_space(layout):
    x = small(2, 12, 3, 5)
    n, c, h, w = x.shape
    crd = F.pixel_shuffle(T(x), 2).numpy()
    dcr = x.reshape(n, 2, 2, c // 4, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c // 4, 2 * h, 2 * w)
    order = nhwc if layout == "NHWC" else np.ascontiguousarray
    data, shape = {"x": order(x)}, order(x).shape
    same(nn.depth_to_space(V("x", *shape), 2, layout, "CRD"), data, order(crd))
    same(nn.depth_to_space(V("x", *shape), 2, layout), data, order(dcr))
    same(nn.space_to_depth(V("x", *order(dcr).shape), 2, layout), {"x": order(dcr)}, order(x))
    same(nn.space_to_depth(nn.depth_to_space(V("x", *shape), 2, layout), 2, layout), data, order(x), levels=(0, 3))


def test_blocks_must_divide():
    for f in (nn.depth_to_space(V("x", 1, 6, 4, 4), 2), nn.space_to_depth(V("x", 1, 6, 4, 5), 2)):
        with pytest.raises(ValueError, match="do not divide into blocks of 2 x 2"):
            _ = f.checked_type


@pytest.fixture(scope="module")
def opencl():
    dev = ns.opencl(0)
    if not dev.exist:
        pytest.skip(dev.why_not)


def test_on_opencl(opencl):
    v, x = V("x", 1, 4, 5, 6), small(1, 4, 5, 6)
    body = relay.Tuple(
        [
            *(image.resize2d(v, (8, 7), method=m) for m in ("nearest_neighbor", "linear", "cubic")),
            nn.upsampling(v, 2, 2),
            nn.pad(v, ((0, 0), (0, 0), (2, 1), (0, 3)), 0, "reflect"),
            nn.pad(v, ((0, 0), (0, 0), (2, 1), (0, 3)), 0, "edge"),
            nn.mirror_pad(v, ((0, 0), (1, 2), (0, 0), (6, 0))),
            nn.depth_to_space(v, 2, mode="CRD"),
            nn.space_to_depth(nn.depth_to_space(v, 2), 2),
        ]
    )
    same(body, {"x": x}, outputs(body, {"x": x}), 1e-5, levels=(3,), target="opencl")


# ---- in networks ---------------------------------------------------------------------------------------------------


def u_net():
    x = V("data", 1, 4, 8, 8)
    conv = lambda t, k, i, o: nn.relu(nn.conv2d(t, V(f"w{k}", o, i, 3, 3), padding=1))  # noqa: E731
    a = conv(nn.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), 0, "reflect"), 0, 4, 8)
    b = conv(nn.max_pool2d(a, 2, 2), 1, 8, 8)
    up = nn.space_to_depth(nn.upsampling(image.resize2d(b, (10, 10)), 2, 2), 2)
    body = conv(relay.concatenate([a, up], 1), 2, 40, 4)
    body = nn.mirror_pad(nn.depth_to_space(body, 2), ((0, 0), (0, 0), (2, 2), (0, 0)))
    return relay.Function(relay.expr.free_vars(body), body)


@pytest.mark.parametrize(
    "make,words",
    [
        (lambda x: nn.adaptive_avg_pool2d(x, (0, 1)), "output_size is 0; it must be at least 1"),
        (lambda x: nn.adaptive_max_pool3d(x, 0), "output_size is 0; it must be at least 1"),
        (lambda x: image.resize2d(x, (3, 0)), "size is 0; it must be at least 1"),
        (lambda x: nn.upsampling(x, 0, 2), "scale_h is 0; it must be greater than 0"),
    ],
)
def test_sizes_of_nothing_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make(relay.var("x", shape=(1, 3, 8, 8)))


def test_layout_conversion_passes_through():
    """Converted to NHWC, nothing goes back to NCHW between the first and the last operator; the values stay."""
    f = u_net()
    inputs = {p.name_hint: small(*p.checked_type.shape) for p in f.params}
    with transform.PassContext(opt_level=3):
        mod = relay.transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]})(IRModule.from_expr(f))
    body = mod["main"].body
    moved = [e for e in relay.expr.post_order(body) if getattr(e, "op_name", "") == "layout_transform"]
    data = [e for e in moved if len(e.args[0].checked_type.shape) == 4 and e.attrs.src_layout in ("NCHW", "NHWC")]
    assert len(data) == 1  # that of the input; the output has one channel, and a reshape does
    assert body.op_name == "reshape"
    np.testing.assert_allclose(outputs(body, inputs)[0], outputs(f.body, inputs)[0], 1e-4, 1e-2)


def test_a_u_net_is_tuned_and_built(tmp_path):
    mod, log = IRModule.from_expr(u_net()), str(tmp_path / "log.json")
    tasks, weights = auto_scheduler.extract_tasks(mod, {}, "llvm")
    options = auto_scheduler.TuningOptions(
        num_measure_trials=2 * len(tasks),
        verbose=0,
        runner=auto_scheduler.LocalRunner(repeat=1, min_repeat_ms=1),
        measure_callbacks=[auto_scheduler.RecordToFile(log)],
    )
    auto_scheduler.TaskScheduler(tasks, weights).tune(options)
    config = {"relay.backend.use_auto_scheduler": True}
    with auto_scheduler.ApplyHistoryBest(log), transform.PassContext(opt_level=3, config=config):
        lib = relay.build(mod, "llvm")
    f = mod["main"]
    inputs = {p.name_hint: small(*p.checked_type.shape) for p in f.params}
    m = ns.contrib.graph_executor.GraphModule(lib["default"](ns.cpu()))
    m.run(**inputs)
    np.testing.assert_allclose(m.get_output(0).numpy(), outputs(f.body, inputs)[0], 1e-4, 1e-2)
