"""Word lists that the synthetic tasks draw from."""


def _words(text):
    return text.split()


FIRST_NAMES = _words(
    """Mia Tom Anna Ben Clara David Emma Frank Grace Henry Iris Jack Kate Leo Maria Noah Olivia Paul
    Quinn Rosa Sam Tina Ursula Victor Wendy Xavier Yara Zoe Alice Bruno Carmen Daniel Elena Felix
    Greta Hugo Ines Jonas Karin Lukas Marta Nina Oscar Petra Ralf Sofia Theo Vera Walter Amir Bella
    Chloe Diego Eva Farah Gina Hana Ivan Julia Kenji"""
)
LAST_NAMES = _words(
    """Stone Rivers Marsh Wood Hill Fields Brooks Lake Frost Snow Berg Castle Archer Baker Carter
    Cook Dyer Farmer Fisher Fletcher Gardner Glover Hunter Mason Miller Palmer Parker Porter Potter
    Sawyer Shepherd Singer Smith Taylor Turner Walker Weaver Young Black Brown Gray Green White Bell
    Cross Day Fox Hart Knight Lane Moss Noble Page Price Reed Rose Sharp Swift Ward West"""
)
ADJECTIVES = _words(
    """amber ancient bitter blue bold brave bright broken calm cold copper crimson curious dark deep
    distant dusty eager early empty fancy fierce frozen gentle golden grand green happy heavy hidden
    hollow honest humble icy jolly kind late lazy little lonely lucky mellow misty modest narrow
    nimble
    noisy pale patient plain polite proud purple quick quiet rapid rough rusty secret shiny silent
    silver simple"""
)
NOUNS = _words(
    """anchor apple arrow badger barrel basket beacon bear bell bison boat bottle branch bridge
    brush
    bucket button candle canyon castle cherry clock cloud comet compass coral crane crystal dragon
    drum
    eagle engine falcon feather fern forest fountain fox garden glacier guitar hammer harbor hawk
    helmet heron island jacket kettle key ladder lantern lemon lion maple marble meadow mirror moon
    mountain needle ocean otter"""
)
ITEMS = _words(
    """apples pears plums oranges bananas grapes cookies cakes muffins rolls eggs coins stamps
    marbles
    shells stones buttons pencils pens books cards balloons stickers flowers roses tulips seeds nuts
    carrots potatoes onions tomatoes peppers lemons beans candles toys dolls kites beads ribbons
    tickets photos letters cups plates spoons bottles boxes bricks nails screws"""
)
CONTAINERS = _words("boxes bags baskets crates jars trays packs shelves drawers cases")
COPY_WORDS = _words(
    """river window paper orange table winter summer music letter number yellow garden doctor
    teacher
    school market station street corner kitchen bedroom pocket finger shoulder weather morning
    evening
    thunder lightning rainbow desert valley village city country border bottle hammer pencil picture
    mirror carpet blanket pillow ceiling floor engine wheel ticket travel luggage passport journey
    bridge tunnel harbor ship captain sailor anchor island beach sand wave storm cloud wind snow ice
    fire smoke ash coal iron steel gold silver copper stone brick wood leaf root branch seed fruit
    bread butter cheese honey sugar salt pepper onion garlic tomato potato carrot apple cherry lemon
    horse cow sheep goat pig dog cat mouse rabbit fox wolf bear lion tiger eagle owl raven swan duck
    hen fish shark whale crab snake frog turtle spider ant bee moth red blue green white black brown
    pink purple gray small large short long thick thin round flat sharp smooth rough soft hard warm
    cool hot cold dry wet clean dirty old new fast slow loud quiet bright dark happy sad brave calm
    clever kind polite proud shy one two three four five six seven eight nine ten first second third
    last next never always often seldom today tomorrow yesterday monday friday sunday january march
    june october walk run jump swim fly climb sit stand sleep wake eat drink cook bake read write
    draw paint sing dance play work build repair open close push pull carry throw catch give take
    buy sell send bring find lose keep hide show tell ask answer think know learn teach help"""
)
SYSTEM_PROMPTS = [
    "You are a helpful assistant.",
    "You are Kimi-nano, a small and careful assistant.",
    "Answer briefly.",
    "You are a helpful assistant. Answer briefly and correctly.",
    "Be polite and precise.",
    "You are an assistant for a small shop.",
    "Use the tools when they fit the question.",
    "You answer questions about numbers, lists and facts.",
]
LANGUAGES = _words("French German Spanish Italian Dutch Polish Swedish Greek Turkish Japanese")
DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
ROOMS = ["kitchen", "bedroom", "bathroom", "office", "garage", "hall"]
GENRES = _words("jazz rock pop classical folk blues")
TOPICS = _words("sports politics science business weather music")
DISHES = _words("pizza pasta soup salad curry burger sushi tacos")
STOCKS = _words("AAPL MSFT NVDA AMZN TSLA IBM INTC ORCL AMD NFLX")
CURRENCIES = _words("USD EUR GBP JPY CHF CNY")
SHOP_LISTS = _words("groceries hardware office party")
