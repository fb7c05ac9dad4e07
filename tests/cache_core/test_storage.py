"""Where tensors are kept. The meta device stands in for one that is not the CPU."""

import pytest
import torch

from stepcache.cache_core.storage import Storage

FAR = torch.empty(2, device="meta")


@pytest.mark.parametrize("storage", [Storage("gpu"), Storage("auto"), Storage("auto", lambda device: 1.0)])
def test_kept_where_it_was_computed(storage):
    assert storage.keep(FAR) is FAR


def test_a_tensor_in_main_memory_is_not_copied():
    near = torch.ones(2)
    assert Storage("cpu").keep(near) is near and Storage("auto", lambda device: 0.0).keep(near) is near


def test_a_full_device_is_left_when_automatic():
    with pytest.raises(NotImplementedError, match="meta"):  # the move was tried; there is no data to move
        Storage("auto", lambda device: 0.0).keep(FAR)
