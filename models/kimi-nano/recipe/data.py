"""Training batches: documents drawn from the tasks, packed into rows of equal length.

Batch b is a function of (seed, b, how many there will be), so the data of a run is the same however
many workers make it. Recall contexts grow with progress: copying by association forms on short
contexts first.
"""

import multiprocessing
import random
from dataclasses import dataclass

import chat
import functions
import numpy as np
import tasks
import tokenizer
import words
from model import LONGEST_DOCUMENT

SHARES = {"arithmetic": 26, "choice": 12, "tools": 12, "sort": 20, "copy": 8, "chat": 3}
SHORT = ["arithmetic", "choice", "sort", "copy", "chat"]
RECALL_TOKENS = 9600  # Recall's share of tokens against the weights above: weight = this / length.
# (progress until which it holds, longest recall context)
RECALL_STAGES = [(0.06, 160), (0.15, 500), (0.3, 1500), (1.0, 2990)]


@dataclass
class BatchShape:
    n_tokens: int
    max_documents: int
    max_targets: int


def batch_shape(n_tokens):
    return BatchShape(n_tokens, n_tokens // 32, n_tokens // 3)


def longest_recall(progress):
    return next(cap for until, cap in RECALL_STAGES if progress <= until)


def draw_items(rng, context):
    """One item, or a few short ones in a row; at most one of them brings tools."""
    weights = dict(SHARES)
    mean = (context.recall_min + context.recall_max) / 2
    weights["recall"] = min(24.0, RECALL_TOKENS / mean)
    task = rng.choices(list(weights), list(weights.values()))[0]
    items = [tasks.draw(task, rng, context)]
    if task == "recall" or rng.random() >= 0.2:
        return items
    for _ in range(rng.randint(1, 2)):
        items.insert(rng.randint(0, len(items)), tasks.draw(rng.choice(SHORT), rng, context))
    return items


def draw_document(rng, context):
    """(ids, mask) of one conversation, rendered as a server would render it at its last turn."""
    items = draw_items(rng, context)
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


def make_batch(rng, context, shape):
    """Arrays of one packed row: ids, positions, document boundaries, and places with targets."""
    ids, mask, starts = [], [], [0]
    while len(ids) < shape.n_tokens:
        new_ids, new_mask = draw_document(rng, context)
        ids += new_ids[:LONGEST_DOCUMENT]
        mask += new_mask[:LONGEST_DOCUMENT]
        starts.append(min(len(ids), shape.n_tokens))
    ids = np.array(ids[: shape.n_tokens], np.uint16)
    learn = np.array(mask[: shape.n_tokens], bool)
    learn[starts[:-1]] = False
    cu = np.full(shape.max_documents + 1, shape.n_tokens, np.int32)
    cu[: len(starts)] = starts
    positions = np.arange(shape.n_tokens, dtype=np.int32)
    positions -= np.repeat(cu[:-1], np.diff(cu))
    where = np.zeros(shape.max_targets, np.int32)
    targets = np.full(shape.max_targets, -100, np.int16)
    learned = np.flatnonzero(learn)[: shape.max_targets]
    where[: len(learned)] = learned - 1
    targets[: len(learned)] = ids[learned]
    return ids, positions.astype(np.uint16), cu, where, targets


def work(plan, worker, queue):
    """Makes batches worker, worker + n_workers, ... of the plan."""
    context = tasks.Context(tokenizer.Tokenizer(plan["tokenizer"]), held=False)
    shape = batch_shape(plan["n_tokens"])
    for index in range(worker, plan["n_batches"], plan["n_workers"]):
        rng = random.Random(plan["seed"] * 1_000_003 + index)
        progress = plan["progress_from"] + index / plan["n_batches"] * plan["progress_span"]
        context.recall_max = longest_recall(progress)
        queue.put(make_batch(rng, context, shape))


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
