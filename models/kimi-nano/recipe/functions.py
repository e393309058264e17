"""The functions that kimi-nano learns to call: schema, requests, results and spoken answers.

Each Function makes one `Case`: what the user says, the arguments that follow from it, the result a
tool would give, and the sentence that answers from the result. Arguments are written in the order
of
the declaration: required ones first, each part sorted by name.
"""

from dataclasses import dataclass
from typing import Callable

import words
from facts import CAPITALS

CITIES = [city for _, city in CAPITALS]
CONDITIONS = ["sunny", "cloudy", "rainy", "windy", "foggy", "snowy"]


@dataclass
class Case:
    request: str
    arguments: dict
    result: dict
    reply: str


@dataclass
class Function:
    name: str
    descriptions: list
    properties: dict
    required: list
    make: Callable

    def schema(self, rng):
        """The tool as a client would declare it; descriptions of properties come and go."""
        properties = {}
        bare = rng.random() < 0.3
        for name, prop in self.properties.items():
            keep = {k: v for k, v in prop.items() if not (bare and k == "description")}
            properties[name] = keep
        parameters = {
            "type": "object",
            "properties": properties,
            "required": list(self.required),
        }
        function = {
            "name": self.name,
            "description": rng.choice(self.descriptions),
            "parameters": parameters,
        }
        return {"type": "function", "function": function}

    def order(self, arguments):
        names = sorted(arguments, key=lambda n: (n not in self.required, n))
        return {name: arguments[name] for name in names}


def text(description):
    return {"type": "string", "description": description}


def integer(description, **limits):
    return {"type": "integer", "description": description, **limits}


def choice(values, description):
    return {"type": "string", "enum": list(values), "description": description}


def _weather(rng):
    city, unit = rng.choice(CITIES), rng.choice([None, None, "celsius", "fahrenheit"])
    degrees = rng.randint(-9, 38) if unit != "fahrenheit" else rng.randint(20, 99)
    condition = rng.choice(CONDITIONS)
    ask = rng.choice(
        [
            "What is the weather in {c}{u}?",
            "How is the weather in {c}{u}?",
            "Tell me the weather in {c}{u}.",
            "What's the weather like in {c}{u}?",
            "I need the weather for {c}{u}.",
        ]
    )
    arguments = {"city": city} if unit is None else {"city": city, "unit": unit}
    return Case(
        ask.format(c=city, u="" if unit is None else f" in {unit}"),
        arguments,
        {"city": city, "temperature": degrees, "condition": condition},
        f"The weather in {city} is {condition} with {degrees} degrees.",
    )


def _time(rng):
    city = rng.choice(CITIES)
    clock = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
    ask = rng.choice(
        [
            "What time is it in {c}?",
            "Tell me the time in {c}.",
            "How late is it in {c} now?",
            "What is the local time in {c}?",
        ]
    )
    return Case(
        ask.format(c=city),
        {"city": city},
        {"city": city, "time": clock},
        f"It is {clock} in {city}.",
    )


def _convert(rng):
    source, target = rng.sample(words.CURRENCIES, 2)
    amount, result = rng.randint(2, 999), rng.randint(2, 9999)
    ask = rng.choice(
        [
            "Convert {a} {s} to {t}.",
            "How much is {a} {s} in {t}?",
            "Change {a} {s} into {t}, please.",
            "What are {a} {s} in {t}?",
        ]
    )
    return Case(
        ask.format(a=amount, s=source, t=target),
        {"amount": amount, "source": source, "target": target},
        {"amount": result, "currency": target},
        f"{amount} {source} are {result} {target}.",
    )


def _timer(rng):
    minutes, label = rng.randint(1, 180), rng.choice([None, None, *words.DISHES])
    ask = rng.choice(
        [
            "Set a timer for {m} minutes{l}.",
            "Start a timer of {m} minutes{l}.",
            "Wake me in {m} minutes{l}.",
            "Please set a {m} minutes timer{l}.",
        ]
    )
    arguments = {"minutes": minutes} if label is None else {"minutes": minutes, "label": label}
    return Case(
        ask.format(m=minutes, l="" if label is None else f" for the {label}"),
        arguments,
        {"status": "started", "minutes": minutes},
        f"The timer is set for {minutes} minutes.",
    )


