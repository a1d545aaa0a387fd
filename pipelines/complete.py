"""Autocomplete: `python -m pipelines.complete cell=grammar/gpt-1 "prompt=the old"`, with `decoding=beam
decoding.num_return_sequences=4` for alternatives."""

import sys

from hydra.utils import instantiate
from omegaconf import DictConfig

from pipelines.entry import stage
from pipelines.prompts import encode, open_cell, report_unknown
from retable.tokenizers.tokenizer import Tokenizer


@stage
def complete(cfg: DictConfig) -> None:
    from retable.generation.next_token import next_token
    from retable.generation.sampling import TokenByToken

    _, system, path = open_cell(cfg)
    tokenizer, model = Tokenizer.load(path), next_token(system)
    strategy, prompt, eos = instantiate(cfg.decoding), str(cfg.prompt), tokenizer.boundary
    report_unknown(tokenizer, [prompt])
    (begun,) = encode(tokenizer, [prompt])
    if isinstance(strategy, TokenByToken) and strategy.num_return_sequences == 1:
        print(prompt, end="", flush=True)
        ids, ended = begun[1:], False
        shown = tokenizer.decode(ids)
        for token in strategy.stream(model, begun, eos):
            ended = token == eos
            if not ended:
                ids.append(token)
                text = tokenizer.decode(ids)
                if not text.endswith("\ufffd"):  # in the middle of a character
                    print(text[len(shown) :], end="", flush=True)
                    shown = text
        print()
        if ended and len(ids) == len(begun) - 1:
            print("The model takes this for the end of its text; write more, or another prompt.", file=sys.stderr)
    else:
        for ids, log_prob in strategy(model, [begun], eos)[0]:
            print(f"{log_prob:9.3f}  {tokenizer.decode(begun[1:] + [token for token in ids if token != eos])}")


if __name__ == "__main__":
    complete()
