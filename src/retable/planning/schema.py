"""The schema of a study: the keys of its file, and the values that each key may have.

A study is checked when it is read. Without this check, a mistake in the report's keys would be found only after the
training.
"""

from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, get_args

from annotated_types import Len, MinLen
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from retable.core.errors import UsageError, closest
from retable.core.settings import Positive, PositiveInt, expected


def _distinct(seeds: list[int]) -> list[int]:
    if len({*seeds}) < len(seeds):
        raise ValueError(f"{seeds} has a seed twice; write each seed once")
    return seeds


def _band(band: list[Any]) -> list[Any]:
    match band:
        case [_, _, _, _, str()] | [_, _, _, _, int() | float(), int() | float()]:
            return band
    raise ValueError(f"{band} is not a band; write system, task, split and metric, then a verdict or two bounds")


def _expected(row: list[Any]) -> list[Any]:
    match row:
        case [_, _, "below" | "above", _] | [_, _, _, _, "below" | "above", _]:
            return row
        case [_, _, int() | float(), int() | float()]:
            return row
    try:
        return _band(row)
    except ValueError:
        raise ValueError(
            f"{row} is not an expected result; write a band, or two rows to compare, as in [lstm, nesting, below, kn5]"
        ) from None


Name = str | int  # YAML reads a name that consists of digits as a number
Names = Name | list[Name]
Seeds = PositiveInt | Annotated[list[PositiveInt], MinLen(1), AfterValidator(_distinct)]
Pairs = Annotated[list[Annotated[list[Name], Len(2, 2)]], MinLen(1)]
Band = Annotated[list[Name | float], AfterValidator(_band)]
Expected = Annotated[list[Name | float], AfterValidator(_expected)]


def key(example: str, alias: str | None = None) -> Any:
    """Return the pydantic field of an optional key, with an example for messages."""
    return Field(None, alias=alias, examples=[example])


class Keys(BaseModel):
    # Validators are built on first use, because most commands read no study.
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        return {key: value for key, value in given.items() if value is not None} if isinstance(given, dict) else given


class AllBut(Keys):
    all_but: Names = Field(alias="all but")


class Mixture(Keys):
    of: list[Name]
    weights: Literal["fitted", "equal"] = key("weights: equal")


class System(Keys):
    of: Names = Field(examples=["{of: lstm}"])
    as_: Name = key("as: lstm_small", alias="as")
    corpus: Names = key("corpus: grammar")
    tokenizer: Name = key("tokenizer: word")
    task: Names = key("task: sentiment")
    seeds: Seeds = key("seeds: 3, or [1, 2]")
    init: Names = key("init: gpt")
    embedding: Name = key("embedding: skipgram")
    objective: Name = key("objective: masked_lm")
    trainer: Name = key("trainer: gpu")
    decoding: Name = key("decoding: beam")
    set_: dict[Name, Any] = key("set: {epochs: 4}", alias="set")
    rates: Annotated[list[Name | float], MinLen(1)] = key("rates: [1e-3, 2e-3]")  # YAML reads 1e-3 as text


class Ablation(Keys):
    title: str
    claim: str
    metric: str
    better: Literal["higher", "lower"] = Field(examples=["better: higher"])
    systems: list[Name] = Field(examples=["systems: [bert, bert_no_nsp]"])
    holds: Pairs = key("holds: [[bert, bert_no_nsp]], the better system first")
    alike: Pairs = key("alike: [[bert, bert_no_nsp]]")
    margin: Positive = key("margin: 0.3")
    corpus: Name = key("corpus: grammar")

    @model_validator(mode="after")
    def _one_claim(self) -> "Ablation":
        if (self.holds is None) == (self.alike is None):
            raise ValueError(
                "write the key `holds` (pairs that differ in the published results) or `alike` (pairs that do not)"
            )
        for pair in self.holds or self.alike:
            if pair[0] == pair[1] or not {*pair} <= {*self.systems}:
                raise ValueError(f"{pair} is not a pair of the ablation's systems; write two of {self.systems}")
        if self.alike and not self.margin:
            raise ValueError("the key `alike` needs a key `margin`: the largest difference that counts as equal")
        return self


