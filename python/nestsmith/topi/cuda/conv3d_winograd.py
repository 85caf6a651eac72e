"""Winograd's form of 3-D convolutions: the size of its tiles."""

__all__: list[str] = []


def _infer_tile_size(data, kernel, layout="NCDHW"):
    """4 where the height of a map divides by 8, else 2."""
    return 4 if int(data.shape[layout.index("H")]) % 8 == 0 else 2
