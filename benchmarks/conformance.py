"""What the benchmarks of importers share: where the samples are, the options, where the table goes."""

import argparse
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "relay")]


def options(doc):
    """A parser of --only, --jobs and --out."""
    p = argparse.ArgumentParser(description=doc.split("\n")[0])
    p.add_argument("--only", default="")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--out")
    return p


def tell(lines, out):
    """Prints a table whose third line says it all, or writes it to a file and prints that line."""
    text = "\n".join(lines) + "\n"
    print(lines[2] if out else text)
    if out:
        pathlib.Path(out).write_text(text)
