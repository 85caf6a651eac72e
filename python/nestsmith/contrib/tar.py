"""Archives of object files."""

import os
import tarfile

__all__ = ["normalize_file_list_by_unpacking_tars", "tar", "untar"]


def tar(output, files, options=None):
    """Packs files into an archive, without their directories. Raises `ValueError` if two have the same name."""
    files = [files] if isinstance(files, str) else list(files)
    names = [os.path.basename(f) for f in files]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ValueError(f"two files have the same name {twice[0]!r}; an archive holds each name once")
    with tarfile.open(output, "w") as archive:
        for path, name in zip(files, names):
            archive.add(path, arcname=name)


tar.output_format = "tar"  # type: ignore[attr-defined]


def untar(tar_file, directory):
    """Unpacks an archive, a path or an open file; names that lead out of `directory` are refused."""
    opened = {"fileobj": tar_file} if hasattr(tar_file, "read") else {"name": tar_file}
    with tarfile.open(**opened) as archive:
        for member in archive.getmembers():
            if not member.isfile() or os.path.basename(member.name) != member.name:
                raise ValueError(f"{tar_file}: entry {member.name!r} is not a plain file name")
        archive.extractall(directory, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))


def normalize_file_list_by_unpacking_tars(temp, file_list):
    """The files, archives among them replaced by what is in them, unpacked into folders of ``temp``, a `utils.TempDirectory`."""
    out = []
    for number, path in enumerate(file_list):
        if not path.endswith(".tar"):
            out.append(path)
            continue
        folder = temp.relpath(f"tar{number}")
        os.makedirs(folder, exist_ok=True)
        untar(path, folder)
        out += [os.path.join(folder, f) for f in sorted(os.listdir(folder))]
    return out
