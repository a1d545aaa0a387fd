"""What may stand under the keys of a study: told when the study is read, for a slip in what its report is to show would
otherwise be found once everything is trained."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from retable.errors import UsageError, closest

Shape = Callable[[object], bool]


def _is_name(said: object) -> bool:
    return isinstance(said, str | int) and not isinstance(said, bool)  # of digits alone YAML makes a number


def _is_number(said: object) -> bool:
    return isinstance(said, int | float) and not isinstance(said, bool)


def _is_list(of: Shape) -> Shape:
    return lambda said: isinstance(said, list | tuple) and all(map(of, said))


def _is_mapping(to: Shape) -> Shape:
    return lambda said: isinstance(said, Mapping) and all(map(_is_name, said)) and all(map(to, said.values()))


def _any_of(*shapes: Shape) -> Shape:
    return lambda said: any(shape(said) for shape in shapes)


def _is_band(said: object) -> bool:
    """A row's system, task, split and metric, and a verdict, or the lowest and the highest value."""
    match said:
        case [*row, str()] if len(row) == 4:
            return all(map(_is_name, row))
        case [*row, low, high] if len(row) == 4:
            return all(map(_is_name, row)) and _is_number(low) and _is_number(high)
    return False


_names = _any_of(_is_name, _is_list(_is_name))
_anything = _is_mapping(lambda said: True)
_selection = _any_of(_names, _is_mapping(_names))
_seeds = _any_of(_is_number, _is_list(_is_number))

# By key its shape, and what to write: of what cells follow from, and of what a study says for its report alone.
CELLS: Mapping[str, tuple[Shape, str]] = {
    "corpus": (_names, "corpus: grammar"),
    "tokenizer": (_is_name, "tokenizer: word"),
    "tokenizers": (_selection, "tokenizers: [word, bpe]"),
    "seeds": (_seeds, "seeds: 3"),
    "trainer": (_is_name, "trainer: gpu"),
    "systems": (_is_list(lambda said: True), "systems: [{of: lstm}]"),
    "adaptations": (_is_mapping(_selection), "adaptations: {neural_cache: lstm}"),
    "mixtures": (_is_mapping(_selection), "mixtures: {both: [lstm, kn5]}"),
    "benchmarks": (_is_mapping(_selection), "benchmarks: {perplexity: all}"),
    "texts": (_is_mapping(_selection), "texts: {top_p: lstm}"),
    "scaling": (_names, "scaling: cpu"),
}
REPORTED: Mapping[str, tuple[Shape, str]] = {
    "notes": (_is_mapping(_is_mapping(_is_name)), "notes: {ptb: {lstm: six epochs in place of the paper's 39}}"),
    "ablations": (_is_mapping(_anything), "ablations: {pairs: {title: …, claim: …, metric: sst2/test/accuracy, …}}"),
    "baseline": (_is_name, "baseline: bilstm"),
    "elmo": (_is_mapping(_is_name), "elmo: {bilstm: bilstm_elmo}"),
    "label_efficiency": (_anything, "label_efficiency: {claim: …, pretrained: bert_pretrained, scratch: bert, …}"),
    "lineage": (_is_mapping(_is_number), "lineage: {kn5: 1998, lstm: 2012}"),
    "gains": (_is_list(_anything), "gains: [{task: sentiment, metric: accuracy, scratch: gpt, …}]"),
    "tuned": (_is_name, "tuned: how the learning rates were found"),
    "chosen_by": (_is_mapping(_is_name), "chosen_by: {sentiment: accuracy}"),
    "scaling_laws": (_is_name, "scaling_laws: gpt_*"),
    "lacks": (_is_mapping(_is_mapping(_is_name)), "lacks: {task: {snli: data/snli}}"),
    "bands": (_is_mapping(_is_list(_is_band)), 'bands: {perplexity: [[lstm, "", test, perplexity_word, 108, 132]]}'),
}
STUDY = {**CELLS, **REPORTED}
SYSTEM: Mapping[str, tuple[Shape, str]] = {
    "of": (_names, "of: lstm"),
    "as": (_is_name, "as: lstm_small"),
    "corpus": CELLS["corpus"],
    "tokenizer": CELLS["tokenizer"],
    "task": (_names, "task: sentiment"),
    "seeds": CELLS["seeds"],
    "init": (_names, "init: gpt"),
    "embedding": (_is_name, "embedding: skipgram"),
    "objective": (_is_name, "objective: masked_lm"),
    "trainer": CELLS["trainer"],
    "decoding": (_is_name, "decoding: beam"),
    "set": (_anything, "set: {epochs: 4}"),
    "rates": (_is_list(_any_of(_is_name, _is_number)), "rates: [1e-3, 2e-3]"),  # 1e-3 is a text to YAML
}
ABLATION = ("title", "claim", "metric", "better", "systems")
GAIN = ("task", "metric", "labels", "pretraining", "scratch", "pretrained")
LABEL_EFFICIENCY = ("claim", "pretrained", "scratch", "metrics")


