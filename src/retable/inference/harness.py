"""Language models from cells as models of lm-evaluation-harness.

The extra `harness` installs lm-evaluation-harness: `pip install 'retable[harness]'`.

    >>> import lm_eval
    >>> from retable.inference.harness import CellLM
    >>> lm_eval.simple_evaluate(CellLM("pretrain/ptb/kn5-1"), tasks=["blimp"])

Importing this module registers the name `retable` in the harness: `model="retable", model_args={"cell": …}`.
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

MAX_GEN_TOKS = 256  # maximum number of tokens for tasks without max_gen_toks, as in the harness


@register_model("retable")
class CellLM(LM):
    """A causal model (also an n-gram model or a mixture), T5 or prefix LM, for the harness.

    T5s and prefix LMs read the context as input.

    cell: name or path, as for `retable.load`.
    convention: converts a text to the form of the training corpus, such as `retable.corpora.conventions.text8`. A token
        that spans context and continuation belongs to the continuation, as in Retable's own benchmarks.
    settings: other arguments of the harness, such as `batch_size`, which are ignored, because texts are batched by
        their number of tokens.
    """

    def __init__(self, cell: str, device: str = "cpu", convention: Callable[[str], str] | None = None, **settings: Any):
        super().__init__()
        system = load(cell, device)
        if not isinstance(system, Language) or "score" not in system.can:
            raise UsageError(f"{cell} gives no probabilities of text; use the cell of a language model")
        self._system, self._scorer = system, Scorer(system.system, system.tokenizer, convention)

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """Return each continuation's log-probability after its context, and whether greedy decoding produces it."""
        contexts, continuations = self._scorer.encode(*_columns(requests))
        log_probs = self._scorer.log_prob(contexts, continuations)
        greedy = self._greedy(contexts, [len(ids) for ids in continuations])
        pairs = zip(log_probs, greedy, continuations, strict=True)
        return [(float(log_prob), best == list(ids)) for log_prob, best, ids in pairs]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """Return the log-probability of each text without context.

        A text longer than the model's window is scored in windows as in the cell's evaluation.
        """
        texts = [request.args[0] for request in requests]
        return self._scorer.log_prob(*self._scorer.encode([""] * len(texts), texts)).tolist()

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Decode each request greedily; cut the text before the request's first `until` string."""
        texts = []
        for context, settings in (request.args for request in requests):
            if settings.get("do_sample"):
                raise UsageError("tasks with sampling are not supported; write do_sample: false in the task")
            length = int(settings.get("max_gen_toks") or MAX_GEN_TOKS)
            (text,) = self._system.continue_(context, max_new_tokens=length)
            until = settings.get("until") or []
            ends = [text.find(end) for end in ([until] if isinstance(until, str) else until) if end in text]
            texts.append(text[: min(ends, default=len(text))])
        return texts

    def _greedy(self, contexts: Sequence[Sequence[int]], lengths: Sequence[int]) -> list[list[int]]:
        """Decode `lengths[i]` tokens greedily after `contexts[i]`; contexts with equal lengths share batches."""
        places = defaultdict(list)
        for place, length in enumerate(lengths):
            places[length].append(place)
        continuations: list[list[int]] = [[] for _ in lengths]
        for length, alike in places.items():
            if length:
                rows = self._scorer.continue_greedily([contexts[place] for place in alike], length)
                for place, row in zip(alike, rows, strict=True):
                    continuations[place] = row
        return continuations


def _columns(requests: list[Instance]) -> tuple[list[str], list[str]]:
    contexts, continuations = zip(*(request.args for request in requests), strict=True)
    return list(contexts), list(continuations)
