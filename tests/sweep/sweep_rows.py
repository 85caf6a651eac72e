"""What may differ: the rows of the table "Edges" of docs/numerics.md, by the words that begin them. Each says which differences it covers."""

EXTREMES = ("max", "min", "amax", "amin", "clamp", "fmax", "fmin", "relu", "hardtanh", "aminmax", "Max", "Min", "Clip", "Relu", "Pool", "topk",
            "sort", "threshold", "nan_to_num", "hardshrink", "softshrink", "hardswish", "hardsigmoid", "hinge")  # fmt: skip
RESIZED = ("interpolate", "upsample", "Resize", "Upsample")
QUANTIZED = ("Quant", "QLinear", "Cast", "to", "int", "long", "byte", "short", "char")
MATRICES = """lu lu_factor lu_factor_ex lu_solve lu_unpack cholesky cholesky_ex cholesky_inverse cholesky_solve qr geqrf ormqr householder_product
inv inv_ex inverse solve solve_ex tensorsolve tensorinv matrix_power det slogdet logdet matrix_exp solve_triangular triangular_solve""".split()
STATISTICS = ("var_mean", "std_mean", "batch_norm", "layer_norm", "instance_norm", "group_norm")
CHECKED = ("binary_cross_entropy", "Binarizer", "logspace")


def _of(*words):
    return lambda d: any(w in d.name for w in words)


def _matrices(d):
    name = d.name.split("[")[0].removeprefix("linalg.").split(".")[0]
    return name in MATRICES


def _odd(d):
    """There are infinities or NaN among the inputs."""
    return d.odd


def _far(d):
    return d.what.startswith(("error", "NaN"))


def _unchecked(d):
    return d.what.startswith("no error; PyTorch")


def _matrix_without_factor(d):
    """Of finite numbers: no error, or NaN in what cholesky_ex leaves where it fails."""
    return _matrices(d) and (_odd(d) or _unchecked(d) or (_of("cholesky_ex")(d) and d.what.startswith("NaN or infinity: nan")))


ROWS = {
    "Sign of zero": lambda d: d.what.startswith("sign of zero") and (d.together or _of(*EXTREMES)(d)),
    "Beyond the range": lambda d: d.fill in ("huge", "tiny") and d.together and (_far(d) or _matrices(d)),
    "Running sums and products": lambda d: _of("cumsum", "cumprod", "CumSum", "CumProd")(d) and _far(d),
    "Zero times infinity": lambda d: _of("conv", "Conv", "DFT", "fft")(d) and _odd(d) and d.what.startswith("NaN"),
    "Resizing": lambda d: _of(*RESIZED)(d) and _odd(d),
    "Attention": lambda d: _of("attention", "Attention")(d) and _odd(d),
    "Other definitions": lambda d: d.apart or (d.name.startswith("mode[") and _odd(d)),
    "Statistics": lambda d: _of(*STATISTICS)(d) and _odd(d) and d.what.startswith(("NaN or infinity: inf", "NaN or infinity: -inf")),
    "Matrices": _matrix_without_factor,
    "Checks of values": lambda d: _of(*CHECKED)(d) and _unchecked(d),
    "Extremes in ONNX": lambda d: d.name.startswith("onnx.") and _of(*EXTREMES, "Arg", "TopK", "Hardmax")(d) and _odd(d),
    "Casts to integers": lambda d: d.what.startswith("integers") and (_odd(d) or d.fill in ("huge", "special")) and _of(*QUANTIZED)(d),
}


def row(d):
    """The row that covers a difference; None if none does."""
    return next((name for name, covers in ROWS.items() if covers(d)), None)
