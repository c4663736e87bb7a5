"""Writes scores.json: what scikit-learn (and, for many labels or numbers, OGB's rule on top of it) says about small sets with
ties and unknown labels.

pip install scikit-learn; python make.py
"""

import json
import os

import numpy as np
from sklearn.metrics import (accuracy_score, average_precision_score, f1_score, mean_absolute_error, r2_score, roc_auc_score,
                             root_mean_squared_error)

rng = np.random.default_rng(7)
cases = []


def add(kind, logits, labels, factor=100, **scores):
    cases.append({
        "kind": kind, "cols": logits.shape[1], "logits": logits.ravel().tolist(),
        "labels": [None if np.isnan(x) else float(x) for x in labels.ravel()],
        "scores": {name: factor * float(x) for name, x in scores.items()},
    })


# Coarse logits, so that scores tie within and across classes.
for n, classes in [(1, 3), (50, 2), (200, 7), (120, 15)]:
    logits = np.round(rng.normal(size=(n, classes)), 1)
    labels = rng.integers(0, max(classes - 1, 2), size=n)
    predicted = logits.argmax(1)
    scores = {"accuracy": accuracy_score(labels, predicted),
              "macro-f1": f1_score(labels, predicted, average="macro", zero_division=0)}
    if classes == 2:
        score = logits[:, 1] - logits[:, 0]
        scores["roc-auc"] = roc_auc_score(labels, score)
        scores["average-precision"] = average_precision_score(labels, score)
    add("class", logits, labels.astype(float), **scores)

for n, tasks in [(60, 1), (300, 5)]:
    logits = np.round(rng.normal(size=(n, tasks)), 1)
    labels = (rng.random((n, tasks)) < 0.3).astype(float)
    labels[rng.random((n, tasks)) < 0.1] = np.nan
    if tasks > 2:
        labels[:, 2] = 0.0  # Only one kind: ranking metrics leave it out.
    known = ~np.isnan(labels)
    auc, ap, f1, right = [], [], [], []
    for t in range(tasks):
        y, s = labels[known[:, t], t], logits[known[:, t], t]
        f1.append(f1_score(y, s > 0, zero_division=0))
        right.append(accuracy_score(y, s > 0))
        if 0 < y.sum() < len(y):
            auc.append(roc_auc_score(y, s))
            ap.append(average_precision_score(y, s))
    add("each", logits, labels, **{
        "accuracy": np.mean(right), "macro-f1": np.mean(f1),
        "roc-auc": np.mean(auc), "average-precision": np.mean(ap)})

# Labels are stored as float32.
for n, targets, shift in [(1, 1, 0), (80, 1, 0), (300, 4, 2000)]:
    labels = np.float32(rng.normal(size=(n, targets)) * 3 + shift).astype(float)
    logits = labels + rng.normal(size=(n, targets))
    if targets > 2:
        labels[rng.random((n, targets)) < 0.2] = np.nan
        labels[:, 2] = np.nan  # Nothing known: left out.
    known = ~np.isnan(labels)
    scores = {"mae": [], "rmse": [], "r2": []}
    for t in range(targets):
        y, x = labels[known[:, t], t], logits[known[:, t], t]
        if len(y):
            scores["mae"].append(mean_absolute_error(y, x))
            scores["rmse"].append(root_mean_squared_error(y, x))
            if len(y) > 1:
                scores["r2"].append(r2_score(y, x))
    add("value", logits, labels, 1, **{name: np.mean(all) for name, all in scores.items() if all})

path = os.path.join(os.path.dirname(__file__), "scores.json")
json.dump(cases, open(path, "w"))
