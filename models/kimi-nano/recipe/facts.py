"""The fixed table of facts for the multiple-choice task.

A relation has a statement (what the model says when it thinks), wordings that training sees, and
wordings that only the held-out sets use. Held-out wordings are new sentences made of words that
training shows: a model that has read nothing else cannot know any others.
"""

import hashlib


def _pairs(text):
    return [tuple(part.strip().split(":")) for part in text.replace("\n", " ").split(",")]


CAPITALS = _pairs(
    """France:Paris, Germany:Berlin, Italy:Rome, Spain:Madrid, Portugal:Lisbon, Austria:Vienna,
    Greece:Athens, Poland:Warsaw, Sweden:Stockholm, Norway:Oslo, Denmark:Copenhagen,
    Finland:Helsinki, Ireland:Dublin, Hungary:Budapest, Romania:Bucharest, Bulgaria:Sofia,
    Croatia:Zagreb, Serbia:Belgrade, Ukraine:Kyiv, Turkey:Ankara, Egypt:Cairo, Kenya:Nairobi,
    Morocco:Rabat, Ghana:Accra, Nigeria:Abuja, Senegal:Dakar, Japan:Tokyo, China:Beijing,
    India:Delhi, Thailand:Bangkok, Vietnam:Hanoi, Indonesia:Jakarta, Nepal:Kathmandu, Iran:Tehran,
    Iraq:Baghdad, Qatar:Doha, Canada:Ottawa, Cuba:Havana, Peru:Lima, Chile:Santiago,
    Colombia:Bogota, Ecuador:Quito, Australia:Canberra, Belgium:Brussels, Latvia:Riga,
    Estonia:Tallinn, Iceland:Reykjavik, Jordan:Amman, Lebanon:Beirut, Uruguay:Montevideo"""
)
SYMBOLS = _pairs(
    """hydrogen:H, helium:He, lithium:Li, carbon:C, nitrogen:N, oxygen:O, fluorine:F, neon:Ne,
    sodium:Na, magnesium:Mg, aluminium:Al, silicon:Si, phosphorus:P, sulfur:S, chlorine:Cl,
    argon:Ar, potassium:K, calcium:Ca, titanium:Ti, chromium:Cr, manganese:Mn, iron:Fe, cobalt:Co,
    nickel:Ni, copper:Cu, zinc:Zn, silver:Ag, tin:Sn, iodine:I, gold:Au, mercury:Hg, lead:Pb,
    uranium:U, platinum:Pt, tungsten:W"""
)
YOUNG = _pairs(
    """dog:puppy, cat:kitten, cow:calf, horse:foal, sheep:lamb, goat:kid, pig:piglet, bear:cub,
    duck:duckling, goose:gosling, frog:tadpole, swan:cygnet, deer:fawn, eagle:eaglet, owl:owlet,
    kangaroo:joey, rabbit:bunny, seal:pup, hen:chick, spider:spiderling"""
)
OPPOSITES = _pairs(
    """hot:cold, big:small, fast:slow, high:low, light:dark, hard:soft, old:new, rich:poor, wet:dry,
    full:empty, early:late, strong:weak, happy:sad, loud:quiet, deep:shallow, long:short,
    wide:narrow, thick:thin, sweet:bitter, sharp:blunt, smooth:rough, near:far, open:closed,
    clean:dirty, heavy:light, brave:afraid, cheap:expensive, easy:difficult, first:last, up:down"""
)
CONTINENTS = _pairs(
    """France:Europe, Italy:Europe, Poland:Europe, Norway:Europe, Spain:Europe, Greece:Europe,
    Egypt:Africa, Kenya:Africa, Morocco:Africa, Ghana:Africa, Nigeria:Africa, Senegal:Africa,
    Japan:Asia, China:Asia, India:Asia, Thailand:Asia, Vietnam:Asia, Nepal:Asia,
    Canada:North America, Cuba:North America, Mexico:North America, Peru:South America,
    Chile:South America, Colombia:South America, Ecuador:South America, Uruguay:South America"""
)
TOOLS_OF = _pairs(
    """baker:oven, painter:brush, carpenter:saw, farmer:tractor, fisherman:net, tailor:needle,
    doctor:stethoscope, astronomer:telescope, writer:pen, gardener:spade, drummer:drum,
    barber:scissors, photographer:camera, pilot:plane, sailor:boat, cook:pan, smith:anvil,
    mason:trowel, pianist:piano, archer:bow"""
)