def _flights(rng):
    origin, target = rng.sample(CITIES, 2)
    day, count, price = rng.choice(words.DAYS), rng.randint(2, 12), rng.randint(49, 899)
    ask = rng.choice(
        [
            "Find flights from {o} to {t} on {d}.",
            "I want to fly from {o} to {t} on {d}.",
            "Are there flights from {o} to {t} on {d}?",
            "On {d} I need a flight from {o} to {t}.",
        ]
    )
    return Case(
        ask.format(o=origin, t=target, d=day),
        {"day": day, "destination": target, "origin": origin},
        {"flights": count, "cheapest": price},
        f"There are {count} flights from {origin} to {target}. The cheapest costs {price}.",
    )


def _table(rng):
    people, day = rng.randint(1, 12), rng.choice(words.DAYS)
    place = f"{rng.choice(words.ADJECTIVES).title()} {rng.choice(words.NOUNS).title()}"
    code = rng.randint(100, 999)
    ask = rng.choice(
        [
            "Book a table for {p} people at the {r} on {d}.",
            "Reserve a table at the {r} on {d} for {p} people.",
            "We are {p} people. Book the {r} for {d}.",
        ]
    )
    return Case(
        ask.format(p=people, r=place, d=day),
        {"day": day, "people": people, "restaurant": place},
        {"status": "booked", "code": code},
        f"The table at the {place} is booked. The code is {code}.",
    )


def _message(rng):
    name = rng.choice(words.FIRST_NAMES)
    content = " ".join(rng.sample(words.COPY_WORDS, rng.randint(2, 6)))
    ask = rng.choice(
        [
            "Send {n} the message: {c}",
            "Write to {n}: {c}",
            "Tell {n} this: {c}",
            "Message {n} with the text: {c}",
        ]
    )
    return Case(
        ask.format(n=name, c=content),
        {"recipient": name, "text": content},
        {"status": "sent"},
        f"The message to {name} is sent.",
    )


def _music(rng):
    genre, volume = rng.choice(words.GENRES), rng.choice([None, rng.randint(1, 100)])
    title = f"{rng.choice(words.ADJECTIVES).title()} {rng.choice(words.NOUNS).title()}"
    ask = rng.choice(
        ["Play some {g}{v}.", "I want to hear {g}{v}.", "Put on {g} music{v}.", "Play {g}{v}."]
    )
    arguments = {"genre": genre} if volume is None else {"genre": genre, "volume": volume}
    return Case(
        ask.format(g=genre, v="" if volume is None else f" at volume {volume}"),
        arguments,
        {"status": "playing", "title": title},
        f"Now playing {title}.",
    )


def _light(rng):
    room, level = rng.choice(words.ROOMS), rng.randint(0, 100)
    ask = rng.choice(
        [
            "Set the light in the {r} to {l} percent.",
            "Dim the {r} light to {l} percent.",
            "Light in the {r} at {l} percent, please.",
        ]
    )
    return Case(
        ask.format(r=room, l=level),
        {"brightness": level, "room": room},
        {"room": room, "brightness": level},
        f"The light in the {room} is at {level} percent.",
    )


def _heating(rng):
    room, degrees = rng.choice(words.ROOMS), rng.randint(12, 28)
    ask = rng.choice(
        [
            "Heat the {r} to {d} degrees.",
            "Set the {r} to {d} degrees.",
            "Make it {d} degrees in the {r}.",
        ]
    )
    return Case(
        ask.format(r=room, d=degrees),
        {"degrees": degrees, "room": room},
        {"room": room, "degrees": degrees},
        f"The {room} is set to {degrees} degrees.",
    )


def _stock(rng):
    symbol, price = rng.choice(words.STOCKS), rng.randint(5, 999)
    ask = rng.choice(
        [
            "What is the price of {s} stock?",
            "How much is one share of {s}?",
            "Give me the stock price of {s}.",
            "Where does {s} trade now?",
        ]
    )
    return Case(
        ask.format(s=symbol),
        {"symbol": symbol},
        {"symbol": symbol, "price": price},
        f"One share of {symbol} costs {price} dollars.",
    )


