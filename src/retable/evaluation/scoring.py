"""Batched log-probabilities of texts and continuations, under any kind of language model.

Counted models, trained models and their mixtures are supported. Encoder-decoders and prefix LMs are supported, too:
such a model reads the context as input, and the continuation is its output. The batches of neural models are divided
among the processes.

Dimensions: n texts, N scored tokens, B batch, T time.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from retable.core.errors import UsageError
from retable.core.systems import LanguageModel, MixedSystem, System, TrainedSystem
from retable.data.batches import mapped
from retable.data.bucketed import on_device
from retable.data.buckets import cut
from retable.data.pairs import pad
from retable.evaluation.mixture import log_average
from retable.generation.conditioned import Conditioned
from retable.generation.next_token import NextToken, next_token
from retable.generation.packed import prepack
from retable.generation.sampling import Greedy
from retable.nn.cross_entropy import linear_log_prob
from retable.objectives.base import Likelihood
from retable.objectives.causal_lm import CausalLM
from retable.objectives.text_to_text import TextToText
from retable.tokenizers.tokenizer import Tokenizer

Sequences = Sequence[Sequence[int]]

TOKENS = 4096  # tokens per batch, including padding


class Scorer:
    """Scores texts with a language model and the tokenizer that it was trained with.

    Each text is scored independently of other texts, as the first text of a stream, after the boundary token. The
    result for a text equals the system's own `log_prob` of the text. The system's evaluation window changes the result
    only if the text is longer than the model's window.

    The input of an encoder-decoder or a prefix LM consists of the context and the end mark of inputs. If there is no
    context, the input is only the end mark.

    Args:
        convention: a function that converts a text to the form of the training corpus.
        sentinels: whether inputs end with <extra_id_0>, and outputs begin with it, as in T5's pretraining on corrupted
            spans.
    Raises: UsageError: `sentinels` is true, but the tokenizer has no <extra_id_0>.
    """

    def __init__(
        self,
        system: System,
        tokenizer: Tokenizer,
        convention: Callable[[str], str] | None = None,
        sentinels: bool = False,
    ):
        self._system, self._tokenizer, self._convention = system, tokenizer, convention or str
        marks = tokenizer.special_ids
        if sentinels and "<extra_id_0>" not in marks:
            raise UsageError("the tokenizer has no <extra_id_0>; write sentinels=false")
        self._sentinel = [marks["<extra_id_0>"]] if sentinels else []
        self.unknown = tokenizer.unknown

    def encode_lines(self, lines: Sequence[str], end: bool) -> list[list[int]]:
        """Return the token ids of each line; if `end` is true, the ids include the line end."""
        lines = [self._convention(line) for line in lines]
        if end:
            return [ids for ids, _, _ in self._tokenizer.encode_units([[line] for line in lines], documents=False)]
        return self._tokenizer.encode_batch(lines)

    def encode(self, contexts: Sequence[str], continuations: Sequence[str]) -> tuple[list[list[int]], list[list[int]]]:
        """Return the token ids of each context and the token ids of its continuation.

        A token that contains the end of the context and the start of the continuation belongs to the continuation.
        """
        texts = [self._convention(a + b) for a, b in zip(contexts, continuations, strict=True)]
        wholes = self._tokenizer.encode_batch(texts)
        befores = self._tokenizer.encode_batch([self._convention(context) for context in contexts])
        shared = [_n_shared(*pair) for pair in zip(wholes, befores, strict=True)]
        split = [(whole[:n], whole[n:]) for whole, n in zip(wholes, shared, strict=True)]
        return [before for before, _ in split], [after for _, after in split]

    def log_prob(self, contexts: Sequences, continuations: Sequences) -> np.ndarray:
        """Return the log-probability of each continuation after its context, float64 (n,), in nats."""
        lengths = [len(continuation) for continuation in continuations]
        log_probs = self._token_log_probs(self._system, contexts, continuations)
        return np.bincount(np.repeat(np.arange(len(lengths)), lengths), log_probs, minlength=len(lengths))

    def log_prob_of_tokens(self, contexts: Sequences, continuations: Sequences) -> list[np.ndarray]:
        """Return the log-probabilities of each continuation's tokens, float64, in nats."""
        ends = np.cumsum([len(continuation) for continuation in continuations])[:-1]
        return np.split(self._token_log_probs(self._system, contexts, continuations), ends)

    def log_prob_of_texts(self, texts: Sequences) -> np.ndarray:
        """Return the log-probability of each text, float64 (n,), in nats. Equal texts have equal results.

        The texts are sorted. If a text begins with the same tokens as the previous text, the model reads these tokens
        again, but their softmax, which is most of the work, is computed only once. In BLiMP, 31 % of the words are in a
        beginning that a sentence shares with the previous sentence of the sorted list.
        """
        ordered = sorted({tuple(text) for text in texts})
        shared = [_n_shared(text, before) for before, text in pairwise([(), *ordered])]
        systems = self._system.systems if isinstance(self._system, MixedSystem) else [self._system]
        if any(map(_text_to_text, systems)):  # encoder-decoders and prefix LMs read the context as separate input
            shared = [0] * len(ordered)
        split = [(text[:n], text[n:]) for text, n in zip(ordered, shared, strict=True)]
        new = self._token_log_probs(self._system, [context for context, _ in split], [rest for _, rest in split])
        totals, so_far, start = {}, np.zeros(1), 0  # so_far: log-probability of each prefix of the text
        for text, n in zip(ordered, shared, strict=True):
            stop = start + len(text) - n
            so_far = np.concatenate([so_far[: n + 1], so_far[n] + np.cumsum(new[start:stop])])
            totals[text], start = so_far[-1], stop
        return np.array([totals[tuple(text)] for text in texts], dtype=np.float64)

    def continue_greedily(self, contexts: Sequences, n_tokens: int) -> list[list[int]]:
        """Continue each context greedily by `n_tokens` tokens: always choose the most probable next token."""
        model: NextToken
        if objective := _text_to_text(self._system):
            model, prompts = Conditioned(objective, objective.start_id, *self._sentinel), self._inputs(contexts)
        else:
            model, prompts = next_token(self._system), [[self._tokenizer.boundary, *ids] for ids in contexts]
        return [best.ids for best, *_ in Greedy(max_new_tokens=n_tokens)(model, prompts, eos=None)]

    def decode(self, batch: Sequences) -> list[str]:
        return [text.strip() for text in self._tokenizer.decode_batch(batch)]

    def _token_log_probs(self, system: System, contexts: Sequences, continuations: Sequences) -> np.ndarray:
        """Return the log-probability of each token of all continuations in order, float64 (N,)."""
        if isinstance(system, MixedSystem):
            parts = [self._token_log_probs(each, contexts, continuations) for each in system.systems]
            return log_average(np.stack(parts), system.weights)
        if objective := _text_to_text(system):
            return self._of_outputs(objective, contexts, continuations)
        if not isinstance(system, LanguageModel):
            raise UsageError(
                f"{type(system).__name__} is not a language model; use a cell of recipe=recurrent/lstm, for example"
            )
        if isinstance(system, TrainedSystem) and isinstance(system.objective, Likelihood):
            return _of_trained(system, system.objective, contexts, continuations, self._tokenizer.boundary)
        if system.protocol == "sentence-bounded":
            return _of_sentences(system, contexts, continuations, self._tokenizer.boundary)
        texts = zip(contexts, continuations, strict=True)
        return np.concatenate([_of_text(system, *text) for text in texts] or [np.empty(0)])

    @torch.inference_mode()
    def _of_outputs(self, objective: TextToText, contexts: Sequences, continuations: Sequences) -> np.ndarray:
        """Score the continuations under an encoder-decoder or a prefix LM, given the contexts."""
        inputs, skip = self._inputs(contexts), len(self._sentinel)
        outputs = [[*self._sentinel, *continuation] for continuation in continuations]
        device, starts = next(objective.parameters()).device, _starts(continuations)
        log_probs = np.empty(sum(map(len, continuations)))
        batches = _by_length([max(pair) for pair in zip(map(len, inputs), map(len, outputs), strict=True)])
        batches = [places[[len(continuations[place]) > 0 for place in places]] for places in batches]
        batches = [places for places in batches if len(places)]

        def find(places: np.ndarray) -> np.ndarray:
            batch = pad(inputs, outputs, places)
            batch.target_ids[:, 0] = objective.start_id
            hidden, labels = objective.predictions(on_device(device, batch))
            scores = linear_log_prob(hidden, objective.head.weight, None, labels).double().cpu().numpy()
            return scores[np.concatenate([np.arange(len(outputs[place])) >= skip for place in places])]

        for places, scores in zip(batches, mapped(find, batches), strict=True):
            log_probs[_spans(starts, continuations, places)] = scores
        return log_probs

    def _inputs(self, contexts: Sequences) -> list[list[int]]:
        """Return one input per context: the context, the sentinel if it is used, and the end mark."""
        line_end = [self._tokenizer.boundary, *self._tokenizer.encode("\n")][-1]
        end = self._tokenizer.special_ids.get("</s>", line_end)
        return [[*context, *self._sentinel, end] for context in contexts]


