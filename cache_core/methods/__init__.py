"""The methods people know by name, one short file each."""

from .calibrating import computing_all, measuring, reusing_once
from .dbcache import dbcache
from .dpcache import dpcache
from .easycache import easycache
from .first_block import first_block_cache
from .magcache import magcache
from .meancache import meancache
from .seacache import seacache
from .softcache import softcache
from .spectrum import spectrum
from .stepcache import stepcache
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
    "measuring",
    "reusing_once",
    "seacache",
    "softcache",
    "spectrum",
    "stepcache",
    "taylorseer",
    "teacache",
]