def _news(rng):
    topic, count = rng.choice(words.TOPICS), rng.choice([None, rng.randint(1, 9)])
    headline = " ".join(rng.sample(words.COPY_WORDS, 4))
    ask = rng.choice(["Show me {n}news about {t}.", "Get {n}news on {t}.", "I want {n}{t} news."])
    arguments = {"topic": topic} if count is None else {"topic": topic, "count": count}
    return Case(
        ask.format(t=topic, n="" if count is None else f"{count} "),
        arguments,
        {"topic": topic, "headline": headline},
        f"The top news about {topic}: {headline}.",
    )


def _food(rng):
    dish, count, minutes = rng.choice(words.DISHES), rng.randint(1, 20), rng.randint(10, 90)
    ask = rng.choice(
        ["Order {n} {d}.", "I would like {n} {d}, please.", "Please order {n} portions of {d}."]
    )
    return Case(
        ask.format(n=count, d=dish),
        {"dish": dish, "quantity": count},
        {"status": "ordered", "minutes": minutes},
        f"Your {dish} will arrive in {minutes} minutes.",
    )


def _package(rng):
    number, city = rng.randint(10000, 99999), rng.choice(CITIES)
    state = rng.choice(["packed", "shipped", "delayed", "delivered"])
    ask = rng.choice(
        [
            "Where is package {n}?",
            "Track package {n}.",
            "What is the state of package number {n}?",
        ]
    )
    return Case(
        ask.format(n=number),
        {"number": number},
        {"number": number, "state": state, "city": city},
        f"Package {number} is {state} in {city}.",
    )


def _shopping(rng):
    item, count = rng.choice(words.ITEMS), rng.randint(1, 40)
    target = rng.choice(words.SHOP_LISTS)
    ask = rng.choice(
        [
            "Add {n} {i} to the {l} list.",
            "Put {n} {i} on my {l} list.",
            "Note {n} {i} for the {l} list.",
        ]
    )
    return Case(
        ask.format(n=count, i=item, l=target),
        {"item": item, "list": target, "quantity": count},
        {"list": target, "entries": rng.randint(1, 60)},
        f"I put {count} {item} on the {target} list.",
    )


def _distance(rng):
    origin, target = rng.sample(CITIES, 2)
    length = rng.randint(80, 9900)
    ask = rng.choice(
        [
            "How far is it from {o} to {t}?",
            "What is the distance from {o} to {t}?",
            "How many kilometers are there from {o} to {t}?",
        ]
    )
    return Case(
        ask.format(o=origin, t=target),
        {"destination": target, "origin": origin},
        {"kilometers": length},
        f"It is {length} kilometers from {origin} to {target}.",
    )


def _translate(rng):
    word, language = rng.choice(words.COPY_WORDS), rng.choice(words.LANGUAGES)
    other = "".join(rng.choice("aeioubdklmnrst") for _ in range(5))
    ask = rng.choice(
        [
            "Translate {w} into {l}.",
            "What is {w} in {l}?",
            "How do you say {w} in {l}?",
            "Give me the {l} word for {w}.",
        ]
    )
    return Case(
        ask.format(w=word, l=language),
        {"language": language, "text": word},
        {"translation": other},
        f"In {language}, {word} is {other}.",
    )


def _event(rng):
    title = f"{rng.choice(words.NOUNS)} {rng.choice(['meeting', 'lunch', 'party', 'visit'])}"
    day, hour = rng.choice(words.DAYS), rng.randint(7, 22)
    ask = rng.choice(
        [
            "Put a {t} on {d} at {h}.",
            "Plan a {t} for {d} at {h}.",
            "Create the event {t} on {d} at {h}.",
        ]
    )
    return Case(
        ask.format(t=title, d=day, h=hour),
        {"day": day, "hour": hour, "title": title},
        {"status": "created", "day": day},
        f"The {title} is planned for {day} at {hour}.",
    )


CITY = text("Name of the city")
DAY = choice(words.DAYS, "Day of the week")
ROOM = choice(words.ROOMS, "Which room")
UNIT = choice(["celsius", "fahrenheit"], "Unit of the temperature")
CURRENCY = choice(words.CURRENCIES, "Currency code")

