"""The system's C compiler: compiling, linking, cross compiling."""

import os
import shlex
import shutil
import subprocess

from nestsmith import _core

__all__ = ["compile_object", "compiler_for", "create_executable", "create_shared", "create_staticlib", "cross_compiler",
           "get_cc", "get_target_by_dump_machine"]


def get_cc():
    """The C compiler's command: $CC, else cc, gcc or clang, whichever is installed; None if there is none."""
    return os.environ.get("CC") or next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)


def _run(command):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              check=False)
    except FileNotFoundError:
        raise RuntimeError(f"program {command[0]!r} is not installed; the command was: {shlex.join(command)}") from None
    if done.returncode != 0:
        raise RuntimeError(f"command failed with status {done.returncode}: "
                           f"{shlex.join(command)}\n{done.stdout.decode(errors='replace')}")


def _words(cc):
    cc = cc or get_cc()
    if not cc:
        raise RuntimeError("no C compiler was found; install gcc (`apt install gcc libc6-dev`) or set CC")
    return shlex.split(cc)


def _link(output, objects, options, cc, flags):
    objects = [objects] if isinstance(objects, str) else list(objects)
    _run([*_words(cc), *flags, "-o", os.fspath(output), *map(os.fspath, objects), *(options or [])])


def create_shared(output, objects, options=None, cc=None):
    """Links objects (or compiles C sources) into a shared library.

    Raises `RuntimeError` with the compiler's output and the exact command.
    """
    _link(output, objects, options, cc, ["-shared", "-fPIC", "-O2"])


create_shared.output_format = "so"  # type: ignore[attr-defined]


def create_executable(output, objects, options=None, cc=None):
    """Links objects into a program."""
    _link(output, objects, options, cc, [])


def create_staticlib(output, inputs, ar=None):
    """Packs objects into a static library. Raises `RuntimeError` with the archiver's output."""
    inputs = [inputs] if isinstance(inputs, str) else list(inputs)
    _run([ar or "ar", "qcs", os.fspath(output), *map(os.fspath, inputs)])


create_staticlib.output_format = "a"  # type: ignore[attr-defined]


def get_target_by_dump_machine(compiler):
    """A function that returns the triple for which a compiler makes programs, None if it does not say."""

    def triple():
        try:
            done = subprocess.run([*_words(compiler), "-dumpmachine"], capture_output=True, text=True, check=False)
        except OSError:
            return None
        return done.stdout.strip() or None

    return triple


def machine(cc):
    """The machine for which a compiler makes programs ("x86_64"); "" if it does not say."""
    return (get_target_by_dump_machine(cc)() or "").split("-")[0]


def compile_object(output, source, options=None, cc=None, target=None):
    """Compiles one C file into an object file: a program of the engine's `target` as it is compiled for tuning, for the
    processor that the target names or, if the compiler is one of this machine, the processor at hand; without a target what
    every processor understands.
    """
    flags = ["-fPIC", "-w"]
    if target is not None:
        arch = machine(cc)
        flags = _core.cc_flags(target, shlex.join(_words(cc)), None if arch == os.uname().machine else arch)
    _run([*_words(cc), *flags, "-c", "-o", os.fspath(output), os.fspath(source), *(options or [])])


def cross_compiler(compile_func, options=None, output_format=None, get_target_triple=None, add_files=None):
    """A link function for `export_library` that uses another compiler.

    Parameters
    ----------
    compile_func : str or callable
        The compiler's command (``"aarch64-linux-gnu-gcc"``), or a function like `create_shared`.
    options, add_files : list of str, optional
        Added to every call.
    output_format : str, optional
        "so" or "tar".
    """
    given = list(options or []) + list(add_files or [])
    name = compile_func if isinstance(compile_func, str) else None

    def link(output, objects, options=None, **kwargs):
        if name is not None:
            create_shared(output, objects, given + list(options or []), cc=name)
        else:
            compile_func(output, objects, options=given + list(options or []), **kwargs)

    link.output_format = output_format or getattr(compile_func, "output_format", "so")
    link.compiler = name or getattr(compile_func, "compiler", None)
    link.get_target_triple = get_target_triple
    return link


def compiler_for(target, fcompile):
    """The command that compiles C for a target; None when only `fcompile` itself can (it then gets the C file)."""
    named = getattr(fcompile, "compiler", None)
    if callable(named):
        named = named()
    if named:
        return named
    triple = dict(word.partition("=")[::2] for word in str(target).split()).get("-mtriple", "")
    if not triple or triple.split("-")[0] == os.uname().machine:
        return get_cc()
    if shutil.which(f"{triple}-gcc"):
        return f"{triple}-gcc"
    return f"clang --target={triple}" if shutil.which("clang") else None
