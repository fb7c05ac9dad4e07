"""The methods people know by name, one short file each."""

from .first_block import first_block_cache
from .teacache import teacache

__all__ = ["first_block_cache", "teacache"]
