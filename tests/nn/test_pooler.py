from retable.models.bert import BERT
from retable.models.bilstm import BiLSTM
from retable.nn.pooler import leave_pooler


def bert(pooler: bool) -> BERT:
    return BERT(vocab_size=11, d_model=8, n_layers=1, n_heads=2, max_length=6, dropout=0.0, pooler=pooler)


def test_the_pooler_is_frozen_and_nothing_else():
    model = bert(pooler=True)
    leave_pooler(model)
    assert {name for name, p in model.named_parameters() if not p.requires_grad} == {"pooler.weight", "pooler.bias"}


def test_a_model_without_one_stays_as_it_is():
    for model in (bert(pooler=False), BiLSTM(11, 6, 8, 1, 0.0)):
        leave_pooler(model)
        assert all(p.requires_grad for p in model.parameters())