class Gain(Keys):
    task: Name
    metric: str
    labels: Name
    pretraining: str
    scratch: Name
    pretrained: Name


class Compared(Keys):
    systems: Annotated[list[Name], Len(2, 2)] = Field(examples=["systems: [gpt, lstm]"])
    metric: Name = key("metric: sentiment/test/accuracy")
    corpus: Name = key("corpus: grammar")


class LabelEfficiency(Keys):
    claim: str
    pretrained: Name
    scratch: Name
    metrics: dict[Name, str] = Field(examples=["metrics: {sentiment: accuracy}"])


class Claim(Keys):
    claim: str
    holds: dict[Name, Annotated[list[Expected], MinLen(1)]] = Field(
        examples=["holds: {phenomena-ptb: [[lstm, nesting, below, kn5]]}"]
    )


class Reported(Keys):
    """The keys that only the report reads."""

    question: str = key("question: Do language models improve in the order of history?")
    answer: str = key('answer: "Yes, from {kn5: test/perplexity_word|.2f} to {gpt: test/perplexity_word|.2f}."')
    cost: str = key("cost: 5 minutes on two cores")
    figure: dict[Name, Claim] = key("figure: {phenomena-ptb: {claim: LSTMs learn nesting, holds: {…}}}")
    notes: dict[Name, dict[Name, Name]] = key("notes: {ptb: {lstm: six epochs instead of the paper's 39}}")
    ablations: dict[Name, Ablation] = key("ablations: {pairs: {title: …, claim: …, metric: sst2/test/accuracy, …}}")
    baseline: Name = key("baseline: bilstm")
    elmo: dict[Name, Name] = key("elmo: {bilstm: bilstm_elmo}")
    label_efficiency: LabelEfficiency = key("label_efficiency: {claim: …, pretrained: bert_pretrained, …}")
    lineage: dict[Name, int | float] = key("lineage: {kn5: 1998, lstm: 2012}")
    gains: list[Gain] = key("gains: [{task: sentiment, metric: accuracy, scratch: gpt, …}]")
    compare: list[Compared] = key("compare: [{systems: [gpt, lstm], metric: test/perplexity_word}]")
    tuned: Name = key("tuned: how the learning rates were found")
    more_seeds: Name = key("more_seeds: history_seeds")
    chosen_by: dict[Name, Name] = key("chosen_by: {sentiment: accuracy}")
    sweeps: dict[Name, Name] = key("sweeps: {RTE: sweeps/rte.csv}")
    scaling_laws: Name = key("scaling_laws: gpt_*")
    devices: dict[Name, Annotated[list[Name], MinLen(1)]] = key("devices: {gpt: [gpt_ddp_2, gpt_fsdp_2]}")
    lacks: dict[Name, dict[Name, Name]] = key("lacks: {task: {snli: data/snli}}")
    bands: dict[Name, list[Band]] = key('bands: {perplexity: [[lstm, "", test, perplexity_word, 108, 132]]}')


class StudyKeys(Reported):
    corpus: Names = key("corpus: grammar")
    tokenizer: Name = key("tokenizer: word")
    tokenizers: Names | dict[Name, Names] = key("tokenizers: [word, bpe]")
    seeds: Seeds = key("seeds: 3")
    trainer: Name = key("trainer: gpu")
    systems: list[System] = key("systems: [{of: lstm}]")
    adaptations: dict[Name, Names | AllBut] = key("adaptations: {neural_cache: lstm}")
    mixtures: dict[Name, list[Name] | Mixture] = key("mixtures: {both: [lstm, kn5]}")
    benchmarks: dict[Name, Names | AllBut] = key("benchmarks: {perplexity: all}")
    texts: dict[Name, Names | AllBut] = key("texts: {top_p: lstm}")
    scaling: Names = key("scaling: cpu")


