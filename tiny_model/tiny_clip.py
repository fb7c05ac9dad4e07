"""A text encoder without weights: every known word becomes a one-hot token.

The embedding table of the words is the transformer's own first text layer. Wrapped in ComfyUI's CLIP class,
so the stock prompt nodes work on it.
"""

from __future__ import annotations

import logging
import re
from functools import partial

import torch
from comfy.sd import CLIP
from comfy.sd1_clip import token_weights
from comfy.supported_models_base import ClipTarget
from torch import Tensor, nn

from .vocabulary import Vocabulary

PROMPT_TOKENS = 10  # always this many, so that prompt and negative prompt run as one batch
TEXT_WIDTH = 64  # columns of that layer
PADDING_SLOT, NULL_SLOT = 0, 1

Token = tuple[int, float]  # text slot, weight


class WordTokenizer:
    """Prompt -> the null word, up to nine known words, padding. Understands `(word:1.3)` weights."""

    def __init__(self, vocabulary: Vocabulary, embedding_directory=None, tokenizer_data=None):
        self.vocabulary = vocabulary

    def tokenize_with_weights(
        self, text: str, return_word_ids: bool = False, **options
    ) -> dict[str, list[list[Token]]]:
        weighted = [
            (word, weight)
            for part, weight in token_weights(text.lower(), 1.0)
            for word in re.findall(r"[^\W\d_]+", part)
        ]
        self._report_unknown([word for word, _ in weighted])
        chosen: dict[int, float] = {}
        for word, weight in weighted:
            slot = self.vocabulary.slot(word)
            if slot is not None:
                chosen.setdefault(slot, weight)
        tokens = [(NULL_SLOT, 1.0), *list(chosen.items())[: PROMPT_TOKENS - 1]]
        tokens += [(PADDING_SLOT, 1.0)] * (PROMPT_TOKENS - len(tokens))
        if return_word_ids:
            return {"words": [[(*token, position) for position, token in enumerate(tokens)]]}
        return {"words": [tokens]}

    def _report_unknown(self, words: list[str]) -> None:
        unknown = self.vocabulary.unknown(words)
        if unknown:
            logging.info(
                "Tiny CLIP ignores %s. It knows: %s.",
                ", ".join(dict.fromkeys(unknown)),
                ", ".join(self.vocabulary.known),
            )

    def state_dict(self) -> dict:
        return {}


class OneHotEncoder(nn.Module):
    """Has no parameters; the methods are those ComfyUI calls on a text encoder."""

    def __init__(self, dtype=None, device=None, model_options=None):
        super().__init__()
        self.dtypes = {torch.float32}

    def set_clip_options(self, options: dict) -> None:
        """Nothing to set: there are no layers to stop at."""

    def reset_clip_options(self) -> None:
        """Nothing to reset."""

    def load_sd(self, state_dict: dict) -> tuple[list, list]:
        """No weights: nothing missing, nothing unexpected."""
        return [], []

    def encode_token_weights(self, tokens: dict[str, list[list[Token]]]) -> tuple[Tensor, None, dict]:
        """Rows with the weight in the word's column: (prompts, PROMPT_TOKENS, TEXT_WIDTH); no pooled output."""
        prompts = tokens["words"]
        encoded = torch.zeros(len(prompts), PROMPT_TOKENS, TEXT_WIDTH)
        for row, prompt in enumerate(prompts):
            for position, (slot, weight, *_) in enumerate(prompt):
                encoded[row, position, slot] = weight
        return encoded, None, {}


def make_clip(vocabulary: Vocabulary) -> CLIP:
    """A ComfyUI CLIP object for the words of `vocabulary`."""
    return CLIP(ClipTarget(partial(WordTokenizer, vocabulary), OneHotEncoder), parameters=0)
