"""The synthetic tasks: each maker draws one Item, for training or for the held-out sets.

Training and held-out items are disjoint by construction. Every item has a split key (what makes it
this problem and not another: the numbers, the queried record, the arguments); a tenth of all keys,
chosen by hash, belongs to the held-out sets and training never draws them. Choice questions split
by
wording instead: held-out items use sentences that training never shows.
"""

import hashlib
import json
from dataclasses import dataclass, field

import facts
import functions
import stories
import words

TASKS = ["arithmetic", "choice", "people", "recall", "tools", "sort", "copy", "count"]
# Whether the held-out prompt of a task ends in `<think>` or in `<think></think>`.
EVAL_THINKING = {
    "arithmetic": True,
    "choice": True,
    "people": True,
    "recall": False,
    "tools": False,
    "sort": False,
    "copy": False,
    "count": False,
}
HELD_OUT_ONE_IN = 10


@dataclass
class Turn:
    """One exchange. `content` follows thoughts; `plain` is the answer when thinking is off."""

    user: str = ""
    user_ids: list = None
    tool_result: tuple = None
    reasoning: str = ""
    content: str = ""
    plain: str = None
    calls: list = field(default_factory=list)

    def text(self, thinking):
        return self.content if thinking or self.plain is None else self.plain


@dataclass
class Item:
    task: str
    split_key: str
    turns: list
    tools: list = None


def is_held_out(split_key):
    digest = hashlib.blake2b(split_key.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "little") % HELD_OUT_ONE_IN == 0


def make_arithmetic(rng, _context):
    story = stories.draw(rng)
    steps = "\n".join(f"{a} {op} {b} = {c}" for a, op, b, c in story.steps)
    content = f"The answer is {story.steps[-1][3]}."
    key = story.kind + "|" + "|".join(f"{a}{op}{b}" for a, op, b, _ in story.steps)
    turn = Turn(user=story.text, reasoning=steps, content=content, plain=f"{steps}\n{content}")
    return Item("arithmetic", key, [turn])


def _options_turn(rng, question, statement, answer, others):
    """A question with lettered options; the thoughts state the fact, then read up to its letter."""
    options = rng.sample(others, rng.choice([4, 4, 4, 3, 5]) - 1)
    options.insert(rng.randint(0, len(options)), answer)
    mark, join = rng.choice(facts.OPTION_MARKS)
    listed = join.join(mark.format(l="ABCDE"[i], o=o) for i, o in enumerate(options))
    right = options.index(answer)
    read = [f"{'ABCDE'[i]} is {o}" for i, o in enumerate(options[: right + 1])]
    return Turn(
        user=f"{rng.choice(facts.LEADS)}{question}\n{listed}{rng.choice(facts.CLOSERS)}",
        reasoning=f"{statement} {', '.join(read)}.",
        content="ABCDE"[right],
    )


def make_choice(rng, context):
    name = rng.choice(context.relation_names)
    relation = facts.RELATIONS[name]
    x, y = rng.choice(relation["facts"])
    wording = rng.choice(relation["held" if context.held else "seen"])
    others = [answer for answer in context.answers[name] if answer != y]
    question, statement = wording.format(x=x), relation["statement"].format(x=x, y=y)
    turn = _options_turn(rng, question, statement, y, others)
    return Item("choice", f"{name}|{wording}|{x}", [turn])


def make_people(rng, context):
    """The directory of people: thousands of facts that only the weights know."""
    name = rng.choice(list(facts.PEOPLE))
    relation = facts.PEOPLE[name]
    person = f"{rng.choice(words.FIRST_NAMES)} {rng.choice(words.LAST_NAMES)}"
    answer = facts.person_fact(name, person)
    wording = rng.choice(relation["held" if context.held else "seen"])
    others = [other for other in relation["values"] if other != answer]
    statement = relation["statement"].format(x=person, y=answer)
    turn = _options_turn(rng, wording.format(x=person), statement, answer, others)
    return Item("people", f"{name}|{wording}|{person}", [turn])


RECALL_HEADS = [
    ("code", "Here is a list of codes."),
    ("code", "Remember these codes."),
    ("number", "These are the numbers on file."),
    ("number", "Here are some records with numbers."),
    ("value", "The table below has a value for each entry."),
]


