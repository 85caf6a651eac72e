"""Library files, and the one place where they are checked before anything of them is used.

A library is a shared object. Its variable ``nestsmith_blob`` holds JSON text, a zero byte and the seal: ``nestsmith seal
1``, 8 bytes of length and 32 of SHA-256 of the whole file, in which these 40 count as zeros. An archive of objects has the
seal in a member of its own in front, ``nestsmith.seal``. `seal` fills it in once the file is linked; while it is zero, as in
a library that was linked by hand from an archive's objects, only the headers can be checked. Files of earlier versions
have no seal.

A file is read once, into memory: what was checked is what is used.
"""

import hashlib
import io
import json
import os
import pathlib
import re
import tarfile

from .. import _core
from ..contrib import tar
from ..error import TVMValueError

__all__ = ["Library", "MEMBER", "ROOM", "is_archive", "read", "read_archive", "seal"]

_MARK, _OPEN = b"nestsmith seal 1", bytes(40)
ROOM = _MARK + _OPEN  # a seal that is not filled in
MEMBER = "nestsmith.seal"
OWN = "nestsmith_blob__"  # with the name of a function behind it: the blob of one of several objects
_ELF = b"\x7fELF"


def is_archive(data):
    """Whether the bytes are those of an archive of objects."""
    return data[257:262] == b"ustar"


def _place(data):
    """Where the seal begins; -1 if there is none."""
    at = data.find(_MARK)
    return at if not is_archive(data) or at < data.find(_ELF) else -1  # the objects have room for one, too


def _sum(data, at):
    begin = at + len(_MARK)
    digest = hashlib.sha256(memoryview(data)[:begin])
    digest.update(_OPEN)
    digest.update(memoryview(data)[begin + len(_OPEN) :])
    return len(data).to_bytes(8, "little") + digest.digest()


def seal(path):
    """Fills in the seal of a library or archive that was just written; other files are left as they are."""
    data = pathlib.Path(path).read_bytes()
    at = _place(data)
    if at < 0 or (not is_archive(data) and not data.startswith(_ELF)):
        return
    with open(path, "r+b") as f:
        f.seek(at + len(_MARK))
        f.write(_sum(data, at))


def _damaged(path, why):
    return TVMValueError(f"{path!r} is damaged: {why}. Copy or export it again; what changes a library afterwards "
                         "(strip, patchelf) belongs into export_library's fcompile")


def _load(path):
    """The bytes of a file whose seal is right, zero or missing; and whether it is there."""
    data = pathlib.Path(path).read_bytes()
    at = _place(data)
    found = data[at + len(_MARK) : at + len(ROOM)] if at >= 0 else b""
    if at >= 0 and found != _OPEN and found != _sum(data, at):
        length = int.from_bytes(found[:8], "little")
        why = f"it has {len(data)} bytes instead of {length}" if length != len(data) else "its checksum is wrong"
        raise _damaged(path, why)
    return data, at >= 0


class Library:
    """A checked library: `path`, the bytes of the shared object (`image`), the JSON of its blob (`blob`)."""

    def __init__(self, path, image, blob):
        self.path, self.image, self.blob = path, image, blob

    def blobs(self):
        """The JSON of all blobs: of each object that was linked into the library, the plain one first."""
        own = re.findall(rb"\0%b(\w+?)_size\0" % OWN.encode(), self.image)
        names = [f"{OWN}{n.decode()}" for n in dict.fromkeys(own)]
        found = [json.loads(self.variable(n, self.size_of(n))) for n in names] or [self.blob]
        return sorted(found, key=lambda b: b != self.blob)

    def size_of(self, name):
        """The size of a blob."""
        return int.from_bytes(self.variable(f"{name}_size", 8), "little")

    def variable(self, name, size=None):
        """The bytes of an exported variable; `size`: where the file does not tell. ValueError if it is not there."""
        found = _core.object_variable(self.image, name)
        if not found or found[0] + (size or found[1]) > len(self.image):
            if b"__tvm_" in self.image:
                raise TVMValueError(f"{self.path!r} was compiled by TVM and needs TVM's runtime; build the network again with relay.build, "
                                    "which takes its parameters (.params) and tuning logs")  # fmt: skip
            raise TVMValueError(f"{self.path!r} was not written by export_library: it has no symbol {name}")
        return self.image[found[0] : found[0] + (size or found[1])]


def read(path, name=""):
    """The library in a file, checked: seal, headers, processor.

    Parameters
    ----------
    path : str
    name : str, optional
        What it is called in messages, if not by its path.

    Raises
    ------
    TVMValueError
        If the file is damaged or something else.
    TVMError
        If this machine or its processor cannot run it.
    """
    name = name or os.fspath(path)
    image, sealed = _load(path)
    _core.object_check(image, repr(name))
    out = Library(name, image, None)
    size = out.size_of("nestsmith_blob")
    try:
        out.blob = json.loads(out.variable("nestsmith_blob", size))
        intact = isinstance(out.blob, dict) and (sealed or not out.blob.get("sealed"))
    except (ValueError, RecursionError):
        intact = False
    if not intact:
        raise _damaged(name, "its description is not readable")
    return out


def read_archive(path, folder):
    """Unpacks an archive of objects into a folder and returns their paths. Raises TVMValueError if it is damaged."""
    data, sealed = _load(path)
    try:
        tar.untar(io.BytesIO(data), folder)
    except (tarfile.TarError, EOFError, OSError, ValueError) as e:
        raise _damaged(path, f"it is no archive of objects ({e})") from None
    names = sorted(os.listdir(folder))
    if MEMBER in names and not sealed:
        raise _damaged(path, "its seal is not readable")
    objects = [os.path.join(folder, f) for f in names if f != MEMBER]
    if not objects:
        raise _damaged(path, "it is no archive of objects")
    return objects
