"""Reports in the form of `quire eval --json --with-items`, so that `quire eval compare` reads them
all: {"model", "tasks": [{"task", "n", "accuracy", "ci95", "items": [{"id", "right"}]}]}.
"""

import json
import math
import sys

Z = 1.959963984540054  # the normal quantile of 97.5 %

# What a script can rely on; the same as quire's.
OK, FAILURE, WRONG = 0, 1, 3


def wilson(right, n):
    """Wilson's 95 % interval of `right` of `n`, n > 0."""
    p = right / n
    scale = 1 + Z * Z / n
    centre = (p + Z * Z / (2 * n)) / scale
    half = Z / scale * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return [max(0.0, centre - half), min(1.0, centre + half)]


def mean_interval(values):
    """(mean, its 95 % interval by the normal approximation) of at least two values."""
    n = len(values)
    mean = sum(values) / n
    variance = sum((value - mean) ** 2 for value in values) / (n - 1)
    half = Z * math.sqrt(variance / n)
    return mean, [mean - half, mean + half]


def task_report(task, items):
    """`items` are (id, right) pairs; ids are unique."""
    n = len(items)
    right = sum(1 for _, is_right in items if is_right)
    return {
        "task": task,
        "n": n,
        "accuracy": right / n,
        "ci95": wilson(right, n),
        "items": [{"id": item, "right": bool(is_right)} for item, is_right in items],
    }


def add_report_flags(parser):
    parser.add_argument("--json", action="store_true", help="the report on standard output")
    parser.add_argument("--out", help="write the report, items included, to this file")
    parser.add_argument("--bar", type=float, default=0.0, help="exit 3 when a task is below")


def finish(report, args):
    """Prints and writes what was asked for; the exit code."""
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(report, file, ensure_ascii=False)
    if args.json:
        print(json.dumps(report, ensure_ascii=False))
    else:
        for task in report["tasks"]:
            low, high = (100 * bound for bound in task["ci95"])
            print(
                f"{task['task']:<24} {task['n']:6d} items  {100 * task['accuracy']:6.2f} %  "
                f"(95 %: {low:.2f} to {high:.2f})"
            )
    return OK if all(task["accuracy"] >= args.bar for task in report["tasks"]) else WRONG


def fail(error):
    print(f"error: {error}", file=sys.stderr)
    return FAILURE
