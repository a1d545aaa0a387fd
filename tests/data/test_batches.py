from retable.data.batches import LazyBatches, in_order, measured, share


class Lengths:
    """The mean length of words, measured batch by batch."""

    def batches(self, rank: int = 0, world: int = 1) -> LazyBatches:
        return share(["a", "bb", "ccc", "dddd", "eeeee"], str.upper, rank, world)

    def step(self, objective):
        return lambda piece: None if piece is None else objective(piece)

    def compute(self, measured) -> dict[str, float]:
        found = in_order(measured)
        return {"mean": sum(found) / len(found)}


def test_each_process_has_as_many_pieces_made_when_they_are_asked_for():
    assert [[*Lengths().batches(rank, 2)] for rank in (0, 1)] == [["A", "CCC", "EEEEE"], ["BB", "DDDD", None]]
    assert [len(Lengths().batches(rank, 2)) for rank in (0, 1)] == [3, 3]
    made = []
    pieces = iter(LazyBatches(3, made.append))
    next(pieces)
    assert made == [0]


def test_what_processes_have_found_is_in_the_order_of_the_pieces():
    found = [[*map(Lengths().step(len), Lengths().batches(rank, 3))] for rank in range(3)]
    assert found == [[1, 4], [2, 5], [3, None]] and in_order(found) == [1, 2, 3, 4, 5]


def test_one_process_measures_all():
    assert measured(Lengths(), len) == {"mean": 3.0}
