"""Architectures of transformers with tiny random configurations through ``nestsmith.compile``: as called by default, and with a cache passed in.

    python benchmarks/transformers_architectures.py [--only PATTERN] [--rows FILE] [--out docs/results/imported-networks.md]

A number is the largest error relative to the largest output, of fresh inputs, over all tensors that the model returns, caches among them. Results
are kept in the file of rows: a run that was interrupted goes on where it ended. `--out` names a page whose section on architectures is
replaced. Ends with status 1 if something is wrong, or more than six architectures are refused.
"""

import argparse
import copy
import json
import pathlib
import re
import sys
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "compiled")]
LIMIT = 1e-5
HEADING = "## Architectures of transformers"
REFUSED = "refused: "


def difference(torch, got, want):
    """The largest error relative to the largest element of its tensor; ValueError if there are other tensors."""
    got, want = ([t for t in torch.utils._pytree.tree_leaves(o) if isinstance(t, torch.Tensor)] for o in (got, want))
    if [(t.shape, t.dtype) for t in got] != [(t.shape, t.dtype) for t in want]:
        raise ValueError("the results have other shapes or types")
    errors = [(g.double() - w.double()).abs().max() / w.double().abs().max().clamp(min=1e-9) for g, w in zip(got, want) if w.numel()]
    return float(max(errors))


def run(torch, model, example, fresh):
    """The error of a call, or why there is no network."""
    import nestsmith

    try:
        network = nestsmith.compile(model, example, target="llvm", verbose=0)
        return difference(torch, network(**copy.deepcopy(fresh)), model(**fresh))
    except (nestsmith.error.OpNotImplemented, ValueError) as e:
        return REFUSED + " ".join(str(e).split())


def step(torch, name, model, tiny):
    """Two calls of a step with a cache, or None where the model has none."""
    given = tiny.inputs_of(name)
    out = model(**given)
    cache = next((k for k in ("cache", "past_key_values", "cache_params") if out.get(k) is not None), None)
    if cache is None:
        return None
    ids = "decoder_input_ids" if "decoder_input_ids" in given else "input_ids"
    return [{**given, ids: torch.randint(3, 99, (2, 1)), cache: copy.deepcopy(out[cache])} for _ in range(2)]


def architecture(name):
    """[error as called by default, error of a step with a cache or None]"""
    import tiny_models as tiny
    import torch

    torch.set_num_threads(1)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = tiny.of_transformers(name)
        default = run(torch, model, tiny.inputs_of(name), tiny.inputs_of(name))
        calls = step(torch, name, model, tiny)
        return [default, calls and run(torch, model, *calls)]


def cell(found):
    return "–" if found is None else "refused" if isinstance(found, str) else f"{found:.1e}"


def _short(why):
    """The beginning of a message, and its remedy."""
    what, ways, remedy = why.partition("Other ways in")
    return f"{what[:150].rstrip()}... {ways}{remedy}" if len(what) > 150 else why


def section(rows):
    import torch
    import transformers

    right = [n for n, (a, b) in rows.items() if not isinstance(a, str) and a < LIMIT and (b is None or not isinstance(b, str) and b < LIMIT)]
    caches = sum(b is not None for _, b in rows.values())
    lines = [
        HEADING, "",
        f"{len(right)} of {len(rows)} architectures are right as called by default, and with a cache passed in where they have one "
        f"({caches}; –: none): within {LIMIT:.0e} of the largest output. Tiny random configurations, "
        f"PyTorch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}. "
        "Written by `benchmarks/transformers_architectures.py`.", "",
        "| class | as called | with a cache |", "|---|---|---|", *(f"| {n} | {cell(a)} | {cell(b)} |" for n, (a, b) in rows.items()),
    ]  # fmt: skip
    why = {n: next((x for x in pair if isinstance(x, str)), None) for n, pair in rows.items()}
    refused = [f"* {n}: {_short(w.removeprefix(REFUSED))}" for n, w in why.items() if w]
    return "\n".join([*lines, *(["", "Refused:", "", *refused] if refused else [])]) + "\n", right


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--only", default="")
    p.add_argument("--rows", default=str(ROOT / "build" / "architectures.jsonl"))
    p.add_argument("--out")
    a = p.parse_args()
    from tiny_models import TRANSFORMERS

    file = pathlib.Path(a.rows)
    known = dict(json.loads(line) for line in file.read_text().splitlines()) if file.exists() else {}
    for name in [n for n in TRANSFORMERS if re.search(a.only, n) and n not in known]:
        known[name] = architecture(name)
        print(name, *map(cell, known[name]), flush=True)
        with file.open("a") as f:
            f.write(json.dumps([name, known[name]]) + "\n")
    rows = {n: known[n] for n in TRANSFORMERS if n in known and re.search(a.only, n)}
    text, right = section(rows)
    print(text)
    if a.out:
        page = pathlib.Path(a.out)
        page.write_text(page.read_text().split(HEADING)[0].rstrip() + "\n\n" + text)
    wrong = [n for n, pair in rows.items() if any(isinstance(x, float) and not x < LIMIT for x in pair)]
    return 1 if wrong or len(rows) - len(right) > 6 else 0


if __name__ == "__main__":
    sys.exit(main())
