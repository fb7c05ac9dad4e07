"""The words of the two tiny models, and the node that makes a CLIP of them."""

import pytest

from devtools import bench_stepcache
from stepcache_tiny_model.nodes_tiny import TRANSFORMER_FILES, LoadTinyCLIP
from stepcache_tiny_model.training.clips import PANS, VIDEO_WORDS
from stepcache_tiny_model.training.scenes import WORDS
from stepcache_tiny_model.vocabulary import SYNONYMS, Vocabulary


def clip(**inputs):
    return LoadTinyCLIP.PREPARE_CLASS_CLONE(None).execute(**inputs).result[0]


def slots(clip, text) -> set[int]:
    encoded = clip.encode_from_tokens(clip.tokenize(text))
    assert encoded.shape == (1, 10, 64)
    return set(encoded[0].argmax(-1).tolist()) - {0}


@pytest.mark.parametrize(("model", "words"), [("picture", WORDS), ("video", VIDEO_WORDS)])
def test_each_file_has_the_words_that_it_was_trained_on(model, words):
    assert Vocabulary.of_weights(TRANSFORMER_FILES[model]).words == words


def test_the_words_of_pans_come_last_so_that_others_mean_the_same_to_both():
    assert VIDEO_WORDS[: len(WORDS)] == WORDS and set(VIDEO_WORDS[len(WORDS) :]) == set(PANS)
    assert set(bench_stepcache.PANS) == set(PANS)
    assert slots(clip(model="video"), "sunset sea boat") == slots(clip(), "sunset sea boat")


def test_the_node_of_old_workflows_is_that_of_pictures():
    schema = LoadTinyCLIP.define_schema()
    assert schema.node_id == "StepCacheTinyCLIP"
    (model,) = schema.inputs
    assert (model.id, model.optional, model.default, model.options) == ("model", True, "picture", ["picture", "video"])
    assert slots(clip(), "sea right") == slots(clip(model="picture"), "sea right") == slots(clip(), "sea")


@pytest.mark.parametrize("pan", PANS)
def test_pans_and_their_synonyms_are_words_of_the_video_model_only(pan):
    words = [pan, *SYNONYMS[pan].split()]
    expected = slots(clip(model="video"), "sea") | {VIDEO_WORDS.index(pan)}
    assert all(slots(clip(model="video"), f"sea, camera panning {word}") == expected for word in words)
    assert Vocabulary(WORDS).unknown(words) == words


def test_no_synonym_has_two_meanings():
    spoken = [word for known, others in SYNONYMS.items() for word in {known, *others.split()}]
    assert len(spoken) == len(set(spoken)) and set(SYNONYMS) == set(VIDEO_WORDS[2:])
