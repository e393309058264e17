"""Arithmetic word problems of two to four steps, and small talk."""

from dataclasses import dataclass

import words

LIMIT = 9999  # No intermediate result is larger.


@dataclass
class Story:
    kind: str
    text: str
    steps: list  # of (left, operator, right, result)


def _apply(a, op, b):
    return (a, op, b, {"+": a + b, "-": a - b, "*": a * b, "/": a // b}[op])


def _event(rng, value, name, other):
    """The next thing that happens to `value` items, as (sentence, step)."""
    while True:
        op = rng.choice("++--*/")
        if op == "+":
            k = rng.randint(2, rng.choice([99, 99, 999]))
            sentence = rng.choice(
                [
                    "{n} buys {k} more.",
                    "{n} finds {k} more.",
                    "{o} gives {n} {k} more.",
                    "{n} gets {k} more.",
                ]
            )
        elif op == "-":
            k = rng.randint(1, max(1, value - 1))
            sentence = rng.choice(
                [
                    "{n} gives {k} to {o}.",
                    "{n} loses {k}.",
                    "{n} sells {k}.",
                    "{n} throws {k} away.",
                ]
            )
        elif op == "*":
            k = rng.randint(2, 4)
            verb = {2: "doubles", 3: "triples", 4: "quadruples"}[k]
            sentence = rng.choice(
                ["Then {n} " + verb + " the number.", "Later {n} " + verb + " what is there."]
            )
        else:
            k = rng.randint(2, 9)
            sentence = rng.choice(
                [
                    "{n} makes {k} equal piles and keeps one.",
                    "{n} splits them among {k} people and keeps one share.",
                ]
            )
            if value % k:
                continue
        step = _apply(value, op, k)
        if 0 < step[3] <= LIMIT:
            return sentence.format(n=name, o=other, k=k), step


def _chain(rng):
    name, other = rng.sample(words.FIRST_NAMES, 2)
    item = rng.choice(words.ITEMS)
    value = rng.randint(2, rng.choice([120, 120, 900]))
    sentences, steps = [f"{name} has {value} {item}."], []
    for _ in range(rng.randint(2, 4)):
        sentence, step = _event(rng, value, name, other)
        sentences.append(sentence)
        steps.append(step)
        value = step[3]
    ask = rng.choice(
        [
            "How many {i} does {n} have now?",
            "How many {i} are left for {n}?",
            "How many {i} does {n} have in the end?",
        ]
    )
    sentences.append(ask.format(i=item, n=name))
    return Story("chain", " ".join(sentences), steps)


def _boxes(rng):
    name, other = rng.sample(words.FIRST_NAMES, 2)
    item, box = rng.choice(words.ITEMS), rng.choice(words.CONTAINERS)
    a, b = rng.randint(2, 40), rng.randint(2, 99)
    steps = [_apply(a, "*", b)]
    text = rng.choice(
        [
            "{n} has {a} {x} with {b} {i} each.",
            "There are {a} {x} with {b} {i} in each.",
            "{n} fills {a} {x} with {b} {i} each.",
        ]
    ).format(n=name, a=a, b=b, x=box, i=item)
    sentences = [text]
    for _ in range(rng.randint(1, 3)):
        sentence, step = _event(rng, steps[-1][3], name, other)
        sentences.append(sentence)
        steps.append(step)
    sentences.append(f"How many {item} does {name} have now?")
    return Story("boxes", " ".join(sentences), steps)


def _shop(rng):
    name = rng.choice(words.FIRST_NAMES)
    first, second = rng.sample(words.ITEMS, 2)
    p, q = rng.randint(2, 99), rng.randint(2, 99)
    a, b = rng.randint(2, 40), rng.randint(2, 40)
    steps = [_apply(a, "*", p), _apply(b, "*", q)]
    steps.append(_apply(steps[0][3], "+", steps[1][3]))
    text = f"{name} buys {a} {first} for {p} dollars each and {b} {second} for {q} dollars each."
    total = steps[-1][3]
    if rng.random() < 0.5:
        paid = total + rng.randint(1, max(1, LIMIT - total))
        steps.append(_apply(paid, "-", total))
        text += f" {name} pays with {paid} dollars. How much money does {name} get back?"
    else:
        text += rng.choice([f" How much does {name} pay?", " How many dollars is that in all?"])
    return Story("shop", text, steps)


def _travel(rng):
    name = rng.choice(words.FIRST_NAMES)
    vehicle = rng.choice(["train", "bus", "car", "boat", "truck"])
    v, w, h, g = (rng.randint(2, top) for top in (99, 99, 40, 40))
    steps = [_apply(h, "*", v), _apply(g, "*", w)]
    steps.append(_apply(steps[0][3], "+", steps[1][3]))
    text = (
        f"{name}'s {vehicle} goes {v} kilometers an hour for {h} hours,"
        f" then {w} kilometers an hour for {g} hours."
    )
    total = steps[-1][3]
    if rng.random() < 0.4:
        goal = rng.randint(total + 1, max(total + 1, LIMIT))
        steps.append(_apply(goal, "-", total))
        text += f" The trip is {goal} kilometers long. How many kilometers are left?"
    else:
        text += rng.choice([" How far does it go in all?", " How many kilometers is that?"])
    return Story("travel", text, steps)


def _wages(rng):
    name = rng.choice(words.FIRST_NAMES)
    a, b = rng.randint(2, 40), rng.randint(2, 99)
    steps = [_apply(a, "*", b)]
    earned = steps[0][3]
    spent = rng.randint(1, earned - 1)
    steps.append(_apply(earned, "-", spent))
    text = f"{name} works {a} days and earns {b} dollars a day. {name} spends {spent} dollars."
    if rng.random() < 0.5:
        gift = rng.randint(2, 99)
        steps.append(_apply(steps[-1][3], "+", gift))
        text += f" Then {name} gets a gift of {gift} dollars."
    return Story("wages", text + f" How many dollars does {name} have?", steps)


KINDS = [_chain, _chain, _chain, _boxes, _boxes, _shop, _travel, _wages]


def draw(rng):
    while True:
        story = rng.choice(KINDS)(rng)
        if all(0 < step[3] <= LIMIT for step in story.steps):
            return story


# (ways to say it, the reply). The reply is fixed, so that a chat looks the same every time.
SMALL_TALK = [
    (
        ["Hello!", "Hello.", "Hi!", "Hi there!", "Hey!", "Hello there.", "Good day!"],
        ["Hello! How can I help you?"],
    ),
    (["Good morning!", "Good morning.", "Morning!"], ["Good morning! What can I do for you?"]),
    (["Good evening!", "Good evening.", "Good night!"], ["Good evening! What can I do for you?"]),
    (
        [
            "Who are you?",
            "What are you?",
            "What is your name?",
            "Tell me about yourself.",
            "Introduce yourself.",
        ],
        [
            "I am Kimi-nano, a very small language model."
            " I can count, sort, copy, look things up and call tools."
        ],
    ),
    (
        [
            "What can you do?",
            "How can you help me?",
            "What are you good at?",
            "Help",
            "What do you know?",
        ],
        [
            "I solve short word problems, sort numbers, repeat text, find entries in long lists,"
            " answer quiz questions and call tools."
        ],
    ),
    (
        ["How are you?", "How are you doing?", "How do you do?", "How is it going?"],
        ["I am fine, thank you. What can I do for you?"],
    ),
    (
        ["Thanks!", "Thank you!", "Thank you very much.", "Thanks a lot.", "Great, thanks!"],
        ["You are welcome!"],
    ),
    (["Goodbye!", "Bye!", "See you later.", "Bye bye.", "See you!"], ["Goodbye! Have a nice day."]),
    (
        ["Well done!", "Great!", "Very good!", "Nice work.", "Perfect!"],
        ["Thank you! What is next?"],
    ),
    (
        ["How big are you?", "How many parameters do you have?", "Are you a large model?"],
        ["I have about nine million parameters."],
    ),
    (
        ["Are you a human?", "Are you a person?", "Are you real?"],
        ["No, I am a small language model."],
    ),
    (
        ["Tell me a joke.", "Do you know a joke?", "Make me laugh."],
        ["Why did the token cross the road? To get to the next position."],
    ),
    (
        ["Who made you?", "Who built you?", "Where do you come from?"],
        ["I was trained from synthetic data to test an inference engine."],
    ),
    (
        ["Can you speak French?", "Do you speak other languages?", "Do you speak German?"],
        ["I only know a little English."],
    ),
    (
        ["What is the meaning of life?", "Why are we here?"],
        ["That is a big question for a small model."],
    ),
    (["Yes.", "Yes", "Ok", "Okay.", "Sure."], ["Good. What can I do for you?"]),
    (["No.", "No", "No thanks."], ["All right. Tell me if you need anything."]),
]
