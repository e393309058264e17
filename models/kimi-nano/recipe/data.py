"""Training batches: documents drawn from the tasks, packed into rows of equal length.

Batch b is a function of (seed, b), so the data of a run is the same however many workers make it.
Recall lists grow over the first batches: copying by association forms on short lists first.
"""

import itertools
import multiprocessing
import random
from dataclasses import dataclass
from functools import partial

import chat
import functions
import numpy as np
import tasks
import tokenizer
import words
from model import LONGEST_DOCUMENT, LONGEST_SHORT


@dataclass
class Stage:
    """What a stage of training draws: documents of each task in the short part of a batch
    (relative),
    the tasks that may follow in the same document, and how long lists are."""

    shares: dict
    followers: list
    lengths: tasks.Lengths


STAGES = {
    1: Stage(
        {"arithmetic": 30, "choice": 14, "tools": 8, "sort": 18, "copy": 9, "chat": 2.5},
        ["arithmetic", "choice", "sort", "copy", "chat"],
        tasks.FIRST_STAGE,
    ),
    2: Stage(
        {
            "arithmetic": 12,
            "choice": 6,
            "people": 34,
            "tools": 5,
            "sort": 9,
            "copy": 9,
            "count": 24,
            "chat": 1.5,
        },
        ["arithmetic", "choice", "people", "people", "sort", "copy", "count", "chat"],
        tasks.SECOND_STAGE,
    ),
}
# (first batch that does not hold it, longest list of a recall conversation)
RECALL_STAGES = [(800, 160), (2000, 500), (4000, 1500), (1 << 60, 2990)]
LIST_ROOM = 340  # Tokens that a list's questions and answers may add.


@dataclass
class BatchShape:
    """A batch has a part of long documents (recall) and a part of short ones, each with a bound on
    document length and count, because attention pays for the bounds."""

    long_tokens: int
    long_documents: int
    short_tokens: int
    short_documents: int
    n_targets: int


