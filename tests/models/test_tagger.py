import torch

from retable.models.bilstm import BiLSTM
from retable.models.tagger import BiLSTMTagger

WORDS = ["<unk>", "a", "dog", "barks", "zebra", "dogs"]
LENGTHS = torch.tensor([3, 5, 1])


def tagger(dropout: float = 0.0, **settings) -> BiLSTMTagger:
    torch.manual_seed(0)
    return BiLSTMTagger(4, WORDS, 5, 3, [(1, 2), (3, 4)], d_model=8, n_layers=2, dropout=dropout, **settings)


def ids() -> torch.Tensor:
    return torch.randint(len(WORDS), (3, 5), generator=torch.Generator().manual_seed(1))


def test_without_characters_it_is_the_sentence_encoder():
    """Where all convolutions are 0, and so are the LSTM's weights for them."""
    given, encoder = tagger(), BiLSTM(4, 5, 8, n_layers=2, dropout=0.0)
    weights = given.layers.state_dict()
    weights |= {name: weights[name][:, :5] for name in ("forth.0.weight_ih_l0", "back.0.weight_ih_l0")}
    encoder.layers.load_state_dict(weights)
    encoder.embedding.weight = given.input_embedding.weight
    for convolution in given.input.cnn.filters:
        for parameter in convolution.parameters():
            torch.nn.init.zeros_(parameter)
    known = ids().where(ids() < 4, 0)
    torch.testing.assert_close(given(ids(), LENGTHS), encoder(known, LENGTHS))


def test_the_indicator_tells_the_predicate_from_the_rest():
    """As if the LSTM read a vector more of each word, one of two."""
    given, plain = tagger(d_predicate=3), tagger()
    weights = {
        name: part[:, :11] if "0.weight_ih" in name else part for name, part in given.layers.state_dict().items()
    }
    plain.layers.load_state_dict(weights)
    plain.input.load_state_dict(given.input.state_dict())
    predicates, marks = torch.tensor([2, 0, 0]), given.predicate.embedding.weight
    assert not torch.equal(given(ids(), LENGTHS, predicates), given(ids(), LENGTHS, predicates + 1))
    torch.nn.init.zeros_(marks)
    torch.testing.assert_close(given(ids(), LENGTHS, predicates), plain(ids(), LENGTHS))
    with torch.no_grad():
        marks.copy_(torch.randn(2, 3))
    rows = marks[torch.tensor([[0, 0, 1, 0, 0], [1, 0, 0, 0, 0], [1, 0, 0, 0, 0]])]
    read = given.layers(torch.cat([given.input(ids()), rows], dim=2), LENGTHS)
    torch.testing.assert_close(given(ids(), LENGTHS, predicates), read)
