"""What to say where the engine cannot be loaded: the message of `import nestsmith` and a line of the doctor."""

import os
import pathlib
import re
import sys

__all__ = ["asked_by_doctor", "explain"]

AGAIN = "build nestsmith for this machine: `make ext` in a clone, else install the package again from its sources"


def explain(error):
    """One line for an ImportError of the engine: what is missing and the command that brings it."""
    text = " ".join(str(error).split())
    library = re.search(r"(lib\S+\.so[.\d]*): cannot open shared object file", text)
    if library:
        title, remedy = (" (cJSON)", "apt-get install libcjson1") if library[1].startswith("libcjson") else ("", AGAIN)
        return f"nestsmith needs the library {library[1]}{title}, which is not installed: {remedy}"
    if getattr(error, "name", None) == "numpy":
        return "nestsmith needs NumPy, which is not installed; install it: pip install numpy"
    if getattr(error, "name", None) == "nestsmith._core" or "cannot import name '_core'" in text:
        built = sorted(p.name for p in pathlib.Path(__file__).parent.glob("_core*.so"))
        what = f"was built for another Python ({', '.join(built)})" if built else "is not built"
        return f"the engine of nestsmith {what}, this is {sys.implementation.cache_tag}: {AGAIN}"
    return f"the engine of nestsmith cannot be loaded ({text}): {AGAIN}"


def asked_by_doctor():
    """Whether the package is being imported for the doctor, which says what is missing itself."""
    if sys.argv[:1] == ["-m"] and any(a in ("nestsmith.doctor", "-mnestsmith.doctor") for a in sys.orig_argv):
        return True
    command = sys.argv[:1] == ["-m"] and any(a in ("nestsmith", "-mnestsmith") for a in sys.orig_argv)
    return (command or os.path.basename(sys.argv[0]) == "nestsmith") and sys.argv[1:2] in (["doctor"], ["--version"], ["--help"])
