"""Trains the 4,096 ranks on text drawn from the tasks and writes the tokenizer's files.

Byte-level BPE: the most frequent adjacent pair merges first, ties go to the smaller bytes.
Pre-tokens
that hold a digit are left out, so digits stay single tokens. Usage: train_tokenizer.py --out DIR
"""

import argparse
import base64
import collections
import heapq
import json
import random

import chat
import facts
import tasks
import tokenizer as tok
import words

FLOOR = 5000  # Every listed word counts at least this often, in each of its spellings.


class TextSink:
    """Stands in for a tokenizer: keeps the text it is given."""

    def encode(self, text):
        return [text]

    encode_memo = encode


def corpus_texts(n_items, seed):
    rng = random.Random(seed)
    lengths = tasks.FIRST_STAGE
    context = tasks.Context(TextSink(), False, lengths, recall_min=60, recall_max=120)
    names = ["arithmetic", "choice", "recall", "tools", "sort", "copy", "chat"]
    for _ in range(n_items):
        item = tasks.draw(rng.choice(names), rng, context)
        if item.tools:
            yield chat.declare_tools(item.tools)
        for turn in item.turns:
            yield turn.user
            yield "".join(turn.user_ids or [])
            yield turn.reasoning
            yield turn.text(thinking=False)
            yield f"## Return of functions.x:0\n{turn.tool_result[1]}" if turn.tool_result else ""
            for name, arguments in turn.calls:
                yield f"functions.{name}:0"
                yield json.dumps(arguments)


def listed_words():
    lists = [value for name, value in vars(words).items() if name.isupper()]
    lists += [[end for fact in r["facts"] for end in fact] for r in facts.RELATIONS.values()]
    for word in " ".join(" ".join(value) for value in lists).split():
        yield from (word, f" {word}")


def count_pretokens(n_items, seed):
    split = tok.compile_split()
    counts = collections.Counter()
    for text in corpus_texts(n_items, seed):
        counts.update(split.findall(text))
    for word in listed_words():
        for piece in split.findall(word):
            counts[piece] = max(counts[piece], FLOOR)
    return {p.encode("utf-8"): n for p, n in counts.items() if not any(c.isdigit() for c in p)}


class PairTable:
    """Counts of adjacent pairs over all pre-tokens, with a heap of candidates (stale ones
    skipped)."""

    def __init__(self, counts):
        self.words = [[bytes([b]) for b in piece] for piece in counts]
        self.weights = list(counts.values())
        self.counts = collections.Counter()
        self.where = collections.defaultdict(set)
        for index in range(len(self.words)):
            self._add(index, +1)
        self.heap = [(-n, pair) for pair, n in self.counts.items()]
        heapq.heapify(self.heap)

    def _add(self, index, sign):
        word, weight = self.words[index], self.weights[index]
        for pair in zip(word, word[1:]):
            self.counts[pair] += sign * weight
            if sign > 0:
                self.where[pair].add(index)

    def best(self):
        while self.heap:
            count, pair = heapq.heappop(self.heap)
            if self.counts[pair] == -count and count < 0:
                return pair
        return None

    def merge(self, pair):
        joined, touched = pair[0] + pair[1], set()
        for index in self.where.pop(pair):
            self._add(index, -1)
            word, out = self.words[index], []
            touched.update(zip(word, word[1:]))
            i = 0
            while i < len(word):
                hit = i + 1 < len(word) and (word[i], word[i + 1]) == pair
                out.append(joined if hit else word[i])
                i += 2 if hit else 1
            self.words[index] = out
            self._add(index, +1)
            touched.update(zip(out, out[1:]))
        for changed in touched:
            if self.counts[changed] > 0:
                heapq.heappush(self.heap, (-self.counts[changed], changed))


def train_ranks(counts, n_ranks):
    ranks = [bytes([b]) for b in range(256)]
    known = set(ranks)
    table = PairTable(counts)
    while len(ranks) < n_ranks:
        pair = table.best()
        if pair is None:
            raise SystemExit(f"the corpus gives only {len(ranks)} ranks")
        table.merge(pair)
        joined = pair[0] + pair[1]
        if joined not in known:
            known.add(joined)
            ranks.append(joined)
    return ranks


def tokenizer_config():
    added = {}
    for name, token_id in tok.SPECIALS.items():
        added[str(token_id)] = {
            "content": name,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": name not in tok.SHOWN_SPECIALS,
        }
    plain = {"[BOS]", "[EOS]", "[UNK]", "[PAD]"} | tok.SHOWN_SPECIALS
    return {
        "added_tokens_decoder": added,
        "additional_special_tokens": [name for name in tok.SPECIALS if name not in plain],
        "bos_token": "[BOS]",
        "clean_up_tokenization_spaces": False,
        "eos_token": "[EOS]",
        "extra_special_tokens": {},
        "model_max_length": 4096,
        "pad_token": "[PAD]",
        "tokenizer_class": "TikTokenTokenizer",
        "unk_token": "[UNK]",
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--items", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=2)
    args = parser.parse_args()
    ranks = train_ranks(count_pretokens(args.items, args.seed), tok.N_RANKS)
    with open(f"{args.out}/tiktoken.model", "w", encoding="ascii") as file:
        for rank, token in enumerate(ranks):
            file.write(f"{base64.b64encode(token).decode()} {rank}\n")
    with open(f"{args.out}/tokenizer_config.json", "w", encoding="utf-8") as file:
        json.dump(tokenizer_config(), file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
