"""Test that decoding gives the same tokens as `generate` of transformers, with the weights of one GPT-2 in both."""

import pytest
import torch

from retable.exchange.families import weights_in_transformers
from retable.generation.beam_search import BeamSearch
from retable.generation.next_token import Trained
from retable.generation.sampling import Greedy, Sampling, seeded
from retable.models.gpt import GPT
from retable.objectives.causal_lm import CausalLM

transformers = pytest.importorskip("transformers")

V, D, L, H, EOS, N = 23, 16, 2, 2, 7, 14
PROMPTS = torch.randint(1, V, (8, 5), generator=torch.Generator().manual_seed(0)).tolist()


@pytest.fixture(scope="module")
def ours() -> Trained:
    torch.manual_seed(2)
    objective = CausalLM(GPT(V, D, L, H, 64, dropout=0.0), V, tie=False, bias=False, reduction="mean")
    for parameter in objective.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.4)
    return Trained(objective)


@pytest.fixture(scope="module")
def theirs(ours):
    config = transformers.GPT2Config(
        vocab_size=V, n_positions=64, n_embd=D, n_layer=L, n_head=H, tie_word_embeddings=False
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    model.load_state_dict(weights_in_transformers(ours.objective))
    return model


def generate(model, eos: int | None = EOS, num_return_sequences: int = 1, **settings) -> list[list[list[int]]]:
    """Return transformers' completions of each prompt, without padding."""
    model.generation_config.eos_token_id = eos
    prompts = torch.tensor(PROMPTS)
    texts = model.generate(
        prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=N, do_sample=False, pad_token_id=EOS,
        num_return_sequences=num_return_sequences, **settings,
    )[:, prompts.shape[1] :].tolist()  # fmt: skip
    cut = [text[: text.index(eos) + 1] if eos in text else text for text in texts]
    return [cut[i : i + num_return_sequences] for i in range(0, len(cut), num_return_sequences)]


def ids(completions) -> list[list[list[int]]]:
    return [[completion.ids for completion in several] for several in completions]


@pytest.mark.parametrize(
    "settings",
    [{}, {"repetition_penalty": 1.3}, {"min_length": 12}, {"min_new_tokens": 6}, {"repetition_penalty": 0.8}],
    ids=str,
)
def test_greedy(ours, theirs, settings):
    found = ids(Greedy(max_new_tokens=N, **settings)(ours, PROMPTS, EOS))
    assert found == generate(theirs, **settings)
    assert min(len(text) for (text,) in found) < N


ENDS = [(ends, penalty, {}) for ends in (True, False, "never") for penalty in (1.0, 0.0, 2.0, -1.0)]
ENDS += [(False, 2.0, {"repetition_penalty": 1.3}), ("never", 1.0, {"min_length": 9}), (True, 0.0, {"min_length": 9})]


@pytest.mark.parametrize(("early_stopping", "length_penalty", "more"), ENDS, ids=str)
def test_beam_search(ours, theirs, early_stopping, length_penalty, more):
    settings = {"num_beams": 4, "num_return_sequences": 3, "early_stopping": early_stopping}
    settings |= {"length_penalty": length_penalty} | more
    found = ids(BeamSearch(max_new_tokens=N, **settings)(ours, PROMPTS, EOS))
    assert found == generate(theirs, **settings)


def test_beam_search_without_an_end_mark(ours, theirs):
    assert ids(BeamSearch(num_beams=4, max_new_tokens=N)(ours, PROMPTS, None)) == generate(theirs, None, num_beams=4)


SAMPLINGS = [{"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.8}, {"temperature": 1.7, "top_k": 9, "top_p": 0.6}]
SAMPLINGS += [{"typical_p": 0.3}, {"typical_p": 0.95}]
SAMPLINGS += [{"typical_p": 0.6, "temperature": 1.7, "top_k": 9, "top_p": 0.9}]


@pytest.mark.parametrize("settings", SAMPLINGS, ids=str)
def test_sampling_draws_by_the_same_scores(theirs, settings):
    scores = 3 * torch.randn((50, V), generator=torch.Generator().manual_seed(0))
    config = transformers.GenerationConfig(do_sample=True, **{"top_k": 0} | settings)
    processors = theirs._get_logits_processor(config)
    assert len(processors) == len(settings)
    torch.testing.assert_close(
        Sampling(seeded(0), max_new_tokens=1, **settings).warp(scores), processors(None, scores.clone())
    )
