"""Which line is likeliest? `python -m pipelines.rank cell=ptb/kn5-1 'sentences=["grey tape","great ape"]'`"""

import numpy as np
from omegaconf import DictConfig

from pipelines.entry import stage
from pipelines.prompts import open_cell, report_unknown
from retable.errors import UsageError
from retable.systems import LanguageModel
from retable.tokenizers.tokenizer import Tokenizer


@stage
def rank(cfg: DictConfig) -> None:
    sentences = [str(sentence) for sentence in cfg.sentences]
    if not sentences:
        raise UsageError('there is nothing to rank; write \'sentences=["grey tape","great ape"]\'')
    cell, system, path = open_cell(cfg)
    if not isinstance(system, LanguageModel):
        raise UsageError(f"{cell} gives no probabilities of text; take the cell of a language model")
    tokenizer = Tokenizer.load(path)
    report_unknown(tokenizer, sentences)
    if cfg.end:
        ids = [ids for ids, _, _ in tokenizer.encode_units([[sentence] for sentence in sentences], documents=False)]
    else:
        ids = tokenizer.encode_batch(sentences)
    if not all(ids):
        raise UsageError("one of the sentences is empty; write end=true, which counts its end, or leave it out")
    log_probs = [system.log_prob(np.array(each)).sum() for each in ids]
    print(f"{'log-prob':>10}{'a token':>10}{'tokens':>8}  sentence")
    for i in np.argsort(np.negative(log_probs), kind="stable"):
        n = len(ids[i])
        print(f"{log_probs[i]:10.3f}{log_probs[i] / n:10.3f}{n:8}  {sentences[i]}")


if __name__ == "__main__":
    rank()
