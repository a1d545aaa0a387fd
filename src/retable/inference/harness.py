"""Language models of cells as models of lm-evaluation-harness, an extra: `pip install 'retable[harness]'`.

    >>> import lm_eval
    >>> from retable.inference.harness import CellLM
    >>> lm_eval.simple_evaluate(CellLM("pretrain/ptb/kn5-1"), tasks=["blimp"])

Importing this module makes the name `retable` known to the harness: `model="retable", model_args={"cell": …}`.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

from retable.core.errors import UsageError
from retable.evaluation.scoring import Scorer
from retable.inference.language import Language
from retable.inference.load import load

MAX_GEN_TOKS = 256  # the harness's own, where a task says none


@register_model("retable")
class CellLM(LM):
    """Any causal system, n-gram models and mixtures included, or a T5 or prefix LM, whose inputs are the contexts.

    cell: as for `retable.load`.
    convention: puts a text as the training corpus has it, such as `retable.corpora.conventions.text8`; a token that has
        part in context and continuation is of the continuation, as in our own benchmarks.
    settings: of the harness, such as its batch_size, which change nothing here: texts share batches by their tokens.
    """

    def __init__(self, cell: str, device: str = "cpu", convention: Callable[[str], str] | None = None, **settings: Any):
        super().__init__()
        system = load(cell, device)
        if not isinstance(system, Language) or "score" not in system.can:
            raise UsageError(f"{cell} gives no probabilities of text; take the cell of a language model")
        self._system, self._scorer = system, Scorer(system.system, system.tokenizer, convention)

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """Of each continuation after its context, and whether it is what greedy decoding writes."""
        contexts, continuations = self._scorer.encode(*_columns(requests))
        log_probs = self._scorer.log_prob(contexts, continuations)
        greedy = self._greedy(contexts, [len(ids) for ids in continuations])
        pairs = zip(log_probs, greedy, continuations, strict=True)
        return [(float(log_prob), found == list(ids)) for log_prob, found, ids in pairs]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """Of each text alone; where it is longer than a model's window, in the windows that its cell is scored by."""
        texts = [request.args[0] for request in requests]
        return self._scorer.log_prob(*self._scorer.encode([""] * len(texts), texts)).tolist()

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """What greedy decoding writes, up to the first of a request's `until`."""
        texts = []
        for context, settings in (request.args for request in requests):
            if settings.get("do_sample"):
                raise UsageError("a task that samples is not answered; give it do_sample: false")
            length = int(settings.get("max_gen_toks") or MAX_GEN_TOKS)
            (text,) = self._system.continue_(context, max_new_tokens=length)
            until = settings.get("until") or []
            ends = [text.find(end) for end in ([until] if isinstance(until, str) else until) if end in text]
            texts.append(text[: min(ends, default=len(text))])
        return texts

    def _greedy(self, contexts: Sequence[Sequence[int]], lengths: Sequence[int]) -> list[list[int]]:
        """The likeliest tokens after each context, as many as `lengths` says; those of one length together."""
        places = defaultdict(list)
        for place, length in enumerate(lengths):
            places[length].append(place)
        found: list[list[int]] = [[] for _ in lengths]
        for length, alike in places.items():
            if length:
                rows = self._scorer.continue_greedily([contexts[place] for place in alike], length)
                for place, row in zip(alike, rows, strict=True):
                    found[place] = row
        return found


def _columns(requests: list[Instance]) -> tuple[list[str], list[str]]:
    contexts, continuations = zip(*(request.args for request in requests), strict=True)
    return list(contexts), list(continuations)
