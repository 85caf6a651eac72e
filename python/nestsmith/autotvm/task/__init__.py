"""Tasks: templates, their configurations, and which one a program gets."""

from . import space
from .space import ConfigEntity, ConfigSpace, FallbackConfigEntity