def _text_to_text(system: System) -> TextToText | None:
    """Return the objective if the system is an encoder-decoder or a prefix LM."""
    return system.objective if isinstance(system, TrainedSystem) and isinstance(system.objective, TextToText) else None


@torch.inference_mode()
def _of_trained(
    system: LanguageModel, objective: Likelihood, contexts: Sequences, continuations: Sequences, boundary: int
) -> np.ndarray:
    """Score continuations with a trained left-to-right model, in batches of similar length.

    The softmax is computed for scored tokens only.
    """
    starts, window, objective = _starts(continuations), objective.model.max_length, prepack(objective)
    device = next(objective.parameters()).device
    lengths = np.array([len(a) + len(b) for a, b in zip(contexts, continuations, strict=True)], dtype=np.int64)
    firsts = np.array([len(context) for context in contexts], dtype=np.int64)
    log_probs = np.empty(sum(map(len, continuations)))
    fits = lengths <= (window or np.inf)
    for place in np.flatnonzero(~fits).tolist():
        log_probs[_spans(starts, continuations, [place])] = _of_text(system, contexts[place], continuations[place])
    whole = np.flatnonzero(fits & (lengths > firsts))

    def find(places: np.ndarray) -> np.ndarray:
        text = np.full((len(places), lengths[places].max() + 1), boundary)
        for row, place in zip(text, places, strict=True):
            row[1 : lengths[place] + 1] = [*contexts[place], *continuations[place]]
        time = np.arange(text.shape[1] - 1)
        scored = (time >= firsts[places, None]) & (time < lengths[places, None])
        ids, mask = (torch.from_numpy(array).to(device) for array in (text, scored))
        return _log_prob_where(objective, ids[:, :-1], ids[:, 1:], mask).double().cpu().numpy()

    batches = [whole[chosen] for chosen in _by_length(lengths[whole])]
    for places, scores in zip(batches, mapped(find, batches), strict=True):
        log_probs[_spans(starts, continuations, places)] = scores
    return log_probs