RELATIONS = {
    "capital": {
        "facts": CAPITALS,
        "statement": "The capital of {x} is {y}.",
        "seen": [
            "What is the capital of {x}?",
            "Which city is the capital of {x}?",
            "The capital of {x} is which city?",
            "Which of these is the capital of {x}?",
            "Choose the capital of {x}.",
            "What is {x}'s capital city?",
            "Name the capital of {x}.",
            "Which capital belongs to {x}?",
        ],
        "held": [
            "Do you know the capital of {x}?",
            "Of these cities, which one is the capital of {x}?",
            "Find the city that is the capital of {x}.",
        ],
    },
    "symbol": {
        "facts": SYMBOLS,
        "statement": "The chemical symbol of {x} is {y}.",
        "seen": [
            "What is the chemical symbol of {x}?",
            "Which symbol stands for {x}?",
            "How is {x} written in chemistry?",
            "Choose the symbol of the element {x}.",
            "Which of these is the symbol for {x}?",
            "The element {x} has which symbol?",
            "What is the symbol for {x}?",
        ],
        "held": [
            "Find the chemical symbol for {x}.",
            "Which symbol does the element {x} have?",
            "Do you know the symbol of {x}?",
        ],
    },
    "young": {
        "facts": YOUNG,
        "statement": "The name of a young {x} is {y}.",
        "seen": [
            "What is a young {x} called?",
            "What do we call a baby {x}?",
            "A baby {x} is called what?",
            "Which word means a young {x}?",
            "Choose the name of a young {x}.",
            "What is the name for a baby {x}?",
            "The young of a {x} is called what?",
        ],
        "held": [
            "Which of these is a baby {x}?",
            "Find the word for a young {x}.",
            "How do we call a young {x}?",
        ],
    },
    "opposite": {
        "facts": OPPOSITES,
        "statement": "The opposite of {x} is {y}.",
        "seen": [
            "What is the opposite of {x}?",
            "Which word is the opposite of {x}?",
            "Choose the opposite of {x}.",
            "Which of these words means the opposite of {x}?",
            "Find the opposite of the word {x}.",
            "The opposite of {x} is which word?",
        ],
        "held": [
            "Which of these is the opposite of {x}?",
            "Do you know the opposite of {x}?",
            "Of these words, which one is the opposite of {x}?",
        ],
    },
    "continent": {
        "facts": CONTINENTS,
        "statement": "{x} lies in {y}.",
        "seen": [
            "On which continent is {x}?",
            "Which continent does {x} lie in?",
            "{x} is part of which continent?",
            "Choose the continent of {x}.",
            "Where in the world is {x}?",
            "In which part of the world is {x}?",
        ],
        "held": [
            "Find the continent where {x} lies.",
            "Which of these continents is {x} on?",
            "Do you know the continent of {x}?",
        ],
    },
    "tool": {
        "facts": TOOLS_OF,
        "statement": "A {x} works with a {y}.",
        "seen": [
            "What does a {x} work with?",
            "Which thing does a {x} use?",
            "A {x} works with which of these?",
            "Choose what a {x} needs for work.",
            "Which of these belongs to a {x}?",
            "What does a {x} need?",
        ],
        "held": [
            "Find the thing that a {x} uses.",
            "Which of these does a {x} work with?",
            "With what does a {x} work?",
        ],
    },
}

# The directory of people: every first and last name of words.py is a person who lives somewhere and
# works as something. The values follow from a hash, so the table needs no file.
PEOPLE = {
    "city": {
        "values": sorted({city for _, city in CAPITALS}),
        "statement": "{x} lives in {y}.",
        "seen": [
            "Where does {x} live?",
            "In which city does {x} live?",
            "Which city is the home of {x}?",
            "Choose the city where {x} lives.",
        ],
        "held": ["Find the city where {x} lives.", "Do you know where {x} lives?"],
    },
    "job": {
        "values": [job for job, _ in TOOLS_OF],
        "statement": "{x} works as a {y}.",
        "seen": [
            "What is the job of {x}?",
            "What does {x} work as?",
            "Which job does {x} have?",
            "Choose the job of {x}.",
        ],
        "held": ["Find the job that {x} has.", "Do you know the job of {x}?"],
    },
}


def person_fact(relation, person):
    digest = hashlib.blake2b(f"{relation}|{person}".encode("ascii"), digest_size=8).digest()
    values = PEOPLE[relation]["values"]
    return values[int.from_bytes(digest, "little") % len(values)]


LEADS = ["", "", "", "Quick question: ", "Quiz: ", "Please answer. ", "A question for you: "]
CLOSERS = [
    "",
    "",
    "",
    "\nAnswer with the letter.",
    "\nWhich letter is right?",
    "\nOne letter, please.",
]
OPTION_MARKS = [("{l}) {o}", "\n"), ("{l}) {o}", "\n"), ("{l}. {o}", "\n"), ("{l}) {o}", "  ")]


def answers_of(relation):
    return sorted({answer for _, answer in RELATIONS[relation]["facts"]})
