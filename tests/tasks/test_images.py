"""Test images as examples: their splits, batches and models."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.ndimage import maximum_filter
from scipy.signal import correlate2d
from torch import nn

from retable.core.errors import UsageError
from retable.core.settings import build
from retable.corpora.digits import digits
from retable.data.images import ImageBatch
from retable.data.spelling import Vocabulary
from retable.inference.build import build_model
from retable.models.bag_of_words import BagOfWords
from retable.models.lenet import LeNet
from tests.pipelines.recipes import composed

datasets = pytest.importorskip("sklearn.datasets")
EMPTY = Vocabulary([], [])


def made(name: str):
    cfg = composed("finetune", name, "task=digits", "task_name=digits")
    torch.manual_seed(0)
    task = build(cfg.task, "task")
    return task, task.objective(build_model(cfg, EMPTY), EMPTY, **cfg.head)


def test_every_digit_is_in_one_split_as_scikit_learn_has_it():
    whole = datasets.load_digits()
    images, labels = {}, {}
    for split, offsets in (("train", (0, 1, 2)), ("validation", (3,)), ("test", (4,))):
        places = [i for i in range(len(whole.target)) if i % 5 in offsets]
        images[split], labels[split] = digits(split)
        np.testing.assert_array_equal(images[split][:, 0] * 16, whole.images[places])
        np.testing.assert_array_equal(labels[split], whole.target[places])
    assert {split: len(each) for split, each in labels.items()} == {"train": 1079, "validation": 359, "test": 359}
    assert all(set(each) == set(range(10)) for each in labels.values())


def test_the_linear_model_is_logistic_regression():
    _, objective = made("pixels")
    batch = ImageBatch(torch.rand(6, 1, 8, 8), torch.arange(6))
    assert objective(batch).eq(0).all()  # the head is 0 initially
    nn.init.normal_(objective.head.weight)
    by_hand = batch.images.flatten(1) @ objective.head.weight.T + objective.head.bias
    torch.testing.assert_close(objective(batch), by_hand)
    torch.testing.assert_close(objective.loss(batch, None, 0)[0], F.cross_entropy(by_hand, batch.labels))


def test_lenet_equals_its_maps_by_scipy():
    torch.manual_seed(0)
    model = LeNet(image_size=4, n_channels=2, n_maps=3, d_model=5, dropout=0.0).double()
    image = torch.randn(2, 4, 4, dtype=torch.float64)
    maps = image.numpy()
    with torch.no_grad():
        for layer in (model.layers[0], model.layers[3]):
            weight, bias = layer.weight.numpy(), layer.bias.numpy()
            seen = [sum(map(partial(correlate2d, mode="same"), maps, each)) for each in weight]
            maps = maximum_filter((seen + bias[:, None, None]).clip(0), (1, 2, 2), origin=(0, -1, -1))[:, ::2, ::2]
        wide = (model.layers[8].weight @ torch.from_numpy(maps.flatten()) + model.layers[8].bias).clamp(min=0)
        torch.testing.assert_close(model(image[None])[0], wide)


def test_what_reads_no_images_is_refused():
    task, _ = made("pixels")
    with pytest.raises(UsageError, match="BagOfWords does not read images; take recipe=images/vit"):
        task.require(BagOfWords, 0)
    with pytest.raises(UsageError, match="images of 6 pixels cannot be halved twice"):
        LeNet(6, 1, 2, 4, 0.0)
