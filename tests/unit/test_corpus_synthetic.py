"""corpus/synthetic.py: equal settings give equal ids on every machine."""

import numpy as np
import pytest

from raybench.corpus.synthetic import FIRST_ID, synthetic_ids, synthetic_text
from raybench.scenario.schema import SyntheticCorpus


def test_the_ids_of_a_seed_never_change() -> None:
    ids = synthetic_ids(SyntheticCorpus(tokens=6, vocabulary=32000, seed=7))
    assert ids.dtype == np.uint32
    assert ids.tolist() == [20004, 28711, 24822, 7208, 9607, 27954]


def test_ids_fill_the_vocabulary_and_leave_out_the_special_ones() -> None:
    ids = synthetic_ids(SyntheticCorpus(tokens=20_000, vocabulary=64, seed=0))
    assert set(ids.tolist()) == set(range(FIRST_ID, 64))


def test_another_seed_gives_other_ids() -> None:
    first, second = (synthetic_ids(SyntheticCorpus(tokens=100, seed=seed)) for seed in (0, 1))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(("vocabulary", "syllables"), [(64, 1), (100, 1), (101, 2), (32_000, 3), (1_000_001, 4)])
def test_every_id_of_the_vocabulary_is_a_word_of_its_own(vocabulary: int, syllables: int) -> None:
    ids = np.unique(np.linspace(0, vocabulary - 1, 500).astype(np.uint32))
    text = synthetic_text(ids, vocabulary)
    words = [text.slice(index, index + 1) for index in range(len(ids))]
    assert len(set(words)) == len(ids)
    assert {len(word) for word in words} == {2 * syllables + 1}
    assert text.slice(0, len(ids)).decode("ascii").split() == [word.decode().strip() for word in words]