def said_of(given: Mapping[str, Any], shapes: Mapping[str, tuple[Shape, str]], where: str) -> dict[str, Any]:
    """What is said under the keys, those left out that say nothing. UsageError for another key or shape."""
    require_keys(given, shapes, where)
    for key, said in given.items():
        shape, example = shapes[key]
        if said is not None and not shape(said):
            raise UsageError(f"{where}: {key}: {said!r} can't be read; write {example}")
    return {key: said for key, said in given.items() if said is not None}


def require_keys(said: Iterable[str], known: Collection[str], where: str) -> None:
    """UsageError for a key that is none of the known ones."""
    for key in said:
        if key not in known:
            raise UsageError(f"{where}: {key!r} is no key; {closest(key, known)}")


def require_reportable(said: Mapping[str, Any], systems: Collection[str], where: str) -> None:
    """UsageError where what the report is to show is not whole, or is of a system that the study has not."""
    _require_systems([*said.get("lineage", {})], systems, f"{where}, lineage")
    _require_systems([said["baseline"]] if "baseline" in said else [], systems, f"{where}, baseline")
    for pair in said.get("elmo", {}).items():
        _require_systems(pair, systems, f"{where}, elmo")
    for gain in said.get("gains", ()):
        _require_fields(gain, GAIN, f"{where}, gains")
        _require_systems([gain["scratch"], gain["pretrained"]], systems, f"{where}, gains")
    for name, ablation in said.get("ablations", {}).items():
        _require_ablation(ablation, systems, f"{where}, ablations.{name}")
    if efficiency := said.get("label_efficiency"):
        _require_fields(efficiency, LABEL_EFFICIENCY, f"{where}, label_efficiency")
        families = {system.rpartition("_")[0].rpartition("_")[0] for system in systems if system.endswith("_labels")}
        sides = [efficiency["pretrained"], efficiency["scratch"]]
        _require_systems(sides, families, f"{where}, label_efficiency")
        if not _is_mapping(_is_name)(efficiency["metrics"]):
            raise UsageError(f"{where}, label_efficiency: write metrics: {{sentiment: accuracy}}")
    pattern = said.get("scaling_laws")
    if pattern is not None and not any(fnmatchcase(system, str(pattern)) for system in systems):
        raise UsageError(f"{where}, scaling_laws: no system is called {pattern}; {closest(str(pattern), systems)}")


def _require_ablation(said: Mapping[str, Any], systems: Collection[str], where: str) -> None:
    _require_fields(said, ABLATION, where)
    if said["better"] not in ("higher", "lower"):
        raise UsageError(f"{where}: better: {said['better']!r} is no direction; write higher or lower")
    if not _is_list(_is_name)(said["systems"]):
        raise UsageError(f"{where}: systems: {said['systems']!r} can't be read; write systems: [bert, bert_no_nsp]")
    _require_systems(said["systems"], systems, where)
    claims = [field for field in ("holds", "alike") if field in said]
    if len(claims) != 1:
        raise UsageError(f"{where} must have one of holds and alike: which systems were published to differ")
    pairs = said[claims[0]]

    def is_pair(pair: object) -> bool:
        match pair:
            case [str() as better, str() as worse]:
                return better != worse and {better, worse} <= {*said["systems"]}
        return False

    if not pairs or not _is_list(is_pair)(pairs):
        raise UsageError(
            f"{where}: {claims[0]}: {pairs!r} are not pairs of its systems, the better one first; write "
            f"[[{', '.join(map(str, said['systems'][:2]))}]]"
        )
    if claims == ["alike"] and not (_is_number(said.get("margin")) and said["margin"] > 0):
        raise UsageError(f"{where} has no margin; write how large a difference of its metric counts as none")


def _require_fields(said: Mapping[str, Any], fields: Sequence[str], where: str) -> None:
    if missing := [field for field in fields if field not in said]:
        raise UsageError(f"{where} has no {', '.join(missing)}; it has {', '.join(fields)}")


def _require_systems(names: Iterable[object], systems: Collection[str], where: str) -> None:
    for name in names:
        if str(name) not in systems:
            raise UsageError(f"{where}: the study has no system {name!r}; {closest(str(name), systems)}")
