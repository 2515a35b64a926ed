"""Sequences of symbols aligned one after the other, and the position-specific scores of what they share.

We know no well-kept package that aligns many sequences of any symbols without an external program: Biopython
aligns pairs, and leaves more to Clustal or MUSCLE, whose alphabets are those of proteins.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Sequence = NDArray[np.int64]
Scores = NDArray[np.float64]

ABSENT = -1  # where a sequence has nothing in a column
MISMATCH, GAP = -1.0, -0.5  # beside a match of 1 on the average


def events(symbols: Sequence) -> Sequence:
    """Without what repeats the symbol before it."""
    return symbols[np.flatnonzero(np.diff(symbols, prepend=ABSENT))]


def substitution(frequency: Scores) -> Scores:
    """[K, K] what it is worth to put one symbol above another: rare ones that agree say more."""
    surprise = -np.log(frequency)
    return np.where(np.eye(len(frequency), dtype=bool), surprise / np.mean(surprise), MISMATCH)


def align(sequences: list[Sequence], worth: Scores) -> NDArray[np.int64]:
    """[N, C] the sequences with gaps: the one most like all others first, then the next most alike."""
    likeness = np.array([[best_path(worth[np.ix_(a, b)])[0] for b in sequences] for a in sequences])
    centre = int(np.argmax(likeness.sum(axis=1)))
    order = sorted(range(len(sequences)), key=lambda i: (i != centre, -likeness[centre, i], i))
    aligned = sequences[centre][None, :]
    for index in order[1:]:
        aligned = _joined(aligned, sequences[index], worth)
    return aligned[np.argsort(order)]


def best_path(scores: Scores) -> tuple[float, list[tuple[int, int]]]:
    """Needleman and Wunsch: the best way to walk through both, and which rows meet which columns on it."""
    rows, columns = scores.shape
    steps = GAP * np.arange(columns + 1)
    table = np.empty((rows + 1, columns + 1))
    table[0] = steps
    for row in range(rows):
        entered = table[row] + GAP
        entered[1:] = np.maximum(entered[1:], table[row, :-1] + scores[row])
        # The best place to the left from which gaps lead here.
        table[row + 1] = np.maximum.accumulate(entered - steps) + steps
    met, row, column = [], rows, columns
    while row and column:
        here = table[row, column]
        if np.isclose(here, table[row - 1, column - 1] + scores[row - 1, column - 1]):
            row, column = row - 1, column - 1
            met.append((row, column))
        elif np.isclose(here, table[row - 1, column] + GAP):
            row -= 1
        else:
            column -= 1
    return float(table[-1, -1]), met[::-1]


def profile(aligned: NDArray[np.int64], background: Scores) -> Scores:
    """[C, K] log of how much likelier each symbol is in each column than elsewhere.

    Only columns that at least half of the sequences share. The background counts as one sequence more.
    """
    shared = aligned[:, np.mean(aligned != ABSENT, axis=0) >= 0.5]
    symbols = np.arange(len(background))
    counts = np.sum(shared[:, :, None] == symbols, axis=0)
    present = np.sum(shared != ABSENT, axis=0)[:, None]
    return np.asarray(np.log((counts + background) / (present + 1.0) / background))


def frequencies(sequences: list[Sequence], symbols: int) -> Scores:
    """[K] how often each symbol comes, none of them never."""
    counts = np.bincount(np.concatenate(sequences), minlength=symbols) + 1.0
    return np.asarray(counts / counts.sum())


def _joined(aligned: NDArray[np.int64], sequence: Sequence, worth: Scores) -> NDArray[np.int64]:
    """With one sequence more: a column's worth for a symbol is the mean over those who are there."""
    there = aligned != ABSENT
    pairs = np.where(there[:, :, None], worth[np.where(there, aligned, 0)], 0.0)  # [N, C, K]
    mean = pairs.sum(axis=0) / there.sum(axis=0)[:, None]
    _, met = best_path(mean[:, sequence])
    return _merged(aligned, sequence, met)


def _merged(aligned: NDArray[np.int64], sequence: Sequence, met: list[tuple[int, int]]) -> NDArray[Any]:
    """All columns of the alignment and all symbols of the sequence, those that met in one column."""
    columns, column, position = [], 0, 0
    nothing = np.full(len(aligned), ABSENT)
    for meets_column, meets_position in [*met, (aligned.shape[1], len(sequence))]:
        columns += [[*aligned[:, c], ABSENT] for c in range(column, meets_column)]
        columns += [[*nothing, symbol] for symbol in sequence[position:meets_position]]
        if meets_column < aligned.shape[1]:
            columns.append([*aligned[:, meets_column], sequence[meets_position]])
        column, position = meets_column + 1, meets_position + 1
    return np.array(columns).T