def _log_prob_where(objective: Likelihood, input_ids: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Return the log-probabilities of those labels, (B, T), whose mask, (B, T), is True, row by row."""
    if isinstance(objective, CausalLM) and type(objective).log_prob is CausalLM.log_prob:
        hidden, _ = objective.model(input_ids)
        return objective.log_prob_of(objective.projection(hidden[mask]), labels[mask])
    return objective.log_prob(input_ids, labels)[0][mask]  # other objectives, such as ELMo's forward direction


def _of_sentences(system: LanguageModel, contexts: Sequences, continuations: Sequences, boundary: int) -> np.ndarray:
    """Score continuations with a model that sees no context before the last boundary token.

    The texts are joined to one stream, separated by boundary tokens.
    """
    texts = [[*a, *b, boundary] for a, b in zip(contexts, continuations, strict=True)]
    stream = np.fromiter((token for text in texts for token in text), np.int64)
    firsts = _starts(texts) + [len(context) for context in contexts]
    return system.log_prob(stream)[_spans(firsts, continuations, range(len(texts)))]


def _of_text(system: LanguageModel, context: Sequence[int], continuation: Sequence[int]) -> np.ndarray:
    text = np.array([*context, *continuation], dtype=np.int64)
    return system.log_prob(text)[len(context) :] if len(continuation) else np.empty(0)


def _by_length(lengths: Sequence[int] | np.ndarray) -> list[np.ndarray]:
    """Return batches of text indices, the shortest texts first."""
    if not len(lengths):
        return []
    lengths = np.asarray(lengths)
    order = np.argsort(lengths, kind="stable")
    return [order[slice(*ends)] for ends in pairwise(cut(lengths[order], max(TOKENS, int(lengths.max()))))]


def _starts(sequences: Sequences) -> np.ndarray:
    """Return the position in the concatenated sequences at which each sequence starts."""
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    return np.cumsum(lengths) - lengths


def _spans(starts: np.ndarray, sequences: Sequences, places: Sequence[int] | np.ndarray | range) -> np.ndarray:
    """Return the token positions, in the concatenated sequences, of the sequences with indices `places`.

    Sequence i begins at position starts[i].
    """
    spans = [np.arange(starts[place], starts[place] + len(sequences[place])) for place in places]
    return np.concatenate(spans) if spans else np.empty(0, dtype=np.int64)


def _n_shared(whole: Sequence[int], before: Sequence[int]) -> int:
    """Count the tokens in the longest common prefix of two sequences."""
    pairs = zip(whole, before, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(whole), len(before)))
