"""eval_table.py DIR: the reports of `quire eval --json` in DIR, a row each, a column a task.

From the files of items when a run was cut short: what it got to, and of how many.
"""

import collections
import glob
import json
import os
import sys

TASKS = ["arithmetic", "choice", "people", "recall", "tools", "sort", "copy", "count"]


def accuracies(path):
    with open(path, encoding="utf-8") as lines:
        counts = collections.Counter()
        right = collections.Counter()
        for line in lines:
            item = json.loads(line)
            counts[item["task"]] += 1
            right[item["task"]] += item["right"]
    return {task: (right[task] / n, n) for task, n in counts.items()}


def main():
    print(f"{'run':28}" + "".join(f"{task:>17}" for task in TASKS))
    for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.jsonl"))):
        found = accuracies(path)
        cells = [
            f"{found[task][0]:.4f} of {found[task][1]}" if task in found else "-" for task in TASKS
        ]
        print(f"{os.path.basename(path)[:-6]:28}" + "".join(f"{cell:>17}" for cell in cells))


if __name__ == "__main__":
    main()