def batch_shape(n_tokens):
    quarter = n_tokens // 4
    return BatchShape(
        quarter, max(8, quarter // 256), 3 * quarter, 3 * quarter // 40, n_tokens // 3
    )


def longest_recall(batch):
    return next(cap for until, cap in RECALL_STAGES if batch < until)


def draw_short(rng, context, stage):
    """One item, or a few in a row; at most one of them brings tools."""
    task = rng.choices(list(stage.shares), list(stage.shares.values()))[0]
    items = [tasks.draw(task, rng, context)]
    if rng.random() < 0.2:
        for _ in range(rng.randint(1, 2)):
            follower = tasks.draw(rng.choice(stage.followers), rng, context)
            items.insert(rng.randint(0, len(items)), follower)
    return items


def draw_long(rng, context, stage):
    """Lists with their questions, one after another, until the conversation is long enough."""
    del stage  # All stages draw the same.
    items, wanted, total = [], rng.randint(800, 2990), 0
    longest = context.recall_max
    while total < wanted:
        context.recall_max = min(longest, max(400, LONGEST_DOCUMENT - LIST_ROOM - total))
        items.append(tasks.draw("recall", rng, context))
        total += sum(len(turn.user_ids) + 24 for turn in items[-1].turns)
    context.recall_max = longest
    return items


def draw_document(rng, context, items):
    """(ids, mask) of one conversation, rendered as a server would render it at its last turn."""
    thinking = rng.random() < 0.5
    system = rng.choice(words.SYSTEM_PROMPTS) if rng.random() < 0.12 else None
    tools = next((item.tools for item in items if item.tools), None)
    if tools is None and items[0].task != "recall" and rng.random() < 0.06:
        offered = rng.sample(functions.FUNCTIONS, rng.randint(1, 3))
        tools = [function.schema(rng) for function in offered]
    dialogue = chat.Dialogue(context.tokenizer, tools, system)
    turns = [turn for item in items for turn in item.turns]
    last_user = max(i for i, turn in enumerate(turns) if turn.tool_result is None)
    named = rng.random() < 0.3
    for i, turn in enumerate(turns):
        add_prompt(dialogue, turn, named)
        thinks = thinking and i >= last_user
        dialogue.open_assistant(thinks)
        dialogue.answer(turn.text(thinks), turn.calls, turn.reasoning if thinks else None)
    return dialogue.ids, dialogue.mask


def add_prompt(dialogue, turn, named):
    """The user's or the tool's part of a turn. A tool's turn carries the tool's name if `named`."""
    if turn.tool_result:
        name, content = turn.tool_result
        role = name if named else "tool"
        dialogue.tool(f"functions.{name}:{dialogue.calls - 1}", content, role)
    elif turn.user_ids:
        dialogue.user_ids(turn.user_ids)
    else:
        dialogue.user(turn.user)


def pack(rng, context, draw_items, limits):
    """Documents one after another: ids, mask and boundaries. limits: (tokens, documents,
    length)."""
    n_tokens, n_documents, longest = limits
    ids, mask, starts = [], [], [0]
    while len(ids) < n_tokens:
        new_ids, new_mask = draw_document(rng, context, draw_items(rng, context))
        ids += new_ids[:longest]
        mask += new_mask[:longest]
        starts.append(min(len(ids), n_tokens))
    if len(starts) > n_documents + 1:
        raise RuntimeError(f"{len(starts) - 1} documents in a part made for {n_documents}")
    learn = np.array(mask[:n_tokens], bool)
    learn[starts[:-1]] = False
    cu = np.full(n_documents + 1, n_tokens, np.int32)
    cu[: len(starts)] = starts
    return np.array(ids[:n_tokens], np.uint16), learn, cu


def make_batch(rng, context, stage, shape):
    """Arrays of one packed row, long part first: ids, positions, boundaries of both parts (each
    counted from its own start), and the places whose next token is a target."""
    long = (shape.long_tokens, shape.long_documents, LONGEST_DOCUMENT)
    short = (shape.short_tokens, shape.short_documents, LONGEST_SHORT)
    long_ids, long_learn, long_cu = pack(rng, context, partial(draw_long, stage=stage), long)
    short_ids, short_learn, short_cu = pack(rng, context, partial(draw_short, stage=stage), short)
    positions = [np.arange(cu[-1]) - np.repeat(cu[:-1], np.diff(cu)) for cu in (long_cu, short_cu)]
    ids = np.concatenate([long_ids, short_ids])
    learned = np.flatnonzero(np.concatenate([long_learn, short_learn]))[: shape.n_targets]
    where = np.zeros(shape.n_targets, np.int32)
    targets = np.full(shape.n_targets, -100, np.int16)
    where[: len(learned)] = learned - 1
    targets[: len(learned)] = ids[learned]
    return ids, np.concatenate(positions).astype(np.uint16), long_cu, short_cu, where, targets


def work(plan, worker, queue):
    """Makes batches worker, worker + n_workers, ... until it is ended."""
    stage = STAGES[plan["stage"]]
    context = tasks.Context(tokenizer.Tokenizer(plan["tokenizer"]), False, stage.lengths)
    shape = batch_shape(plan["n_tokens"])
    for index in itertools.count(plan["first_batch"] + worker, plan["n_workers"]):
        rng = random.Random(plan["seed"] * 1_000_003 + index)
        context.recall_max = longest_recall(index)
        queue.put(make_batch(rng, context, stage, shape))


class BatchStream:
    """Worker processes with a short queue each; batches come out in order."""

    def __init__(self, plan):
        spawn = multiprocessing.get_context("spawn")
        self.queues = [spawn.Queue(maxsize=8) for _ in range(plan["n_workers"])]
        self.workers = []
        for i, queue in enumerate(self.queues):
            worker = spawn.Process(target=work, args=(plan, i, queue), daemon=True)
            worker.start()
            self.workers.append(worker)
        self.next = 0

    def take(self):
        batch = self.queues[self.next % len(self.queues)].get()
        self.next += 1
        return batch

    def close(self):
        for worker in self.workers:
            worker.terminate()
