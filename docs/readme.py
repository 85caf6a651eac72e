"""Writes the table of results in README.md from the tables in docs/results: `python docs/readme.py`."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "README.md"
RESULTS = {"float32": "gpu-peers-nvidia-h100.md", "TF32": "gpu-peers-tf32-nvidia-h100.md", "float16": "gpu-peers-float16-nvidia-h100.md"}
NETWORKS = ("resnet18", "resnet50", "vgg16", "mobilenet_v1", "inception_v3")
HEAD = """| Network | Precision | nestsmith | PyTorch | Inductor | speed-up | Device | Date |
|---|---|---|---|---|---|---|---|"""


def rows(name):
    """(device, rows of the table as dictionaries) of a page of results."""
    text = (ROOT / "docs" / "results" / name).read_text()
    lines = [[c.strip() for c in line.strip("| ").split("|")] for line in text.splitlines() if line.startswith("|")]
    return re.search(r"on (NVIDIA \w+)", text)[1], [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def table():
    """The table as it has to be. Milliseconds are medians; the speed-up is over the faster peer."""
    out = [HEAD]
    for precision, name in RESULTS.items():
        device, found = rows(name)
        for row in found:
            if row["Network"] not in NETWORKS:
                continue
            ms = {k: row[k].split()[0] for k in row if k in ("nestsmith", "PyTorch, CUDA graph", "PyTorch, channels last", "Inductor")}
            torch = min(ms["PyTorch, CUDA graph"], ms["PyTorch, channels last"], key=float)
            date = re.findall(r"\d{4}-\d\d-\d\d", row["tuning"])[-1]
            cells = row["Network"], precision, ms["nestsmith"], torch, ms["Inductor"], row["faster than the best of them"], device, date
            out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out)


def page(text):
    return re.sub(r"(?s)(<!-- results -->\n).*?(<!-- end of results -->)", lambda m: f"{m[1]}{table()}\n{m[2]}", text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