REPORT_KEYS = tuple(Reported.model_fields)


def keys_of(model: type[Keys]) -> dict[str, FieldInfo]:
    """Return the fields of a pydantic model by key in YAML."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def parse(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Check the content of a study's file and return it without null values.

    Raises: UsageError: a key or value is wrong. The message begins with `where` and contains the key's place in the
        study and an example.
    """
    try:
        return StudyKeys.model_validate(given).model_dump(by_alias=True, exclude_unset=True)
    except ValidationError as error:
        mistakes = [_mistake(each, given) for each in error.errors(include_url=False)]
    place, problem, _, advice = max(mistakes, key=lambda mistake: len(mistake[0]))  # the most deeply nested mistake
    expectations = dict.fromkeys(each for other, message, each, _ in mistakes if (other, message) == (place, problem))
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).removeprefix(".")
    raise UsageError(f"{where}{path and f', {path}'}: {problem}{' or '.join(expectations)}{advice and f'; {advice}'}")


def _mistake(error: Any, value: Any) -> tuple[list[Any], str, str, str]:
    """Convert an error of pydantic: return the place in the study, the message in two parts, and the advice."""
    place, example = list[Any](), ""
    model: type[Keys] = StudyKeys
    for step in error["loc"]:  # some steps are pydantic's names for the members of a union
        if field := keys_of(model).get(step):
            example = (field.examples or [example])[0]
            model = next(_models_in(field.annotation), model)
        if step in value if isinstance(value, dict) else isinstance(value, list) and step in range(len(value)):
            place.append(step)
            value = value[step]
    match error["type"]:
        case "extra_forbidden":
            return place, "unknown key", "", closest(str(place[-1]), keys_of(model))
        case "missing":
            return place, "has no ", str(error["loc"][-1]), f"write {example}"
        case "value_error":
            return place, str(error["ctx"]["error"]), "", ""
    return place, f"{value!r} should be ", expected(error | {"loc": ()}), f"write {example}"


def _models_in(annotation: Any) -> Iterator[type[Keys]]:
    if isinstance(annotation, type) and issubclass(annotation, Keys):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)


def require_systems(reported: Mapping[str, Any], systems: Collection[str], where: str) -> None:
    """Raise UsageError if a key of the report names a system that the study does not have."""
    families = {system.rpartition("_")[0].rpartition("_")[0] for system in systems if system.endswith("_labels")}
    named = [("lineage", name, systems) for name in reported.get("lineage", ())]
    named += [("baseline", reported["baseline"], systems)] if "baseline" in reported else []
    named += [("elmo", name, systems) for pair in reported.get("elmo", {}).items() for name in pair]
    for gain in reported.get("gains", ()):
        named += [("gains", gain[side], systems) for side in ("scratch", "pretrained")]
    for pair in reported.get("compare", ()):
        named += [("compare", name, systems) for name in pair["systems"]]
    for pair in reported.get("devices", {}).items():
        named += [("devices", name, systems) for name in (pair[0], *pair[1])]
    for key, ablation in reported.get("ablations", {}).items():
        named += [(f"ablations.{key}", name, systems) for name in ablation["systems"]]
    if efficiency := reported.get("label_efficiency"):
        named += [("label_efficiency", efficiency[side], families) for side in ("pretrained", "scratch")]
    for key, name, known in named:
        if str(name) not in known:
            raise UsageError(f"{where}, {key}: the study has no system {name!r}; {closest(str(name), known)}")
    pattern = str(reported.get("scaling_laws", "*"))
    if "scaling_laws" in reported and not any(fnmatchcase(system, pattern) for system in systems):
        raise UsageError(f"{where}, scaling_laws: no system is called {pattern}; {closest(pattern, systems)}")