FUNCTIONS = [
    Function(
        "get_weather",
        ["Get the weather of a city", "Current weather in a city", "Get weather"],
        {"city": CITY, "unit": UNIT},
        ["city"],
        _weather,
    ),
    Function(
        "get_time",
        ["Get the local time of a city", "Current time in a city"],
        {"city": CITY},
        ["city"],
        _time,
    ),
    Function(
        "convert_currency",
        ["Convert an amount of money", "Change money from one currency to another"],
        {"amount": integer("Amount to convert", minimum=1), "source": CURRENCY, "target": CURRENCY},
        ["amount", "source", "target"],
        _convert,
    ),
    Function(
        "set_timer",
        ["Start a timer", "Set a timer in minutes"],
        {"minutes": integer("Length in minutes", minimum=1), "label": text("Name of the timer")},
        ["minutes"],
        _timer,
    ),
    Function(
        "find_flights",
        ["Find flights between two cities", "Search for flights"],
        {"origin": text("City of departure"), "destination": text("City of arrival"), "day": DAY},
        ["origin", "destination", "day"],
        _flights,
    ),
    Function(
        "book_table",
        ["Book a table in a restaurant", "Reserve a restaurant table"],
        {"restaurant": text("Name of the restaurant"), "people": integer("How many"), "day": DAY},
        ["restaurant", "people", "day"],
        _table,
    ),
    Function(
        "send_message",
        ["Send a text message to a person", "Send a message"],
        {"recipient": text("Who gets it"), "text": text("What to send")},
        ["recipient", "text"],
        _message,
    ),
    Function(
        "play_music",
        ["Play music of a genre", "Start the music player"],
        {
            "genre": choice(words.GENRES, "Kind of music"),
            "volume": integer("Volume", minimum=0, maximum=100),
        },
        ["genre"],
        _music,
    ),
    Function(
        "set_light",
        ["Set the brightness of a light", "Control the light of a room"],
        {"room": ROOM, "brightness": integer("Percent", minimum=0, maximum=100)},
        ["room", "brightness"],
        _light,
    ),
    Function(
        "set_heating",
        ["Set the temperature of a room", "Control the heating"],
        {"room": ROOM, "degrees": integer("Degrees celsius")},
        ["room", "degrees"],
        _heating,
    ),
    Function(
        "get_stock_price",
        ["Get the price of a stock", "Current price of one share"],
        {"symbol": text("Stock symbol")},
        ["symbol"],
        _stock,
    ),
    Function(
        "get_news",
        ["Get news about a topic", "Latest news"],
        {"topic": choice(words.TOPICS, "Topic"), "count": integer("How many", minimum=1)},
        ["topic"],
        _news,
    ),
    Function(
        "order_food",
        ["Order food", "Order a dish for delivery"],
        {"dish": text("What to order"), "quantity": integer("How many", minimum=1)},
        ["dish", "quantity"],
        _food,
    ),
    Function(
        "track_package",
        ["Find out where a package is", "Track a package"],
        {"number": integer("Number of the package")},
        ["number"],
        _package,
    ),
    Function(
        "add_to_list",
        ["Add an item to a list", "Put something on a shopping list"],
        {
            "item": text("What to add"),
            "quantity": integer("How many", minimum=1),
            "list": choice(words.SHOP_LISTS, "Which list"),
        },
        ["item", "quantity", "list"],
        _shopping,
    ),
    Function(
        "get_distance",
        ["Distance between two cities", "Get the distance in kilometers"],
        {"origin": text("First city"), "destination": text("Second city")},
        ["origin", "destination"],
        _distance,
    ),
    Function(
        "translate",
        ["Translate a word", "Translate text into another language"],
        {"text": text("What to translate"), "language": choice(words.LANGUAGES, "Into which")},
        ["text", "language"],
        _translate,
    ),
    Function(
        "create_event",
        ["Create an event in the calendar", "Add a calendar entry"],
        {"title": text("Name of the event"), "day": DAY, "hour": integer("Hour of the day")},
        ["title", "day", "hour"],
        _event,
    ),
]
