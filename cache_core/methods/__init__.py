"""The methods people know by name, one short file each."""

from .dbcache import dbcache
from .dpcache import dpcache
from .easycache import easycache
from .first_block import first_block_cache
from .magcache import magcache
from .meancache import meancache
from .seacache import seacache
from .softcache import softcache
from .spectrum import spectrum
from .taylorseer import taylorseer
from .teacache import teacache

__all__ = [
    "dbcache",
    "dpcache",
    "easycache",
    "first_block_cache",
    "magcache",
    "meancache",
    "seacache",
    "softcache",
    "spectrum",
    "taylorseer",
    "teacache",
]
