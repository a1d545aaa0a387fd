"""Compare decoding speed with transformers' `generate`: `python -m benchmarks.generate`.

The model is a GPT-2 of 6 layers of width 256 and 10,000 types, with the same weights on both sides. Prompts have 16
tokens; 128 tokens are generated, and no end mark stops them. Both sides cache keys and values and run in turns in one
process. Speeds are medians. The last column shows whether both sides generate the same tokens. transformers is in the
extra `dev`.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from functools import partial

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.ratio import Ratio, at_least_one, command_line, show
from retable.generation.beam_search import BeamSearch
from retable.generation.next_token import Trained
from retable.generation.sampling import Greedy
from retable.generation.strategy import Strategy
from retable.models.gpt import GPT
from retable.objectives.causal_lm import CausalLM

V, D, LAYERS, HEADS, PROMPT = 10_000, 256, 6, 8, 16
CASES = {"greedy, batch 1": (1, 1), "greedy, batch 8": (8, 1), "beam 4, batch 1": (1, 4), "beam 4, batch 8": (8, 4)}
NAMES = {
    "embedding": "wte",
    "positions": "wpe",
    "norm": "ln_f",
    "attention_norm": "ln_1",
    "attention.query_key_value": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "feed_forward_norm": "ln_2",
    "expand": "mlp.c_fc",
    "contract": "mlp.c_proj",
}


def build(length: int) -> tuple[Trained, GPT2LMHeadModel]:
    """Return both sides; the weights are so large that rounding does not change the most likely token."""
    torch.manual_seed(1)
    objective = CausalLM(GPT(V, D, LAYERS, HEADS, length, 0.0), V, tie=True, bias=False, reduction="mean")
    weights = {}
    for name, parameter in objective.model.named_parameters():
        layer, _, part = name.rpartition(".")
        block, number, layer = layer.split(".", 2) if layer.startswith("blocks") else ("", "", layer)
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.1)
        transposed = block and parameter.ndim == 2  # the layers in transformers' blocks have transposed weights
        weights[f"{f'h.{number}.' if block else ''}{NAMES[layer]}.{part}"] = parameter.T if transposed else parameter
    config = GPT2Config(vocab_size=V, n_positions=length, n_embd=D, n_layer=LAYERS, n_head=HEADS,
                        bos_token_id=None, eos_token_id=None)  # fmt: skip
    peer = GPT2LMHeadModel(config).eval()
    peer.transformer.load_state_dict(weights)
    return Trained(objective), peer


def our_decoding(model: Trained, prompts: torch.Tensor, beams: int, n: int) -> list[list[int]]:
    strategy: Strategy = Greedy(n) if beams == 1 else BeamSearch(beams, n)
    return [best.ids for best, *_ in strategy(model, prompts.tolist(), None)]


def their_decoding(model: GPT2LMHeadModel, prompts: torch.Tensor, beams: int, n: int) -> list[list[int]]:
    settings = {"max_new_tokens": n, "num_beams": beams, "do_sample": False, "pad_token_id": 0}
    texts = model.generate(prompts, attention_mask=torch.ones_like(prompts), **settings)
    return texts[:, PROMPT:].tolist()


def ratios(arguments: argparse.Namespace) -> Iterator[Ratio]:
    own, peer = build(PROMPT + arguments.tokens)
    sides = [partial(our_decoding, own), partial(their_decoding, peer)]
    for name in arguments.systems:
        rows, beams = CASES[name]
        prompts = torch.randint(1, V, (rows, PROMPT), generator=torch.Generator().manual_seed(2))
        first, second = (decode(prompts, beams, arguments.tokens) for decode in sides)  # also warms up
        seconds: list[list[float]] = [[], []]
        for _ in range(arguments.rounds):
            for spent, decode in zip(seconds, sides, strict=True):
                start = time.perf_counter()
                decode(prompts, beams, arguments.tokens)
                spent.append(time.perf_counter() - start)
        speeds = [rows * arguments.tokens / statistics.median(spent) for spent in seconds]
        yield Ratio(name, "transformers", "tokens/s", *speeds, "the same tokens" if first == second else "OTHER TOKENS")


def main() -> None:
    parser = command_line(__doc__, [*CASES], rounds=5)
    parser.add_argument("--tokens", type=at_least_one, default=128)
    show(parser, ratios)


if __name__ == "__main__":
    main()
