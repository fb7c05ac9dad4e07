"""The methods people know by name, one short file each."""

from .dbcache import dbcache
from .dpcache import dpcache
from .easycache import easycache
from .first_block import first_block_cache
from .magcache import magcache
from .meancache import meancache
from .seacache import seacache
from .spectrum import spectrum
from .stepcache import computing_all, stepcache
from .taylorseer import taylorseer
from .teacache import teacache

__all__ = [
    "computing_all",
    "dbcache",
    "dpcache",
    "easycache",
    "first_block_cache",
    "magcache",
    "meancache",
    "seacache",
    "spectrum",
    "stepcache",
    "taylorseer",
    "teacache",
]
