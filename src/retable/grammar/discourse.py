"""The program that generates sentences and documents of the embedded language."""

from retable.grammar.interpreters import Sampler, Scorer
from retable.grammar.lexicon import PRONOUNS
from retable.grammar.syntax import Referent, Syntax
from retable.grammar.tables import LINE_END, PAST_JUDGES, Tables

QUESTION_NUMBERS = {"does": "singular", "do": "plural", "did": "any"}


class Discourse(Syntax):
    """Generates or parses documents and sentences. A pronoun may refer to the subject of the previous sentence."""

    def __init__(self, tables: Tables, interpreter: Sampler | Scorer) -> None:
        super().__init__(tables, interpreter)
        self.antecedent: Referent | None = None

    def document(self, n_sentences: int = 0) -> None:
        """Generate or parse the rest of a document whose first `n_sentences` sentences are complete."""
        while self.sentence(n_sentences):
            n_sentences += 1

    def resume(self, other: "Discourse") -> None:
        """Copy the state of `other`: its antecedent, tense, and mentioned nouns, names and nations."""
        self.antecedent, self.tense = other.antecedent, other.tense
        self.nouns, self.names, self.nations = list(other.nouns), list(other.names), list(other.nations)

    def sentence(self, n_before: int = 0) -> bool:
        """Generate or parse a sentence and its line end, and return True.

        If the document has no further sentence, generate or parse its last line end instead, and return False.
        """
        self.earlier_nouns, self.earlier_names = list(self.nouns), list(self.names)
        agreement = self.antecedent.agreement if self.antecedent else None
        opening = self.choose(self.tables.sentence[n_before, agreement])
        if opening == "end":
            self.emit(LINE_END)
            return False
        document_tense = self.tense
        self.used_forms, self.opening = {}, {"time": "day", "place": "place"}.get(opening, "")
        getattr(self, f"{opening}_sentence")()
        if document_tense != "open":
            self.tense = document_tense
        elif self.tense in ("yesterday", "nowadays"):
            self.tense = "past" if self.tense == "yesterday" else "present"
        self.emit(LINE_END)
        return True

    def clause_sentence(self) -> None:
        self.antecedent = self.clause()
        self.emit(".")

    def pronoun_sentence(self) -> None:
        assert self.antecedent  # without an antecedent, the branch has no option "pronoun"
        self.emit(PRONOUNS[self.antecedent.agreement])
        self.mark("agreement")
        self.clause(self.antecedent)
        self.emit(".")

    def linked_sentence(self) -> None:
        self.draw(self.tables.link)
        self.emit(",")
        self.clause_sentence()

    def time_sentence(self) -> None:
        self.tense = self.draw(self.tables.time)
        self.emit(",")
        self.clause_sentence()

    def place_sentence(self) -> None:
        self.location()
        self.emit(",")
        self.mark("nesting")
        self.clause_sentence()

    def topic_sentence(self) -> None:
        self.emit_words("as", "for")
        name = self.name()
        self.emit(",")
        speaker = self.noun_phrase("person")
        self.finite_verb(self.tables.say, speaker)
        self.emit_words("that", name.word)
        self.mark("repetition")
        self.clause(name)
        self.emit(".")
        self.antecedent = name

    def when_sentence(self) -> None:
        self.emit("when")
        self.condition()
        self.emit(",")
        self.mark("nesting")
        self.clause_sentence()

    def if_sentence(self) -> None:
        self.emit("if")
        self.condition()
        self.emit(",")
        self.mark("nesting")
        self.emit("then")
        self.mark("nesting")
        self.clause_sentence()

    def condition(self) -> None:
        self.is_condition = True
        self.clause()
        self.is_condition = False

    def question_sentence(self) -> None:
        auxiliary = self.draw(self.tables.question[self.tense])
        self.mark("agreement")
        self.settle_tense("past" if auxiliary == "did" else "present")
        subject = self.noun_phrase("any", QUESTION_NUMBERS[auxiliary])
        if not self.complement(self.verb(self.tables.base[subject.kind], subject), subject):
            self.adjunct(subject.kind)
        self.emit("?")
        self.mark("nesting")
        self.antecedent = subject

    def capital_sentence(self) -> None:
        capital = self.nation_word(self.tables.nation["capital"])
        nation = self.tables.nation_of[capital]
        form = self.choose(self.tables.fact)
        if form == "definition":
            self.emit_words("is", "the", "capital", "of", nation.country, ".")
        elif form == "fame":
            self.fame(capital)
        else:
            self.emit_words(",", "the", nation.demonym, "capital", ",")
            self.clause(Referent("place", "neuter", capital))
            self.emit(".")

    def country_sentence(self) -> None:
        country = self.nation_word(self.tables.nation["country"])
        nation = self.tables.nation_of[country]
        form = self.choose(self.tables.fact)
        if form == "definition":
            self.emit_words("is", "the", "land", "of", "the", nation.demonym, "people", ".")
        elif form == "fame":
            self.fame(country)
        else:
            self.emit_words(",", "the", "home", "of", "the", nation.demonym, "people", ",")
            self.clause(Referent("place", "neuter", country))
            self.emit(".")

    def fame(self, place: str) -> None:
        self.emit("has")
        self.noun_phrase(self.tables.lexicon.fame, favoured_by=place)
        self.emit(".")

    def opinion_sentence(self) -> None:
        self.draw(self.tables.we)
        judge = self.draw(self.tables.judge[self.tense])
        if self.tables.lexicon.natural and judge in PAST_JUDGES:
            self.settle_tense("past")
        self.emit("that")
        self.opinion()
        for branch in self.tables.opinions:
            link = self.choose(branch)
            if link == "end":
                break
            self.emit("," if link == "comma" else "and")
            self.opinion()
            if link == "last":
                break
        self.emit(".")

    def opinion(self) -> None:
        subject = self.noun_phrase("any", simple=True)
        negated = self.copula(subject)
        self.draw(self.tables.evaluation[subject.kind, negated])

    def emit_words(self, *words: str) -> None:
        for word in words:
            self.emit(word)
