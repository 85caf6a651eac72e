"""What may differ: the rows of the table "Edges" of docs/numerics.md, by the words that begin them. Each says which differences it covers."""

EXTREMES = ("max", "min", "amax", "amin", "clamp", "fmax", "fmin", "relu", "hardtanh", "aminmax", "Max", "Min", "Clip", "Relu", "Pool", "topk",
            "sort", "threshold", "nan_to_num", "hardshrink", "softshrink", "hardswish", "hardsigmoid", "hinge")  # fmt: skip
RESIZED = ("interpolate", "upsample", "Resize", "Upsample")
QUANTIZED = ("Quant", "QLinear", "Cast", "to", "int", "long", "byte", "short", "char")
MATRICES = """lu lu_factor lu_factor_ex lu_solve lu_unpack cholesky cholesky_ex cholesky_inverse cholesky_solve qr geqrf ormqr householder_product
inv inv_ex inverse solve solve_ex tensorsolve tensorinv matrix_power det slogdet logdet matrix_exp solve_triangular triangular_solve""".split()
STATISTICS = ("var_mean", "std_mean", "batch_norm", "layer_norm", "instance_norm", "group_norm")
ZEROS_INSIDE = ("conv", "Conv", "DFT", "STFT", "fft", "GridSample", "grid_sampl")
CHECKED = ("binary_cross_entropy", "Binarizer", "logspace", "linspace")


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


def _other(d):
    if d.apart or (d.name.startswith(("mode[", "onnx.ReduceLogSumExp")) and _odd(d)):
        return True
    of_integers = "embedding_loss[" in d.name and "float" not in d.name
    return d.what.startswith("error") and (of_integers or d.name.startswith("nn.functional.tanhshrink"))


def _cast(d):
    if (d.name.startswith("onnx.OneHot") and d.fill in ("huge", "special")) or ("grid_sampl" in d.name and _odd(d)):
        return True  # places that are floats
    return d.what.startswith("integers") and (_odd(d) or d.fill in ("huge", "special")) and _of(*QUANTIZED)(d)


def _matrix_without_factor(d):
    """Of finite numbers: no error, or NaN in what cholesky_ex leaves where it fails."""
    return _matrices(d) and (_odd(d) or _unchecked(d) or (_of("cholesky_ex")(d) and d.what.startswith("NaN or infinity: nan")))


ROWS = {
    "Sign of zero": lambda d: d.what.startswith("sign of zero") and (d.together or _of(*EXTREMES)(d)),
    "Beyond the range": lambda d: d.fill in ("huge", "tiny") and d.together and (_far(d) or _matrices(d)),
    "Running sums and products": lambda d: _of("cumsum", "cumprod", "CumSum", "CumProd")(d) and _far(d),
    "Zero times infinity": lambda d: _of(*ZEROS_INSIDE)(d) and _odd(d) and d.what.startswith("NaN"),
    "Resizing": lambda d: _of(*RESIZED)(d) and _odd(d),
    "Attention": lambda d: _of("attention", "Attention")(d) and _odd(d),
    "Other definitions": _other,
    "Statistics": lambda d: _of(*STATISTICS)(d) and _odd(d) and d.what.startswith(("NaN or infinity: inf", "NaN or infinity: -inf")),
    "Matrices": _matrix_without_factor,
    "Checks of values": lambda d: _of(*CHECKED)(d) and _unchecked(d),
    "Extremes in ONNX": lambda d: d.name.startswith("onnx.") and _of(*EXTREMES, "Arg", "TopK", "Hardmax")(d) and _odd(d),
    "Casts to integers": lambda d: _cast(d) or (_unchecked(d) and "cannot convert float" in d.what),
}


def row(d):
    """The row that covers a difference; None if none does."""
    return next((name for name, covers in ROWS.items() if covers(d)), None)
