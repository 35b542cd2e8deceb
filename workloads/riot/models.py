"""The two models that PRED uses and TRAIN makes: linear regression by least squares, and a decision tree.

Both are made from scratch, with the same result for the same rows: sums run in a fixed order, and of equally good
splits that of the first feature with the lowest threshold is taken. Models can be written as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headgate.core import ParameterError
from headgate.stream import Ints
from workloads.riot.schema import Floats

#: what a reading's air is called, worst first
CLASSES = ("BAD", "GOOD", "VERYGOOD", "EXCELLENT")
UNKNOWN = -1
_LEAF = -1


@dataclass(frozen=True)
class LinearModel:
    """intercept + sum of coefficient * feature."""

    coefficients: tuple[float, ...]
    intercept: float

    def predict(self, features: Sequence[Floats]) -> Floats:
        """NaN where a feature with a coefficient other than 0 is absent."""
        total = np.full(len(features[0]), self.intercept)
        for coefficient, values in zip(self.coefficients, features, strict=True):
            if coefficient:
                total = total + coefficient * values
        return total

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> LinearModel:
        fields = json.loads(text)
        return cls(tuple(fields["coefficients"]), fields["intercept"])

    @classmethod
    def trained(cls, features: Sequence[Floats], target: Floats, ridge: float = 1e-8) -> LinearModel:
        """Least squares with a little ridge, which gives a constant feature the coefficient 0 instead of an error."""
        if not len(target):
            raise ParameterError("a linear model cannot be trained on no rows; ask for a range that has some")
        means = [float(values.mean()) for values in features]
        centred = [values - mean for values, mean in zip(features, means, strict=True)]
        offset = target - target.mean()
        # Sums of products instead of a matrix product: that would take as many threads as it likes.
        gram = np.array([[float((a * b).sum()) for b in centred] for a in centred])
        moment = np.array([float((a * offset).sum()) for a in centred])
        coefficients = np.linalg.solve(gram + ridge * np.eye(len(gram)), moment)
        intercept = float(target.mean()) - sum(c * m for c, m in zip(coefficients.tolist(), means, strict=True))
        return cls(tuple(coefficients.tolist()), intercept)


@dataclass(frozen=True)
class TreeModel:
    """A binary tree in preorder: node i asks whether ``feature[i] <= threshold[i]``; a leaf's feature is -1."""

    feature: tuple[int, ...]
    threshold: tuple[float, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    label: tuple[int, ...]

    def predict(self, features: Sequence[Floats]) -> Ints:
        """The number of each row's class, ``UNKNOWN`` where a feature that had to be asked for is absent."""
        matrix = np.stack(features, axis=1)
        feature, threshold, children, label = self._arrays
        node = np.zeros(len(matrix), dtype=np.int64)
        unknown = np.zeros(len(matrix), dtype=bool)
        rows = np.arange(len(matrix)) if self.feature[0] != _LEAF else np.arange(0)
        while len(rows):
            here = node[rows]
            values = matrix[rows, feature[here]]
            unknown[rows] |= np.isnan(values)
            node[rows] = children[(values <= threshold[here]).astype(np.int64), here]
            rows = rows[feature[node[rows]] != _LEAF]
        return np.where(unknown, UNKNOWN, label[node])

    @cached_property
    def _arrays(self) -> tuple[Ints, Floats, Ints, Ints]:
        children = np.array([self.right, self.left])
        return np.array(self.feature), np.array(self.threshold), children, np.array(self.label)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TreeModel:
        return cls(**{name: tuple(values) for name, values in json.loads(text).items()})

    @classmethod
    def trained(
        cls, features: Sequence[Floats], labels: Ints, classes: int = len(CLASSES), min_leaf: int = 2, depth: int = 16
    ) -> TreeModel:
        """Greedy and exact: a node tries all thresholds of all features and takes what leaves least impurity (Gini).

        J48, which the original uses, chooses by gain ratio and prunes; on classes that are ranges of one feature,
        as TRAIN's are, both find the same thresholds up to where between two values they put them.
        """
        if not len(labels):
            raise ParameterError("a decision tree cannot be trained on no rows; ask for a range that has some")
        matrix = np.stack(features, axis=1)
        growing = _Growing(matrix, labels, classes, min_leaf, depth)
        growing.grow(np.arange(len(labels)), 0)
        return cls(*(tuple(column) for column in zip(*growing.nodes, strict=True)))


class _Growing:
    """A tree on its way: ``nodes`` are [feature, threshold, left, right, label]."""

    def __init__(self, matrix: Floats, labels: Ints, classes: int, min_leaf: int, depth: int) -> None:
        self.matrix = matrix
        self.labels = labels
        self.classes = classes
        self.min_leaf = min_leaf
        self.depth = depth
        self.nodes: list[list[float]] = []

    def grow(self, rows: Ints, depth: int) -> int:
        """Add the tree of these rows; the number of its root."""
        place = len(self.nodes)
        counts = np.bincount(self.labels[rows], minlength=self.classes)
        self.nodes.append([_LEAF, 0.0, _LEAF, _LEAF, int(counts.argmax())])
        split = None if depth == self.depth or counts.max() == len(rows) else self._best_split(rows, counts)
        if split is not None:
            feature, threshold = split
            goes_left = self.matrix[rows, feature] <= threshold
            left = self.grow(rows[goes_left], depth + 1)
            right = self.grow(rows[~goes_left], depth + 1)
            self.nodes[place][:4] = [feature, threshold, left, right]
        return place

    def _best_split(self, rows: Ints, counts: NDArray[np.int64]) -> tuple[int, float] | None:
        """The (feature, threshold) that leaves least impurity, None if none leaves less than there is."""
        best, best_score = None, float((counts * counts).sum()) / len(rows)
        for feature in range(self.matrix.shape[1]):
            values = self.matrix[rows, feature]
            order = np.argsort(values, kind="stable")
            values, labels = values[order], self.labels[rows[order]]
            # The last row on the left, for all thresholds between two different values.
            ends = np.flatnonzero(values[1:] != values[:-1])
            ends = ends[(ends + 1 >= self.min_leaf) & (len(rows) - ends - 1 >= self.min_leaf)]
            if not len(ends):
                continue
            left = np.stack([np.cumsum(labels == label)[ends] for label in range(self.classes)])
            right = counts[:, None] - left
            sizes = ends + 1
            score = (left * left).sum(axis=0) / sizes + (right * right).sum(axis=0) / (len(rows) - sizes)
            top = int(score.argmax())
            if score[top] > best_score:
                best_score = float(score[top])
                end = int(ends[top])
                best = feature, _between(float(values[end]), float(values[end + 1]))
        return best


def _between(low: float, high: float) -> float:
    """A threshold that ``low`` does not exceed and ``high`` does, even if nothing lies between them."""
    middle = low + (high - low) / 2
    return middle if middle < high else low


#: EdgeWise's models of the city: air by temperature, humidity and dust; its class by itself
CITY_LINEAR = LinearModel((-0.5106896760749683, 0.1550345386077423, 0.0, -0.0043941074441107295), 37.442739000196276)
CITY_TREE = TreeModel(
    feature=(4, _LEAF, 4, _LEAF, _LEAF),
    threshold=(22.0, 0.0, 29.0, 0.0, 0.0),
    left=(1, _LEAF, 3, _LEAF, _LEAF),
    right=(2, _LEAF, 4, _LEAF, _LEAF),
    label=(0, 0, 1, 1, 2),
)
