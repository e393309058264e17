"""pair_items.py A.jsonl B.jsonl: two runs of `quire eval --items`, item by item.

One row a task: the items both runs have, the accuracy of each on them, and how many items only one
of them had right. Exit code 1 when an accuracy differs by more than half a point.
"""

import json
import sys

BAR = 0.005


def read(path):
    with open(path, encoding="utf-8") as lines:
        items = (json.loads(line) for line in lines)
        return {(item["task"], item["id"]): item["right"] for item in items}


def main():
    a, b = (read(path) for path in sys.argv[1:3])
    rows = {}
    for key in a.keys() & b.keys():
        rows.setdefault(key[0], []).append((a[key], b[key]))
    worst = 0.0
    print(f"{'task':12} {'n':>6} {'first':>8} {'second':>8} {'lost':>5} {'won':>5}")
    for task, pairs in sorted(rows.items()):
        n = len(pairs)
        first, second = (sum(pair[i] for pair in pairs) / n for i in (0, 1))
        lost = sum(x and not y for x, y in pairs)
        won = sum(y and not x for x, y in pairs)
        worst = max(worst, abs(first - second))
        print(f"{task:12} {n:6} {first:8.4f} {second:8.4f} {lost:5} {won:5}")
    print(f"largest difference: {100 * worst:.2f} points")
    return 0 if rows and worst <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
