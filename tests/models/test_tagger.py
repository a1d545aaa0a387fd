import torch

from retable.models.bilstm import BiLSTM
from retable.models.tagger import BiLSTMTagger
from tests.contracts.model_cases import IDS, LENGTHS, SPELT, D, T


def tagger(**settings) -> BiLSTMTagger:
    torch.manual_seed(0)
    return BiLSTMTagger(4, **SPELT, d_model=D, n_layers=2, dropout=0.0, **settings)


def test_without_characters_it_is_the_sentence_encoder():
    """Where all convolutions are 0, and so are the LSTM's weights for them."""
    given, encoder = tagger(), BiLSTM(4, 5, D, n_layers=2, dropout=0.0)
    weights = given.layers.state_dict()
    weights |= {name: weights[name][:, :5] for name in ("forth.0.weight_ih_l0", "back.0.weight_ih_l0")}
    encoder.layers.load_state_dict(weights)
    encoder.embedding.weight = given.input_embedding.weight
    for convolution in given.input.cnn.filters:
        for parameter in convolution.parameters():
            torch.nn.init.zeros_(parameter)
    known = IDS.where(IDS < 4, 0)
    torch.testing.assert_close(given(IDS, LENGTHS), encoder(known, LENGTHS))


def test_the_indicator_tells_the_predicate_from_the_rest():
    """As if the LSTM read a vector more of each word, one of two."""
    given, plain = tagger(d_predicate=3), tagger()
    weights = {
        name: part[:, : plain.input.d_output] if "0.weight_ih" in name else part
        for name, part in given.layers.state_dict().items()
    }
    plain.layers.load_state_dict(weights)
    plain.input.load_state_dict(given.input.state_dict())
    predicates, marks = torch.tensor([2, 0, 3, 0]), given.predicate.embedding.weight
    assert not torch.equal(given(IDS, LENGTHS, predicates), given(IDS, LENGTHS, predicates + 1))
    torch.nn.init.zeros_(marks)
    torch.testing.assert_close(given(IDS, LENGTHS, predicates), plain(IDS, LENGTHS))
    with torch.no_grad():
        marks.copy_(torch.randn(2, 3))
    rows = marks[(torch.arange(T) == predicates[:, None]).long()]
    read = given.layers(torch.cat([given.input(IDS), rows], dim=2), LENGTHS)
    torch.testing.assert_close(given(IDS, LENGTHS, predicates), read)
