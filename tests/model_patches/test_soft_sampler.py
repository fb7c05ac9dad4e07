import torch
from stepcache.cache_core.stepping import StepRule
from stepcache.model_patches.soft_sampler import SoftCache
from ..sampling import run
from ..tiny_models import shared

def test_try():
    tiny = shared("flux_dev")
    for threshold in (0, 0.1, 0.3, 1, 5):
        reports = []
        sampler = SoftCache(StepRule(threshold), listener=reports.append).sampler()
        out = run(tiny.patcher, tiny, steps=12, cfg=3.0, sampler=sampler)
        plain = run(tiny.patcher, tiny, steps=12, cfg=3.0)
        print(threshold, torch.equal(out, plain), (out-plain).abs().max(), reports[-1].summary())
        for e in reports[-1].trace: print(e)
        print(reports[-1].log_line(), reports[-1].sigmas)
