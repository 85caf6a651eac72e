"""Neural-network operators, one file per kind: for each operator its entry in the table and the builder that users call."""

from ...expr import Constant, Expr, const  # noqa: F401  (as TVM has them here)
from . import activation, convolution, more, normalisation, pool, product, shape, util, winograd
from .activation import *  # noqa: F401,F403
from .convolution import *  # noqa: F401,F403
from .more import *  # noqa: F401,F403
from .normalisation import *  # noqa: F401,F403
from .pool import *  # noqa: F401,F403
from .product import *  # noqa: F401,F403
from .shape import *  # noqa: F401,F403
from .winograd import *  # noqa: F401,F403

__all__ = [*activation.__all__, *convolution.__all__, *more.__all__, *normalisation.__all__, *pool.__all__,
           *product.__all__, *shape.__all__, *winograd.__all__]  # fmt: skip
