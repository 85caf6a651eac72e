"""Template tuning: schedules written by hand with open choices, which tuners make by measuring."""

from . import task
from .task import ConfigEntity, ConfigSpace
