"""Detects the kind of a file from its content. The name of the file is ignored."""

import os
import tarfile
import zipfile

__all__ = ["ARCHIVE", "LIBRARY", "LOG", "MODEL", "OBJECT", "NETWORK", "PROGRAM", "SCRIPT", "kind_of", "refuse"]

NETWORK = "a compiled network (model file)"
LIBRARY, OBJECT, ARCHIVE = "a compiled network (shared library)", "an object file", "an archive (.tar)"
PROGRAM, SCRIPT, WEIGHTS = "a program of torch.export (.pt2)", "a TorchScript program", "weights of PyTorch, or a pickled model"
LOG, TENSORS, ARRAYS, MODEL = "a tuning log", "weights (safetensors)", "arrays of NumPy", "an ONNX model"

_HOW = "load them into a model that Python code makes, and give that to nestsmith.compile(model, example_inputs)"
_WAYS = {
    NETWORK: "it is tuned and compiled already: nestsmith.load(path), or `python -m nestsmith run`",
    LIBRARY: "it is tuned and compiled already: nestsmith.load(path), or `python -m nestsmith run`",
    ARCHIVE: "it is tuned and compiled already: nestsmith.load(path), or `python -m nestsmith run`",
    OBJECT: "link it, or load it with runtime.load_module",
    SCRIPT: "load it with torch.jit.load, and give that to nestsmith.compile(model, example_inputs)",
    WEIGHTS: f"the file does not say what is computed: {_HOW}; or write the model with torch.export.save",
    TENSORS: f"the file does not say what is computed: {_HOW}",
    ARRAYS: "they are inputs of a network",
    LOG: "give the model, and this file as its log",
}


def _elf(head, path):
    if head[:4] != b"\x7fELF" or len(head) < 18:
        return None
    return OBJECT if int.from_bytes(head[16:18], "little" if head[5] == 1 else "big") == 1 else LIBRARY


def _zip(head, path):
    if head[:4] != b"PK\x03\x04":
        return None
    try:
        with zipfile.ZipFile(path) as z:
            names = z.namelist()
    except (zipfile.BadZipFile, OSError):
        return WEIGHTS
    inside = {n.partition("/")[2] or n for n in names}
    if any(n.startswith("models/") or n.startswith("serialized_exported_program") for n in inside | set(names)):
        return PROGRAM
    if any(n.startswith("code/") for n in inside):
        return SCRIPT
    return ARRAYS if names and all(n.endswith(".npy") for n in names) else WEIGHTS


def _tar(head, path):
    return ARCHIVE if head[257:262] == b"ustar" or (head[:1] and tarfile.is_tarfile(path)) else None


def _text(head, path):
    return LOG if head.lstrip()[:1] in (b"{", b"#") and b"\0" not in head else None


def _rest(head, path):
    if head[:8] == b"NSMODEL\n":
        return NETWORK
    if head[:6] == b"\x93NUMPY":
        return ARRAYS
    if head[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        return WEIGHTS  # PyTorch before 1.6
    return TENSORS if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < 1 << 32 else None


def kind_of(path):
    """The kind of a file: one of the texts above. An ONNX file has no signature, so that MODEL is the kind of all other files. Raises
    OSError if the file cannot be read."""
    with open(path, "rb") as f:
        head = f.read(512)
    return next(filter(None, (test(head, path) for test in (_elf, _zip, _rest, _text, _tar))), MODEL)


def refuse(path, kind, wanted):
    """A ValueError that says what a file holds and what to do with it."""
    return ValueError(f"{os.fspath(path)} holds {kind}, no {wanted}: {_WAYS.get(kind, 'it is not read here')}")
