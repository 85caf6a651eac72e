"""The templates that come with the package, one module per family: importing them registers them."""

from . import dense, depthwise, direct, nchwc, spatial_pack, winograd  # noqa: F401
