import torch

from retable.models.skipgram import SkipGram


def test_starts_as_word2vec_does():
    torch.manual_seed(0)
    model = SkipGram(vocab_size=500, d_model=20)
    v, u = model(torch.tensor([[3, 4]]), torch.tensor([7]))
    assert torch.equal(v, model.vectors()[[3, 4]][None])
    assert torch.equal(u, torch.zeros(1, 20))
    bound = 0.5 / 20
    assert model.vectors().abs().max() <= bound
    # The standard deviation of a uniform distribution on ±bound is bound / √3.
    torch.testing.assert_close(model.vectors().std(), torch.tensor(bound / 3**0.5), rtol=0.02, atol=0)


def test_sparse_gradients_hold_the_rows_read():
    dense, sparse = SkipGram(50, 4), SkipGram(50, 4, sparse=True)
    sparse.load_state_dict(dense.state_dict())
    centres, contexts = torch.tensor([1, 2, 2]), torch.tensor([5, 5, 9])
    for model in (dense, sparse):
        torch.nn.init.ones_(model.context.weight)
        v, u = model(centres, contexts)
        (v * u).sum().backward()
    gradient = sparse.centre.weight.grad.coalesce()
    assert gradient.indices().tolist() == [[1, 2]]
    torch.testing.assert_close(gradient.to_dense(), dense.centre.weight.grad)