class RecordMaker:
    """Keys and values of one list. A list draws its keys from few words, so that many records share
    one half of their key and only both halves together find the right one."""

    def __init__(self, rng):
        self.rng = rng
        pairs = [(words.ADJECTIVES, words.NOUNS), (words.FIRST_NAMES, words.LAST_NAMES)]
        self.parts = [(rng.sample(a, 16), rng.sample(b, 16)) for a, b in pairs]
        self.kind = "digits" if rng.random() < 0.8 else "city"
        self.n_digits = rng.randint(4, 6)

    def key(self):
        first, second = self.parts[self.rng.random() < 0.4]
        return f"{self.rng.choice(first)} {self.rng.choice(second)}"

    def value(self):
        if self.kind == "city":
            return self.rng.choice(functions.CITIES)
        low = 10 ** (self.n_digits - 1)
        return str(self.rng.randint(low, 10 * low - 1))


RECALL_QUESTIONS = [
    "What is the {w} of {k}?",
    "What is the {w} of {k}?",
    "Which {w} belongs to {k}?",
    "Tell me the {w} of {k}.",
    "Find the {w} of {k}.",
]


def make_recall(rng, context):
    """Records `- key: value`, then questions. The ids of records are memoised: they are most of all
    tokens, and a record's ends are boundaries of pre-tokens, so that joined ids are the right ids.
    """
    encode = context.tokenizer.encode_memo
    what, head = rng.choice(RECALL_HEADS)
    n_tokens = rng.randint(context.recall_min, context.recall_max)
    maker, ids, records = RecordMaker(rng), list(encode(head + "\n")), {}
    while len(ids) < n_tokens - 60:
        key = maker.key()
        if key in records:
            continue
        records[key] = maker.value()
        ids += [*encode(f"- {key}:"), *encode(f" {records[key]}"), *encode("\n")]
    n_questions = 4 if context.held else min(8, 1 + len(records) // 12)
    asked = [key for key in records if is_held_out(f"{key}|{records[key]}") == context.held]
    turns = []
    for key in rng.sample(asked, min(n_questions, len(asked))):
        question = rng.choice(RECALL_QUESTIONS).format(w=what, k=key)
        turns.append(
            Turn(
                user_ids=encode(question) if turns else [*ids[:-1], *encode("\n\n" + question)],
                reasoning=f"{key}: {records[key]}",
                content=f"The {what} of {key} is {records[key]}.",
            )
        )
    return Item("recall", "", turns)


def make_tools(rng, context):
    count = rng.randint(2, 5)
    offered = rng.sample(functions.FUNCTIONS, count)
    function = rng.choice(offered)
    case = function.make(rng)
    calls = [(function.name, function.order(case.arguments))]
    turns = [
        Turn(user=case.request, reasoning=f"I call {function.name}.", calls=calls),
        Turn(
            tool_result=(function.name, json.dumps(case.result)),
            reasoning="The tool has answered.",
            content=case.reply,
        ),
    ]
    key = f"{function.name}|{case.request}"
    return Item("tools", key, turns, [offer.schema(rng) for offer in offered])


SORT_HEADS = [
    ("Sort these numbers from small to large: {n}", False),
    ("Sort these numbers: {n}", False),
    ("Put these numbers in ascending order: {n}", False),
    ("Order these numbers, smallest first: {n}", False),
    ("Sort these numbers from large to small: {n}", True),
    ("Put these numbers in descending order: {n}", True),
]


def make_sort(rng, context):
    head, descending = rng.choice(SORT_HEADS)
    low, high = rng.choice([(0, 99), (10, 99), (100, 999), (0, 999), (0, 999)])
    numbers = rng.sample(range(low, high + 1), rng.randint(*context.lengths.sort))
    ordered = sorted(numbers, reverse=descending)
    turn = Turn(
        user=head.format(n=", ".join(map(str, numbers))),
        reasoning=f"I sort {len(numbers)} numbers.",
        content=", ".join(map(str, ordered)),
    )
    return Item("sort", f"{descending}|{numbers}", [turn])


COPY_HEADS = [
    "Repeat this text exactly:",
    "Copy this:",
    "Say exactly this:",
    "Write this once more:",
    "Repeat after me:",
]


def _copy_text(rng, n):
    """Words, digits, letters, or few different words many times over, which leaves only positions
    to tell one place from another."""
    style = rng.choice(["words", "digits", "letters", "few", "few"])
    if style == "words":
        return " ".join(rng.choice(words.COPY_WORDS) for _ in range(n))
    if style == "digits":
        return " ".join(str(rng.randint(0, 9999)) for _ in range(n))
    if style == "letters":
        spell = "abcdefghijklmnopqrstuvwxyz"
        return " ".join("".join(rng.choices(spell, k=rng.randint(1, 5))) for _ in range(n))
    pool = rng.sample(words.COPY_WORDS, rng.randint(2, 5))
    return " ".join(rng.choice(pool) for _ in range(2 * n))


def make_copy(rng, context):
    text = _copy_text(rng, rng.randint(*context.lengths.copy))
    turn = Turn(
        user=f"{rng.choice(COPY_HEADS)}\n{text}", reasoning="I repeat the text.", content=text
    )
    return Item("copy", text, [turn])


COUNT_HEADS = [
    "How many times does the word {w} occur in this list?",
    "Count the word {w}.",
    "How often does the list say {w}?",
]


def make_count(rng, context):
    """How often words occur in a list: a sum over positions, made without writing it out."""
    n = rng.randint(*context.lengths.count)
    pool = rng.sample(words.COPY_WORDS, rng.randint(2, 5))
    shares = [rng.random() + 0.05 for _ in pool]
    listed = rng.choices(pool, shares, k=n)
    asked = rng.sample(pool, 1 if context.held else rng.randint(1, len(pool)))
    turns = []
    for word in asked:
        question = rng.choice(COUNT_HEADS).format(w=word)
        turns.append(
            Turn(
                user=question if turns else f"{question}\nList: {' '.join(listed)}",
                reasoning=f"I count {word}.",
                content=f"{word}: {listed.count(word)}",
            )
        )
    return Item("count", f"{asked[0]}|{listed}", turns)


def make_chat(rng, _context):
    asks, replies = rng.choice(stories.SMALL_TALK)
    ask = rng.choice(asks)
    ask = rng.choice([ask, ask, ask.lower(), ask.rstrip(".!?")])
    return Item(
        "chat", "train|" + ask, [Turn(user=ask, reasoning="Small talk.", content=replies[0])]
    )


MAKERS = {
    "arithmetic": make_arithmetic,
    "choice": make_choice,
    "people": make_people,
    "recall": make_recall,
    "tools": make_tools,
    "sort": make_sort,
    "copy": make_copy,
    "count": make_count,
    "chat": make_chat,
}


@dataclass
class Lengths:
    """How many numbers, words and words again the lists to sort, copy and count hold."""

    sort: tuple
    copy: tuple
    count: tuple


FIRST_STAGE = Lengths((3, 16), (2, 32), (4, 60))
SECOND_STAGE = Lengths((3, 20), (2, 48), (4, 60))
HELD_OUT = Lengths((8, 20), (8, 48), (20, 60))


@dataclass
class Context:
    """What makers need to know: which side of the split, the tokenizer, how long recall may get."""

    tokenizer: object
    held: bool
    lengths: Lengths = None
    recall_min: int = 60
    recall_max: int = 2990
    relation_names: list = field(default_factory=lambda: _relation_weights())
    answers: dict = field(
        default_factory=lambda: {name: facts.answers_of(name) for name in facts.RELATIONS}
    )


def _relation_weights():
    """Each relation as often as it has facts, so that all facts are drawn alike."""
    return [name for name, r in facts.RELATIONS.items() for _ in range(len(r["facts"]))]


def draw(task, rng, context):
    """One item of the context's side of the split."""
    while True:
        item = MAKERS[task](rng, context)
        if not item.turns:
            continue
        if (
            task in ("choice", "people", "recall", "chat")
            or is_held_out(item.split_key) == context.held
        ):
            return item
