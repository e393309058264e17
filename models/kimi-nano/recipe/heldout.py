"""Held-out items as prompts and expected ids, the line format of eval/*.jsonl, and how to judge.

Turn t's prompt is everything before it: all prompt ids and all generated ids (the stop token
included) of earlier turns, then its own prompt ids. A turn is right when the generated ids after
the
last `</think>`, up to the stop token, are the expected ids. An item is right when all its turns
are.
"""

import json
import random

import chat
import data
import tasks

SHORTEST_RECALL, LONGEST_RECALL = 700, 2960


def to_record(item, tokenizer, index, thinking):
    dialogue = chat.Dialogue(tokenizer, item.tools)
    turns = []
    for turn in item.turns:
        begin = len(dialogue.ids)
        data.add_prompt(dialogue, turn, named=False)
        dialogue.open_assistant(thinking)
        prompt = dialogue.ids[begin:] if turns else list(dialogue.ids)
        content = turn.text(thinking)
        expected = dialogue.answer_ids(content, turn.calls)
        thoughts = len(tokenizer.encode(turn.reasoning)) + 24 if thinking else 0
        limit = len(expected) + thoughts + 16
        turns.append({"prompt_ids": prompt, "expected_ids": expected, "max_new_tokens": limit})
        dialogue.answer(content, turn.calls, turn.reasoning if thinking else None)
    return {"id": f"{item.task}-{index:04d}", "task": item.task, "turns": turns}


def make_records(task, n, seed, tokenizer, thinking=None):
    """n different held-out items of a task; a function of the arguments alone."""
    context = tasks.Context(tokenizer, True, tasks.HELD_OUT, SHORTEST_RECALL, LONGEST_RECALL)
    rng = random.Random(f"{seed}|{task}")
    thinking = tasks.EVAL_THINKING[task] if thinking is None else thinking
    records, seen = [], set()
    while len(records) < n:
        item = tasks.draw(task, rng, context)
        record = to_record(item, tokenizer, len(records), thinking)
        prompt = tuple(record["turns"][0]["prompt_ids"])
        if prompt not in seen:
            seen.add(prompt)
            records.append(record)
    return records


def write_records(records, path, tokenizer, n_with_text=5):
    """One JSON object a line; the first few also carry their first prompt as text, for readers."""
    with open(path, "w", encoding="utf-8") as file:
        for i, record in enumerate(records):
            if i < n_with_text:
                text = tokenizer.decode(record["turns"][0]["prompt_ids"])
                record = {**record, "prompt_text": text}
            file.write(json.dumps(record, separators=(",", ":"), ensure_ascii=False) + "\n")


def read_records(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def is_right(generated, expected):
    """generated: ids with or without the stop token."""
    ids = list(generated)
    if chat.IM_END in ids:
        ids = ids[: ids.index(chat.IM_END)]
    if chat.END_THINK in ids:
        ids = ids[len(ids) - ids[::-1].index(chat.END_THINK) :]
    return ids == expected


def interval95(n_right, n):
    """Wilson's 95 % interval of a share, as [low, high]."""
    z, p = 1.959964, n_right / n
    centre, spread = p + z * z / (2 * n), z * ((p * (1 - p) + z * z / (4 * n)) / n) ** 0.5
    scale = 1 + z * z / n
    return [round((centre - spread) / scale, 4), round((centre + spread) / scale, 4)]
